"""Copies of a dump are other episodes, a command's children count with it, and no benchmark drops an option."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from activation_store.reader import read_dump, read_metadata
from activation_store.writer import state_of
from benchmarks import interventions, scale
from tests.command import assert_refused, run_here, run_well
from tests.planted import planted_dump, write_planted

MEGABYTES = 300
HOLDS_MEMORY = f"import time; kept = b'x' * {MEGABYTES}_000_000; time.sleep(%s)"
IN_A_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("dump") / "dump", planted_dump(episodes=1), format="parquet")


def test_copies_are_further_episodes_with_a_little_noise_and_go_on_where_they_stopped(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = read_dump(dump)
    copied = scale.copied(dump, tmp_path / "copied", 2 * len(original) + 1, "float32")
    with monkeypatch.context() as patch, pytest.raises(IndexError):  # in the last copy
        noise = [scale._noisy] * len(original.activations)
        patch.setattr(scale, "_noisy", lambda *given: noise.pop()(*given))
        scale.copied(dump, tmp_path / "stopped", 2 * len(original) + 1, "float32")
    assert state_of(tmp_path / "stopped") == "unfinished"
    again = scale.copied(dump, tmp_path / "stopped", 2 * len(original) + 1, "float32")
    assert read_metadata(again).files == read_metadata(copied).files
    assert [episode["episode"] for episode in read_metadata(copied).episodes] == [0, 1, 2]
    records = read_dump(copied)
    assert len(records) == 3 * len(original)
    for name, values in original.activations.items():
        first, second, _ = np.split(records.activations[name], 3)
        assert np.array_equal(first, values)
        apart = np.abs(second - values)
        assert (apart > 0).any() and apart.max() < 10 * scale.NOISE * values.std()
    assert np.array_equal(records.tick, np.tile(original.tick, 3))


@pytest.mark.parametrize("before", [[], [sys.executable, "-c", IN_A_CHILD]])
def test_memory_is_that_of_the_process_and_its_children(before: list[str]) -> None:
    program = HOLDS_MEMORY % 2
    command = [*before, program] if before else [sys.executable, "-c", program]
    costs = scale.run(command)
    assert costs["code"] == 0 and costs["seconds"] >= 2
    assert MEGABYTES * 1e6 < costs["bytes"] < MEGABYTES * 1e6 + 2e8


@pytest.mark.parametrize(("longest", "largest"), [(1.0, 1e12), (1e3, 1e8)])
def test_a_command_that_takes_too_much_is_stopped(longest: float, largest: float) -> None:
    costs = scale.run([sys.executable, "-c", HOLDS_MEMORY % 1000], longest, largest)
    assert costs["code"] is None and costs["seconds"] < 100


SCRIPTS = sorted(path.name for path in Path(scale.__file__).parent.glob("*.py") if "def main()" in path.read_text())


@pytest.mark.parametrize("name", SCRIPTS)
def test_options_that_a_benchmark_does_not_have_are_refused(name: str) -> None:
    assert_refused(run_here(f"benchmarks/{name}", "--no-such-option"))


def test_the_cost_of_edits_is_written_with_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"plain": [2.0, 3.0], "edit of the memory": [4.0, 3.0]}
    monkeypatch.setattr(interventions, "measure", lambda _: times)
    run_well("benchmarks/interventions.py", "policies/some.safetensors", "--ticks", 7, "-o", tmp_path / "cost.json")
    written = json.loads((tmp_path / "cost.json").read_text())
    assert written["seconds"] == times
    assert (written["checkpoint"], written["repetitions"], written["ticks"]) == ("policies/some.safetensors", 3, 7)
