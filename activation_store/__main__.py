"""Look into dumps of activations, check them, convert them, take samples to share, and export them to other programs.

    python -m activation_store info activation_data/NAME
    python -m activation_store validate activation_data/NAME
    python -m activation_store convert activation_data/NAME OUT --format parquet    # or json
    python -m activation_store sample activation_data/NAME OUT --lives 20
    python -m activation_store export activation_data/NAME OUT.parquet    # for pandas, polars, DuckDB, ...

`convert` also imports what the original tools wrote, a .json or .jsonl file or its folder.
"""

import environment_check  # isort: skip  # noqa: F401 (must come first)

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import argument_checks
import command_line
from argument_checks import at_least, seed_value, split
from progress_view import progress
from user_error import UserError

Folder = tyro.conf.Positional[Path]


@dataclass(frozen=True)
class Info:
    """Tell what a dump holds, from its metadata alone."""

    dump: Folder
    """Folder of the dump."""


@dataclass(frozen=True)
class Validate:
    """Read every record of a dump and prove that it is whole; ends with exit code 2 if it is not."""

    dump: Folder
    """Folder of the dump."""


@dataclass(frozen=True)
class Convert:
    """Write a dump in another format, or import one of the original tools."""

    source: Folder
    """Folder of the dump, or the .json or .jsonl file of the original tools or its folder."""
    output: Folder
    """Folder of the new dump; must not hold one yet."""
    format: Literal["parquet", "json"] = "parquet"
    """Of the new dump: parquet is small and quick to read, json is what the original tools read."""
    precision: Literal["float32", "float16"] | None = None
    """Of its activations: float32 is exact, float16 (parquet only) takes half; by default as they are stored now."""


@dataclass(frozen=True)
class Sample:
    """Take some whole lives or episodes, drawn at random, as a small dump to share."""

    source: Folder
    """Folder of the dump."""
    output: Folder
    """Folder of the sample; must not hold a dump yet."""
    lives: int | None = None
    """Lives to take, from 1."""
    episodes: int | None = None
    """Episodes to take, from 1; instead of --lives."""
    seed: int = 0
    """Seed of the draw, from 0."""


@dataclass(frozen=True)
class Export:
    """Write a dump as one ordinary Parquet file, which pandas, polars, DuckDB and others read."""

    source: Folder
    """Folder of the dump."""
    output: Folder
    """File to write, .parquet; must not exist yet."""
    layers: str | None = None
    """Layers to export, separated by commas; by default all layers of the dump."""
    leave_out: str = ""
    """Parts not to export, separated by commas: tile, entity, inventory, tables (all further tables, such as
    Market)."""
    subsample: int = 1
    """Keep one record in this many of each life, from 1 (all); the first one is drawn for each life."""


Command = (
    Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[Validate, tyro.conf.subcommand("validate")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[Sample, tyro.conf.subcommand("sample")]
    | Annotated[Export, tyro.conf.subcommand("export")]
)


def main() -> None:
    """Parse, and do what is asked."""
    command_type: Any = Command
    command = command_line.parse(command_type, __doc__, prog="python -m activation_store")
    if isinstance(command, Info):
        info(command)
    elif isinstance(command, Validate):
        validate(command)
    elif isinstance(command, Convert):
        convert(command)
    elif isinstance(command, Sample):
        sample(command)
    else:
        export(command)


def info(command: Info) -> None:
    """Print tables of what is inside."""
    from activation_store.description import describe, describe_columns
    from activation_store.reader import read_metadata

    metadata = read_metadata(command.dump)
    command_line.print_table(("property", "value"), describe(metadata))
    command_line.print_table(("column", "type", "unit", "definition"), describe_columns(metadata))


def validate(command: Validate) -> None:
    """Read everything, and say so."""
    from activation_store.reader import read_batches, read_metadata
    from activation_store.selection import select

    metadata = read_metadata(command.dump)
    with progress("checking") as report:
        records = sum(map(len, read_batches(command.dump, metadata, select(command.dump, metadata), report)))
    print(f"{command.dump} is whole: {records:,} records of {metadata.lives:,} lives in {len(metadata.files)} files")


def convert(command: Convert) -> None:
    """Write the dump again, in the format asked for."""
    from activation_store import conversion

    if command.format == "json" and command.precision == "float16":
        raise UserError("--precision float16 needs --format parquet: JSON writes numbers out in full")
    with progress("converting") as report:
        conversion.convert(command.source, command.output, command.format, command.precision, report)
    _say_what_was_written(command.output)


def sample(command: Sample) -> None:
    """Write a small dump of the same format."""
    from activation_store import conversion

    if (command.lives is None) == (command.episodes is None):
        raise UserError("say how much to take: either --lives N or --episodes N")
    argument_checks.check(
        command,
        lives=at_least(command.lives, 1),
        episodes=at_least(command.episodes, 1),
        seed=seed_value(command.seed),
    )
    with progress("sampling") as report:
        conversion.sample(
            command.source,
            command.output,
            lives=command.lives,
            episodes=command.episodes,
            seed=command.seed,
            report=report,
        )
    _say_what_was_written(command.output)


def export(command: Export) -> None:
    """Write one Parquet file for other programs."""
    from activation_store.export import export as write
    from activation_store.selection import OBSERVATIONS
    from activation_store.subsample import Subsample

    parts = (*OBSERVATIONS, "tables")
    leave_out = split(command.leave_out)
    for name in leave_out:
        if name not in parts:
            raise UserError(f"--leave-out {name!r} is no part that can be left out; there are: {', '.join(parts)}")
    layers = None if command.layers is None else split(command.layers)
    with progress("exporting") as report:
        records = write(
            command.source, command.output, report, layers=layers, leave_out=leave_out,
            subsample=Subsample(command.subsample),
        )  # fmt: skip
    print(f"{command.output}: {records:,} records, {command.output.stat().st_size / records:,.0f} bytes a record")


def _say_what_was_written(folder: Path) -> None:
    from activation_store.reader import read_metadata

    metadata = read_metadata(folder)
    size = sum(file.bytes for file in metadata.files.values()) / metadata.records
    print(f"{folder}: {metadata.records:,} records of {metadata.lives:,} lives, {size:,.0f} bytes a record")


if __name__ == "__main__":
    command_line.run(main)
