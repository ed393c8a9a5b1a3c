"""intervene.py --edit interchange --learn as users run it, on a small real dump."""

from pathlib import Path

import numpy as np
import pytest

from activation_store.directions import read_directions
from activation_store.reader import read_dump
from analysis.dynamics import alignment
from common.files import sha256
from tests.command import assert_refused, run_here, run_well
from tests.recorded_policy import NAME, RecordedPolicy


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "STARTS", 1)
    monkeypatch.setattr(alignment, "STEPS", 4)
    monkeypatch.setattr(alignment, "_FEWEST_LIVES", 3)
    monkeypatch.setattr(alignment, "_MOST_PAIRS", 200)


def test_a_learnt_subspace_is_tried_beside_controls_and_can_be_edited(recorded: RecordedPolicy, tmp_path: Path) -> None:
    folder = tmp_path / "learnt"
    ours = ("--learn", *recorded.arguments, "-o", folder)
    done = run_well("intervene.py", "--edit", "interchange", *ours, "--donor", "self_food", "--dimensions", 2)
    lines = [line.split("\t") for line in (folder / "accuracies.tsv").read_text().splitlines()]
    assert [line[0] for line in lines[1:]] == [
        "learnt subspace", "between the means of the values", "20 random subspaces", "whole state", "nothing",
        "learnt in an untrained memory",
    ]  # fmt: skip
    assert all(0 <= float(low) <= float(value) <= float(high) <= 1 for _, value, low, high, *_ in lines[1:])
    assert "self_food (low, high) in 2 of the dimensions of lstm_cell" in (folder / "summary.txt").read_text()
    first, second = read_directions(folder / "directions.safetensors")
    assert first.name == "learnt_1" and first.source.kind == "learnt subspace"
    assert first.source.checkpoint_sha256 == sha256(recorded.checkpoint) and first.layer == "lstm_cell"
    weights = np.stack([first.weight, second.weight]).astype(np.float64)
    np.testing.assert_allclose(weights @ weights.T, np.eye(2), atol=1e-5)
    cells = read_dump(recorded.dump, layers=["lstm_cell"]).activations["lstm_cell"]
    assert abs(first.read_out(cells).mean()) < 3 * first.spread and f"-p {NAME} --directions" in done.stdout


def test_what_cannot_be_learnt_is_refused_in_one_line(
    recorded: RecordedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    ours = ("intervene.py", "--learn", *recorded.arguments, "-o", output)
    assert_refused(run_here(*ours, "--donor", "self_fod"), "there is no feature 'self_fod'", "did you mean self_food")
    assert_refused(run_here(*ours, "--donor", "self_food", "--dimensions", 17), "--dimensions is 17: must be")
    assert_refused(run_here(*ours, "--donor", "self_food", "--layer", "lstm_cell_1"), "lstm_cell_1 is not a state")
    assert_refused(run_here(*ours, "--donor", "self_food", "--layer", "encoder_output"), "name a state of the memory")
    assert_refused(run_here(*ours, "--donor", "self_goal"), "fewer than two values are those of")
    assert_refused(run_here(*ours, "--donor", "self_food", "--from-tick", 5000), "--from-tick 5000: only 0 lives")
    assert not output.exists()
