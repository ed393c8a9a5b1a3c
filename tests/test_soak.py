"""Commands that play episode after episode do not grow: the slope of their memory, all their processes together.

`NMMO_SOAK_MINUTES` says for how long each is watched, an hour in `make soak`; without it they are skipped.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.command import ROOT, environment
from tests.test_train import FOREVER, folders
from tests.tiny_policies import save_policies, world_options

MINUTES = float(os.environ.get("NMMO_SOAK_MINUTES", "0"))
LARGEST_SLOPE = 1.0
"""Megabytes a minute."""
WARM_UP = 300.0
"""Seconds in which a process that has begun to play may still take what it needs: in the first minutes an evaluation of
this small world takes 25 MB once, and then less than 1 MB in five minutes."""


def megabytes(process: psutil.Process) -> float:
    """Memory that a process and its children hold, without the libraries' files that they share."""
    total = 0
    for case in (process, *process.children(recursive=True)):
        try:
            total += case.memory_info().rss - case.memory_info().shared
        except psutil.NoSuchProcess:
            continue
    return total / 1e6


@contextmanager
def running(*command: object) -> Iterator[psutil.Process]:
    with subprocess.Popen(
        [sys.executable, *map(str, command)], cwd=ROOT, env=environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        try:
            yield psutil.Process(started.pid)
            assert started.poll() is None, f"it ended: {started.stderr.read() if started.stderr else ''}"
        finally:
            os.killpg(started.pid, signal.SIGKILL)


def slope(process: psutil.Process, results: Path, pattern: str) -> float:
    """Watch a process; returns megabytes a minute, of the least that was held in each of six stretches.

    The least, since memory swings: a world is freed only once Python looks for it.

    Args:
        results: folder in which a file appears once the process has begun to play.
    """
    while not list(results.rglob(pattern)):
        assert process.is_running()
        time.sleep(1)
    seconds, points = 60 * MINUTES, []
    time.sleep(WARM_UP)
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        points.append((now / 60, megabytes(process)))
        time.sleep(min(2.0, seconds / 200))
    stretches = [min(stretch, key=lambda point: point[1]) for stretch in _stretches(points)]
    minutes, held = np.array(stretches).T
    return float(np.polyfit(minutes - minutes[0], held, 1)[0])


def _stretches(points: list[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    size = max(1, len(points) // 6)
    return [points[start : start + size] for start in range(0, len(points) - size + 1, size)]


@pytest.mark.slow
@pytest.mark.skipif(not MINUTES, reason="takes as many minutes as NMMO_SOAK_MINUTES says: make soak")
@pytest.mark.parametrize("what", ["extraction", "evaluation", "training"])
def test_memory_does_not_grow(
    what: str, small_world, task, maps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = save_policies(tmp_path / "policies", small_world, task, maps, {"kit": ("neurips23_start_kit", 1)})
    commands = {
        "extraction": (
            "extract_activations.py", "pve", "-p", "kit", "-n", 1_000_000, "--max-steps", 50, "--format", "parquet",
            "--workers", 1, "--policies-dir", policies, "--maps-dir", small_world.maps_dir, "--map-seed",
            small_world.map_seed, "-o", tmp_path / "dumps",
        ),
        "evaluation": (
            "evaluate.py", policies, "pve", "-r", 1, "-n", 1_000_000, "--num-envs", 1, *world_options(small_world),
        ),
        "training": ("train.py", "-n", "soak", *FOREVER, *folders(tmp_path / "training")),
    }  # fmt: skip
    begun = {"extraction": "episode-*.parquet", "evaluation": ".eval*", "training": "metrics.jsonl"}
    with running(*commands[what]) as process:
        result = slope(process, tmp_path, begun[what])
        held = megabytes(process)
    with capsys.disabled():
        print(f"\n{what}: {held:.0f} MB after {MINUTES:g} minutes, {result:+.2f} MB a minute")
    assert result < LARGEST_SLOPE
