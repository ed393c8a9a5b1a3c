"""Half-lives of interventions are read from their runs, and those of the same edits are computed as built."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from activation_store.directions import Direction, Source, write_directions
from activation_store.layers import LSTM_HIDDEN
from agent_zoo.memories.leaky_average import LeakyAverages
from analysis.dynamics.perturbations import FollowedEdit, Lasting, compare, read_followed
from analysis.dynamics.report_lasting import edit_lines, edit_rows
from analysis.dynamics.tracks import tensor
from analysis.dynamics.update import Update
from analysis.statistics.resampling import Estimate
from common.files import sha256
from tests.analysis.dynamics.test_perturbations import LENGTHS, UNITS, policy_of
from tests.command import assert_refuses
from tests.planted_tracks import states_of, tracks_of

POLICY = "a" * 64


def direction(weight: np.ndarray) -> Direction:
    source = Source("independent component", "run", "dump", "planted", POLICY)
    return Direction("ic_1", LSTM_HIDDEN, weight.astype(np.float32), 0.5, "x", 0.25, 2.0, 9, 3, 1, source)


def intervention(folder: Path, **changed: object) -> Path:
    """The files of a finished run that followed an edit, as intervene.py leaves them."""
    folder.mkdir(parents=True)
    file = folder / "directions.safetensors"
    write_directions(file, [direction(np.eye(UNITS)[1])])
    arguments = {"edit": "steer", "direction": "ic_1", "change": False, "directions": str(file), "further": []}
    run = {"arguments": {**arguments, **changed}, "input": {"policy": POLICY, "directions": sha256(file)}, "seed": 0}
    number = {"value": 3.5, "low": 3.0, "high": None}
    persistence = {"policy": "trained", "what": "hidden", "left": [{"value": 1.0}, {"value": 0.8}], "half_life": number}
    other = {**persistence, "policy": "untrained"}
    arms = [{"kind": "edit", "dose": 1.5}, {"kind": "edited once", "dose": 1.5}]
    effects = {"persistences": [other, persistence], "arms": arms, "summary": []}
    done = {}
    for name, content in (("run.json", run), ("effects.json", effects)):
        (folder / name).write_text(json.dumps(content))
        done[name] = {"sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(), "bytes": 1}
    (folder / "DONE.json").write_text(json.dumps({"files": done}))
    return folder


def test_what_an_intervention_measured_is_read(tmp_path: Path) -> None:
    (found,) = read_followed(str(intervention(tmp_path / "run")), POLICY)
    assert found.dose == 1.5 and found.held_at == 0.25 + 1.5 * 2.0
    half_life = found.measured["hidden"].half_life
    assert (half_life.value, half_life.high) == (3.5, np.inf)
    assert found.measured["hidden"].left.tolist() == [1.0, 0.8]
    assert read_followed("", POLICY) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edit": "clear", "direction": None}, "made another edit"), ({"direction": "ic_1,ic_2"}, "made another edit"),
        ({"further": [{"edit": "steer"}]}, "made another edit"), ({"change": True}, "--change"),
        ({"directions": "nowhere.safetensors"}, "which is not there"), ({"direction": "ic_9"}, "holds no direction"),
    ],
)  # fmt: skip
def test_other_runs_are_refused(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    folder = intervention(tmp_path / "run", **changed)
    assert_refuses(message, read_followed, str(folder), POLICY)
    assert_refuses("edited another policy", read_followed, str(folder), "b" * 64)


def test_the_computed_half_life_is_that_of_the_memory() -> None:
    memory = LeakyAverages(UNITS, 1)
    update = Update(policy_of(memory, "ema"))
    read = np.random.default_rng(0).normal(size=(sum(LENGTHS), UNITS))
    tracks = tracks_of(states_of(update, read, LENGTHS), read, LENGTHS)
    constants = memory.time_constants[0].detach().numpy()
    unit = int(np.argmin(constants))
    along = direction(np.eye(UNITS)[unit])
    edit = FollowedEdit(Path("run"), along, 3.25, 1.5, {"hidden": Lasting(np.ones(1), Estimate(3.5, 3.0, np.inf))})
    states = tensor(tracks.state[:50])
    moved = states + edit.change(states)
    np.testing.assert_allclose(moved.numpy() @ along.weight + along.bias, 3.25)
    others = np.delete(np.arange(UNITS), unit)
    np.testing.assert_allclose(moved.numpy()[:, others], states.numpy()[:, others])
    (found,) = compare([edit], update, tracks, tracks.with_ticks_around(2, 24), 24, 0, lambda _: None)
    computed = found.computed["hidden"]
    np.testing.assert_allclose(computed.left, np.exp(-np.arange(25) / constants[unit]), rtol=1e-4)
    (row,) = edit_rows([found])
    assert row["measured"] == 3.5 and row["computed"] == pytest.approx(constants[unit] * np.log(2), abs=0.15)
    assert "ic_1, dose +1.5, hidden states: measured 3.5 (3.0 to not reached)" in edit_lines([found])[-1]
