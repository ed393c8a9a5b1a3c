"""Time and memory of each analysis on dumps of 0.3 to 10 million records.

    python -m benchmarks.scale activation_data/start_kit_10M --scratch /large/disk --output scale.json
    python -m benchmarks.scale activation_data/start_kit_10M --records 300000,1000000 --stages clusters,probes \\
      --scratch /large/disk

The dump's episodes are copied until there are enough records; copies get a little noise on their activations, so that
no two records coincide. Every stage runs as users run it, with its default settings. Memory is the peak of a process
and its children; what they share counts once. Copies and results stay in --scratch, and a repeated command measures
only what --output lacks.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import tyro

from activation_store.reader import read_batches, read_metadata
from activation_store.schema import Precision
from activation_store.selection import select
from activation_store.writer import DERIVED, DumpWriter
from common import command_line
from common.files import write_json
from common.user_error import UserError

NOISE = 0.001
"""Standard deviation of the noise on copies, as a share of the activations'."""
CLUSTERS = "clusters"
STAGES: dict[str, list[str]] = {
    "clusters": ["analyze_activations.py", "DUMP"],
    "life_phase": ["cluster_life_phase.py", "DUMP", "--cluster-dir", "CLUSTERS"],
    "explore": ["explore.py", "CLUSTERS"],
    "probes": ["train_probes.py", "DUMP"],
    "dynamics": ["analyze_dynamics.py", "DUMP"],
    "sparse": ["train_sparse_autoencoder.py", "DUMP", "--no-track"],
    "codes": ["semantic_clusters.py", "fit", "DUMP"],
    "saliency": ["saliency.py", "DUMP"],
    "world_model": ["train_world_model.py", "DUMP", "--records", "100000", "--no-track"],
}
"""The command of each stage; `life_phase` and `explore` read the results of `clusters`."""


@dataclass(frozen=True)
class Arguments:
    """Arguments of benchmarks/scale.py."""

    dump: tyro.conf.Positional[Path]
    """Dump of --record standard to copy episodes from."""
    scratch: Path
    """Folder for copies and results: 3 kB a record for all layers of a start kit."""
    records: str = "300000,1000000,3000000,10000000"
    """Comma-separated numbers of records, of which each copy has at least as many."""
    stages: str = ",".join(STAGES)
    """Comma-separated stages to measure."""
    longest: float = 3600
    """Seconds after which a stage is stopped; its time is then a lower bound."""
    largest: float = 16
    """Gigabytes at which a stage is stopped; its memory is then a lower bound."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """JSON file with what was measured so far, which is continued; by default scale.json in --scratch."""


def main() -> None:
    """Parse, copy, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    counts = sorted(_count(text) for text in arguments.records.split(","))
    stages = arguments.stages.split(",")
    if unknown := set(stages) - STAGES.keys():
        raise UserError(f"--stages names {', '.join(sorted(unknown))}: choose from {', '.join(STAGES)}")
    output = arguments.output or arguments.scratch / "scale.json"
    rows: list[dict[str, Any]] = json.loads(output.read_text()) if output.exists() else []
    for count in counts:
        dump = copied(arguments.dump, arguments.scratch / f"{arguments.dump.name}_{count}", count, "float16")
        records = read_metadata(dump).records
        for stage in stages:
            if any((row["stage"], row["records"]) == (stage, records) for row in rows if row["code"] in (0, None)):
                continue
            costs = run(command(stage, dump, arguments.scratch), arguments.longest, arguments.largest * 1e9)
            rows.append({"stage": stage, "records": records, **costs})
            write_json(output, rows)
            print(in_words(rows[-1]), flush=True)


def command(stage: str, dump: Path, scratch: Path) -> list[str]:
    """Return the command line of a stage on a dump, whose results go into the scratch folder."""
    clusters = scratch / f"{dump.name}-{CLUSTERS}"
    filled = [{"DUMP": str(dump), "CLUSTERS": str(clusters)}.get(word, word) for word in STAGES[stage]]
    target = [] if stage == "explore" else ["--name", f"{dump.name}-{stage}", "--output-dir", str(scratch)]
    return [sys.executable, *filled, *target]


def in_words(row: dict[str, Any]) -> str:
    """Return one line of the table."""
    end = {0: "", None: ", stopped"}.get(row["code"], f", exit code {row['code']}")
    return f"{row['stage']:12} {row['records']:>11,} records {row['seconds']:7.0f} s {row['bytes'] / 1e9:6.2f} GB{end}"


def run(command: list[str], longest: float = float("inf"), largest: float = float("inf")) -> dict[str, Any]:
    """Run a command and measure its memory and that of its children.

    Args:
        longest: seconds after which it is stopped.
        largest: bytes at which it is stopped.

    Returns:
        seconds: wall-clock time; bytes: peak memory with the children; code: exit code, None if it was stopped.
    """
    started, most, code = time.perf_counter(), 0, None
    process = psutil.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.DEVNULL)
    while (code := process.poll()) is None and time.perf_counter() - started < longest and most < largest:
        most = max(most, memory(process))
        time.sleep(0.2)
    seconds = time.perf_counter() - started
    if code is None:
        for part in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                part.kill()
        process.wait()
    return {"seconds": seconds, "bytes": most, "code": code}


def memory(process: psutil.Process) -> int:
    """Return the bytes that a process and its children currently use; 0 once it has ended."""
    used = 0
    try:
        for part in (process, *process.children(recursive=True)):
            used += part.memory_full_info().pss
    except psutil.Error:
        return used
    return used


def copied(dump: Path, target: Path, records: int, precision: Precision) -> Path:
    """Write a parquet dump of at least so many records, made of copies of a dump's episodes; resume it if need be.

    The first copy is the dump itself; later ones are further episodes of the same maps, with noise on activations.
    """
    if (target / "metadata.json").exists():
        return target
    metadata = read_metadata(dump)
    columns = {name: column for name, column in metadata.columns.items() if name not in DERIVED}
    blank = replace(
        metadata, format="parquet", precision=precision, columns=columns, precision_error={}, episodes=[],
        records=0, lives=0, files={},
    )  # fmt: skip
    with DumpWriter(target, blank, resume=True) as writer:
        for number, original, description in _numbered(metadata.episodes):
            if writer.stored_size[0] >= records:
                break
            if number in writer.stored:
                continue
            rng = np.random.default_rng(number)
            for batch in read_batches(
                dump, metadata, select(dump, metadata, columns=list(columns), episodes=[original])
            ):
                noisy = {name: _noisy(values, rng) for name, values in batch.activations.items()}
                kept = batch.activations if number == original else noisy
                writer.write(replace(batch, episode=np.full_like(batch.episode, number), activations=kept))
            writer.finish_episode(number, {**description, "episode": number, "episode_of_seed": number})
    return target


def _numbered(episodes: list[dict[str, Any]]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield, without end, the number of an episode, the one that it copies, and that one's description."""
    number = 0
    while True:
        for description in episodes:
            yield number, description["episode"], description
            number += 1


def _noisy(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(values.shape, np.float32)
    return values + noise * np.float32(values.std() * NOISE)


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise UserError(f"--records holds {text!r}: must be whole numbers, at least 1")
    return int(text)


if __name__ == "__main__":
    command_line.run(main)
