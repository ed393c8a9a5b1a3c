"""Inspect, validate, convert and sample activation dumps, and export them to other programs.

    python -m activation_store info activation_data/NAME
    python -m activation_store validate activation_data/NAME
    python -m activation_store convert activation_data/NAME OUT --format parquet    # or json
    python -m activation_store sample activation_data/NAME OUT --lives 20
    python -m activation_store export activation_data/NAME OUT.parquet    # for pandas, polars, DuckDB, ...
    python -m activation_store runs                      # all dumps and runs with size, age and command

`convert` also imports dumps of the original tools: a .json or .jsonl file, or its folder.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import tyro

from activation_store.columns import Column
from activation_store.exchange import export as rewriting
from activation_store.reader import read_batches, read_metadata
from activation_store.recording import command_of_dump
from activation_store.schema import COMMAND, MAY_BE_UNRECORDED, METADATA_FILE, DumpMetadata, Precision
from activation_store.selection import OBSERVATIONS, Subsample, select
from common import argument_checks, command_line
from common.argument_checks import at_least, seed_value, split
from common.checked_json import read_small_json
from common.files import visible
from common.progress_view import progress
from common.user_error import UserError

_ALWAYS = {
    "step": Column("int64", None, "ticks", "Ticks played since the recording of the episode began."),
    "env_id": Column("int64", None, "slot", "The agent's slot in its world."),
    "agent_id": Column("int64", None, "id", "The agent's id in the game, from 1."),
    "episode": Column("int64", None, "number", "Number of the episode in the sequence of its seed."),
    "tick": Column("int64", None, "ticks", "The game's tick within the episode."),
    "reward": Column("float32", None, "reward", "The reward for this action."),
    "value": Column("float32", None, "reward", "The critic's estimate of the future rewards."),
}
_SHOWN_AT_MOST = 10


def describe(metadata: DumpMetadata) -> list[tuple[str, str]]:
    """Return rows of names and values that summarise a dump."""
    size = sum(file.bytes for file in metadata.files.values())
    seeds = sorted({str(episode["seed"]) for episode in metadata.episodes if "seed" in episode})
    precision: str = metadata.precision
    for layer, error in metadata.precision_error.items():
        precision += f"; {layer} was rounded by {error.absolute:.2g} at most, {error.relative:.2g} of the value"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(metadata.versions.items()))
    return [
        ("policy", metadata.policy),
        ("agent", metadata.agent),
        *([("origin", f"simulated by world model {metadata.world_model_sha256}")] * (metadata.origin == "simulated")),
        ("steps trained", "unknown" if metadata.steps_trained is None else f"{metadata.steps_trained:,}"),
        ("checkpoint SHA-256", metadata.checkpoint_sha256 or "none"),
        ("records", f"{metadata.records:,}"),
        ("lives", f"{metadata.lives:,}"),
        ("episodes", f"{len(metadata.episodes):,}"),
        ("layers", ", ".join(f"{name} ({units})" for name, units in metadata.layers.items())),
        ("tables", ", ".join(f"{name} ({len(columns)} columns)" for name, columns in metadata.all_tables.items())),
        ("action heads", ", ".join(f"{head.name} ({head.size})" for head in metadata.action_heads)),
        ("format", f"{metadata.format}, schema version {metadata.schema_version}"),
        ("precision", precision),
        ("files", f"{len(metadata.files):,}, {size:,} bytes"),
        ("bytes a record", f"{size / metadata.records:,.0f}"),
        ("seed", "unknown" if metadata.seed is None else str(metadata.seed)),
        ("seeds of episodes", _some(seeds) or "unknown"),
        ("versions", versions or "unknown"),
    ]


def describe_columns(metadata: DumpMetadata) -> list[tuple[str, str, str, str]]:
    """Return one row per field of a record: its name, type, unit and definition."""
    heads = len(metadata.action_heads)
    columns = {name: column for name, column in _ALWAYS.items() if name not in metadata.unrecorded}
    columns["action"] = Column("int32", heads, "index", "The option chosen in each head.")
    if MAY_BE_UNRECORDED[-1] not in metadata.unrecorded:
        columns["log_probability"] = Column(
            "float32", heads, "nats", "Log-probability of the option chosen in each head."
        )
    columns |= metadata.columns
    return [
        (name, f"{of.dtype} x {of.width}" if of.width else of.dtype, of.unit, of.definition)
        for name, of in columns.items()
    ]


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN_AT_MOST]) + (", ..." if len(names) > _SHOWN_AT_MOST else "")


Folder = tyro.conf.Positional[Path]


def main() -> None:
    """Parse the command line and run the command."""
    commands = (info, validate, convert, sample, export, runs)
    command_line.chosen_command(commands, __doc__, prog="python -m activation_store")()


def info(dump: Folder) -> None:
    """Describe a dump from its metadata.

    Args:
        dump: Folder of the dump.
    """
    metadata = read_metadata(dump)
    command_line.print_table(("property", "value"), describe(metadata))
    command_line.print_table(("column", "type", "unit", "definition"), describe_columns(metadata))


def validate(dump: Folder) -> None:
    """Read and check every record of a dump; the exit code is 2 if it is damaged or incomplete.

    Args:
        dump: Folder of the dump.
    """
    metadata = read_metadata(dump)
    with progress("checking") as report:
        records = sum(map(len, read_batches(dump, metadata, select(dump, metadata), report)))
    print(f"{dump} is whole: {records:,} records of {metadata.lives:,} lives in {len(metadata.files)} files")


def convert(
    source: Folder, output: Folder, format: Literal["parquet", "json"] = "parquet", precision: Precision | None = None,
) -> None:  # fmt: skip
    """Write a dump in another format, or import a dump of the original tools.

    Args:
        source: Folder of the dump; or a .json or .jsonl file of the original tools, or its folder.
        output: Folder for the new dump; must not contain one yet.
        format: Format of the new dump: parquet is small and fast to read; json is readable by the original tools.
        precision: Precision of its activations: float32 is exact; float16 (parquet only) half the size; by default
            unchanged.
    """
    if format == "json" and precision == "float16":
        raise UserError("--precision float16 needs --format parquet: JSON writes numbers out in full")
    with progress("converting") as report:
        rewriting.convert(source, output, format, precision, report)
    _say_what_was_written(output)


def sample(
    source: Folder, output: Folder, lives: int | None = None, episodes: int | None = None, seed: int = 0
) -> None:
    """Write a small dump of whole lives or episodes drawn at random, for sharing.

    Args:
        source: Folder of the dump.
        output: Folder for the sample; must not contain a dump yet.
        lives: Number of lives to draw, at least 1.
        episodes: Number of episodes to draw instead of lives, at least 1.
        seed: Seed of the draw, 0 to 4294967295.
    """
    if (lives is None) == (episodes is None):
        raise UserError("give the size of the sample: either --lives N or --episodes N")
    argument_checks.check(
        SimpleNamespace(lives=lives, episodes=episodes, seed=seed),
        lives=at_least(lives, 1), episodes=at_least(episodes, 1), seed=seed_value(seed),
    )  # fmt: skip
    with progress("sampling") as report:
        rewriting.sample(source, output, lives=lives, episodes=episodes, seed=seed, report=report)
    _say_what_was_written(output)


def export(source: Folder, output: Folder, layers: str | None = None, leave_out: str = "", subsample: int = 1) -> None:
    """Write a dump as a single standard Parquet file for pandas, polars, DuckDB and others.

    Args:
        source: Folder of the dump.
        output: Parquet file to write (.parquet); must not exist yet.
        layers: Comma-separated layers to export; by default all.
        leave_out: Comma-separated parts to leave out: tile, entity, inventory, tables (all other tables, such as
            Market).
        subsample: Keep one in this many records of each life, at least 1 (all); the first one kept is random.
    """
    parts = (*OBSERVATIONS, "tables")
    for name in split(leave_out):
        if name not in parts:
            raise UserError(f"--leave-out {name!r} cannot be left out; choose from: {', '.join(parts)}")
    with progress("exporting") as report:
        records = rewriting.export(
            source, output, report, layers=None if layers is None else split(layers), leave_out=split(leave_out),
            subsample=Subsample(subsample),
        )  # fmt: skip
    print(f"{output}: {records:,} records, {output.stat().st_size / records:,.0f} bytes a record")


def runs(folders: tyro.conf.Positional[tuple[Path, ...]] = ()) -> None:
    """List dumps, runs and trainings with their size, their age and the command that made them.

    Args:
        folders: Folders to look into; by default those that scripts write to.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder: name one that holds dumps or runs")
    listed = rows(folders or tuple(map(Path, FOLDERS)))
    if not listed:
        raise UserError("there are no dumps and no runs here: name their folders")
    command_line.print_table(("folder", "kind", "size", "age", "command"), listed)


def _say_what_was_written(folder: Path) -> None:
    metadata = read_metadata(folder)
    size = sum(file.bytes for file in metadata.files.values()) / metadata.records
    print(f"{folder}: {metadata.records:,} records of {metadata.lives:,} lives, {size:,.0f} bytes a record")


FOLDERS = (
    "activation_data", "analysis_results", "interventions", "world_models", "agent_plots", "runs", "demo",
    "study_results",
)  # fmt: skip
"""Where scripts write by default."""
_DONE, _RUN, _TRAINING, _MODEL = "DONE.json", "run.json", "settings.json", "model.safetensors"
_DEEPEST = 3
_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60))


Row = tuple[str, str, str, str, str]
"""Of one folder of results: its path, its kind, the size of all its files, the age of the newest, and the command that
made it, "" if nothing says so."""


def rows(folders: Sequence[Path]) -> list[Row]:
    """Return all dumps, runs, world models and trainings in some folders, and in those inside of them, by name."""
    now = time.time()
    return [row for folder in folders for row in _inside(folder, _DEEPEST, now)]


def _inside(folder: Path, depth: int, now: float) -> Iterator[Row]:
    if not folder.is_dir():
        return
    if known := _known(folder):
        kind, command = known
        files = list(_files(folder))
        total = sum(file.st_size for file in files)
        made = max((file.st_mtime for file in files), default=folder.stat().st_mtime)
        size = f"{total / 1e9:.1f} GB" if total >= 1e9 else f"{total / 1e6:.1f} MB"
        yield str(folder), kind, size, _age(now - made), command
    elif depth:
        for path in visible(folder, "*"):
            yield from _inside(path, depth - 1, now)


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Yield what the system tells of a folder's files; one that goes meanwhile, as in a training, is left out."""
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                status = Path(place, name).stat()
                if stat.S_ISREG(status.st_mode):
                    yield status


def _known(folder: Path) -> tuple[str, str] | None:
    """Return what a folder holds, and the command that made it; None for no results."""
    try:
        if (folder / METADATA_FILE).is_file():
            metadata = read_metadata(folder)
            if metadata.origin == "simulated":
                return "simulated dump", str(metadata.environment.get(COMMAND) or "")
            return "dump", command_of_dump(folder, metadata)
        for name in (_DONE, _RUN):
            if (folder / name).is_file():
                return "run", str(_json(folder / name).get("command") or "")
        if (folder / _TRAINING).is_file():
            content = _json(folder / _TRAINING)
            return "training" if "agent" in content else "world model", str(content.get("command") or "")
        return ("world model", "") if (folder / _MODEL).is_file() else None
    except UserError as error:
        return "damaged", str(error)


def _json(path: Path) -> dict[str, Any]:
    content = read_small_json(path)
    return content if isinstance(content, dict) else {}


def _age(seconds: float) -> str:
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "just now"


if __name__ == "__main__":
    command_line.run(main)
