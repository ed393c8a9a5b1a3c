"""A whole run: the same results with any number of processes and after an interruption; other folders are refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from activation_store.directions import write_directions
from activation_store.interventions import EDITED_REPLAY, LIVES_FILE, RUN_FILE, UNEDITED_REPLAY, LivesTable, read_lives
from activation_store.reader import read_dump
from analysis.interventions.edits.edit_options import EditOptions, RunOptions
from analysis.interventions.effects.pairs import read_run_file
from analysis.interventions.outputs import report_run
from analysis.interventions.play.intervention_run import play
from analysis.replays.file import read_replay
from reinforcement_learning.play.workers import Workers
from tests.command import assert_refuses
from tests.planted_interventions import direction, unit

pytestmark = pytest.mark.slow

UNITS = 32
EPISODES = 5  # two groups of parallel episodes


@pytest.fixture(scope="module")
def options(three_policies: Path, small_world, tmp_path_factory) -> RunOptions:
    folder = tmp_path_factory.mktemp("interventions")
    # A hidden state, a cell state and the input of the action heads, so that edits of all and of the memory are applied
    # together.
    directions = (
        unit(0, UNITS, "first", "lstm_cell", spread=0.1), unit(1, UNITS, "second", spread=0.1), unit(2, UNITS, "third"),
        direction((2 * np.eye(UNITS)[1]).tolist(), "double"),
    )  # fmt: skip
    write_directions(folder / "directions.safetensors", directions)
    return RunOptions(
        edit="steer", direction="first", dose="-2,2",
        further=(
            EditOptions("collapse", "second"),
            EditOptions("clear", every=4),
            EditOptions("erase", variable="tick,self_food", layer="action_decoder"),
            EditOptions("transplant", donor="self_row", every=3),
            EditOptions("interchange", "third", donor="self_col"),
        ),
        policy="kit", directions=folder / "directions.safetensors", episodes=EPISODES, seed=3, controls=1, share=0.25,
        follow=3, record="lstm_cell", max_steps=20,
        output=folder / "run", policies_dir=three_policies, maps_dir=small_world.maps_dir,
    )  # fmt: skip


@pytest.fixture(scope="module")
def lives(options: RunOptions) -> LivesTable:
    play(options, Workers(2))
    return read_lives(options.folder / LIVES_FILE)


def again(options: RunOptions, folder: Path, **changed: object) -> RunOptions:
    return RunOptions(**{**vars(options), "output": folder, **changed})  # type: ignore[arg-type]


def test_every_arm_plays_the_same_episodes_with_its_own_dose_and_donors(lives: LivesTable) -> None:
    arms = {name for name in lives.arm.tolist() if " at once" not in name}
    dosed = ("edit", "untrained, edit", "random direction 1", "random donor 1")
    once = {"unedited", "untrained, unedited", "no edit", "edited once", "untrained, edited once"}
    assert arms == once | {f"{kind}, dose {dose}" for kind in dosed for dose in ("-2", "+2")}
    twin = lives.of_arm("unedited")
    assert len(twin) == EPISODES * 16
    for arm in arms:
        mine = lives.of_arm(arm)
        for column in ("episode", "agent", "edited"):
            np.testing.assert_array_equal(getattr(mine, column), getattr(twin, column))
    arms = ("edit, dose -2", "edit, dose +2")
    moved = {arm: np.nanmean(lives.of_arm(arm).outcomes["moved_total/first"]) for arm in arms}
    assert moved["edit, dose -2"] < moved["edit, dose +2"]
    assert np.nanmean(lives.of_arm("edit, dose +2").outcomes["kl_total"]) > 0
    edited = lives.of_arm("edit, dose +2")
    for feature in ("self_row", "self_col"):
        share = edited.outcomes[f"follows_higher/{feature}/Move.Direction/North"]
        assert np.isfinite(share[edited.edited]).any() and np.isnan(share[~edited.edited]).all()
    within = edited.outcomes["within_data"][edited.edited]
    assert np.nanmin(within) > 0 and np.nanmax(within) < 1 + 1e-6 and np.isnan(twin.outcomes["within_data"]).all()


def test_replays_are_kept_of_the_first_episode_without_and_with_each_dose(
    options: RunOptions, lives: LivesTable
) -> None:
    replays = {
        UNEDITED_REPLAY: "unedited", EDITED_REPLAY: "edit, dose +2", "edited_dose-2.replay.lzma": "edit, dose -2"
    }  # fmt: skip
    assert {path.name for path in options.folder.glob("*.replay.lzma")} == replays.keys()
    for name, arm in replays.items():
        players, mine = read_replay(options.folder / name).players, lives.of_arm(arm)
        first = mine.episode == 0
        assert players.ids.tolist() == mine.agent[first].tolist()
        ticks_lived = players.present.sum(axis=0) - 1  # the first packet is from before the first tick
        np.testing.assert_array_equal(ticks_lived, mine.outcomes["ticks"][first])
        for called, agent, edited in zip(players.names, players.ids, mine.edited[first], strict=True):
            assert called == f"kit{'_drawn' if edited else ''}_{agent}"


def dumps(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("dumps/*/*")}


def test_dumps_hold_the_lives_of_the_run(options: RunOptions, lives: LivesTable) -> None:
    for name, arm in (("unedited", "unedited"), ("edit_dose_-2", "edit, dose -2"), ("edit_dose_+2", "edit, dose +2")):
        records, mine = read_dump(options.folder / "dumps" / name), lives.of_arm(arm)
        ticks = np.zeros((EPISODES, 17))
        np.add.at(ticks, (records.episode, records.agent_id), 1)
        np.testing.assert_array_equal(ticks[:, 1:].ravel(), mine.outcomes["ticks"])
        assert records.activations["lstm_cell"].shape == (len(records), UNITS)


@pytest.mark.parametrize("on_ray", [False, True])
def test_an_interrupted_run_ends_like_one_in_one_go(
    options: RunOptions, lives: LivesTable, tmp_path: Path, on_ray: bool
) -> None:
    """A dump, a group and a replay are missing, others are damaged, and others play than before.

    On Ray, where every worker loads the game anew, the group and one of the replays are there: one worker is enough.
    """
    folder = tmp_path / "run"
    shutil.copytree(options.folder, folder)
    (folder / LIVES_FILE).unlink()
    shutil.rmtree(folder / "dumps" / "edit_dose_+2")
    (folder / EDITED_REPLAY).write_bytes((folder / EDITED_REPLAY).read_bytes()[:-1])
    if not on_ray:
        (folder / UNEDITED_REPLAY).unlink()
        groups = sorted((folder / "groups").glob("*.json"))
        groups[2].unlink()
        groups[3].write_bytes(groups[3].read_bytes().replace(b'"edited":true', b'"edited":false', 1))
    play(again(options, folder, resume=True), Workers(1, ray_address="local" if on_ray else None))
    for name in (UNEDITED_REPLAY, EDITED_REPLAY):
        assert (folder / name).read_bytes() == (options.folder / name).read_bytes()
    assert dumps(folder) == dumps(options.folder) and len(dumps(folder)) == 3 * (EPISODES + 1)
    whole = read_lives(folder / LIVES_FILE)
    assert (folder / RUN_FILE).read_bytes() == (options.folder / RUN_FILE).read_bytes()
    np.testing.assert_array_equal(whole.arm, lives.arm)
    np.testing.assert_array_equal(whole.edited, lives.edited)
    for name, values in lives.outcomes.items():
        np.testing.assert_array_equal(whole.outcomes[name], values, err_msg=name)


def test_what_was_erased_can_be_read_before_and_not_after(options: RunOptions, lives: LivesTable) -> None:
    run = read_run_file(options.folder / RUN_FILE)
    edits = [arm.name for arm in run.arms if arm.kind == "edit"]
    assert [(item.arm, item.variable) for item in run.erased] == [
        (arm, variable) for arm in edits for variable in ("tick", "self_food")
    ]
    for item in run.erased:
        assert item.states > 500 and item.layer == "action_decoder"
        assert item.before > 0.05 and item.after == pytest.approx(0, abs=1e-6)
        assert item.unedited is not None and item.in_play is not None


def test_the_report_says_what_happened_and_proves_its_files(
    options: RunOptions, lives: LivesTable, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(options.folder, folder)
    lines = report_run(folder, draws=99)
    assert any("an arm that edits nothing is identical to its twin" in line for line in lines)
    erased = [line for line in lines if "tick in action_decoder" in line]
    assert len(erased) == 4 and all("0.000 once they are erased; in other episodes" in line for line in erased)
    assert report_run(folder, draws=99) == lines
    written = {"effects.json", "effects.tsv", "effects.png", "dose_response.png", "kl_by_head.png", "intervention.html"}
    assert written <= {path.name for path in folder.iterdir()}
    assert "Edited, dose +2" in (folder / "intervention.html").read_text()
    lives_file = folder / LIVES_FILE
    lives_file.write_bytes(lives_file.read_bytes() + b" ")
    assert_refuses("SHA-256", report_run, folder, draws=99)
    lives_file.unlink()
    assert_refuses("--resume", report_run, folder)


def test_other_runs_and_what_does_not_fit_are_refused_before_anything_is_made(
    options: RunOptions, lives: LivesTable, tmp_path: Path
) -> None:
    for changed, message in (
        ({}, "already holds a run"), ({"resume": True, "dose": "-2,3"}, "other settings"),
        ({"resume": True, "episodes": 6}, "other settings"),
    ):  # fmt: skip
        assert_refuses(message, play, again(options, options.folder, **changed), Workers(1))  # type: ignore[arg-type]
    transplant = {"edit": "transplant", "donor": "self_food", "direction": None, "dose": None}
    for given, message in (
        ({"direction": "fourth"}, "no direction 'fourth'"),
        ({"further": (EditOptions("collapse", "second,second"),)}, "named twice"),
        ({"further": (EditOptions("collapse", "second,first"),)}, "directions of several layers"),
        ({"further": (EditOptions("collapse", "second,double"),)}, "are not independent"),
        ({"condition": "self_fodo < 3"}, "self_food"), ({"policy": "take"}, "has no memory"),
        ({"record": "lstm_hidden_1"}, "lstm_hidden_1"),
        ({"further": (EditOptions("erase", variable="tick,self_fod"),)}, "self_fod.*did you mean self_food"),
        ({"further": (EditOptions("erase", variable="tick", layer="lstm_cell_1"),)}, "has one LSTM layer"),
        ({"policy": "take", "further": (), **transplant}, "has no memory"),
        ({"further": (EditOptions("transplant", donor="self_fod"),)}, "did you mean self_food"),
        ({"further": (EditOptions("transplant", donor="tick"),)}, "same tick"),
        ({"embeddings": "tasks.safetensors"}, "reads no file of task embeddings"),
        ({"share": 1.0}, "no donor is left"), ({"share": 0.99}, "no donor is left"),
    ):  # fmt: skip
        other = again(options, tmp_path / "run", **{"maps_dir": tmp_path / "maps", **given})  # type: ignore[dict-item]
        assert_refuses(message, play, other, Workers(1))
        assert not any(tmp_path.iterdir()), "neither a run nor maps"


def test_directions_edited_one_by_one_equal_runs_of_their_own(options: RunOptions, tmp_path: Path) -> None:
    directions = [unit(place, UNITS, f"unit_{place}", "lstm_cell") for place in (0, 1)]
    write_directions(tmp_path / "two.safetensors", directions)
    base = {
        "edit": "collapse", "dose": None, "further": (), "directions": tmp_path / "two.safetensors", "episodes": 2,
        "record": "", "follow": 0, "max_steps": 16,
    }  # fmt: skip
    both = again(options, tmp_path / "both", direction="unit_0,unit_1", one_by_one=True, **base)
    play(both, Workers(1))
    result = read_lives(both.folder / LIVES_FILE)
    moved = {}
    for name in ("unit_0", "unit_1"):
        alone = again(options, tmp_path / name, direction=name, **base)
        play(alone, Workers(1))
        own, shared = read_lives(alone.folder / LIVES_FILE).of_arm("edit"), result.of_arm(f"edit, {name}")
        for outcome, values in own.outcomes.items():
            np.testing.assert_array_equal(shared.outcomes[outcome], values, err_msg=outcome)
        moved[name] = np.nanmean(result.of_arm(f"random direction 1, {name}").outcomes["kl_total"])
    assert moved["unit_0"] != moved["unit_1"], "each has random directions of its own"
    assert sum(line.startswith("    at once: KL") for line in report_run(both.folder, draws=99)) == 4
    assert (both.folder / "ranking.png").exists() and not (both.folder / "effects.png").exists()


def test_a_variable_that_never_varies_and_directions_of_another_size_are_refused(
    options: RunOptions, tmp_path: Path
) -> None:
    erase = {"edit": "erase", "direction": None, "dose": None, "further": (), "directions": None, "episodes": 2}
    other = again(options, tmp_path / "run", variable="self_npc_type", **erase)
    assert_refuses("self_npc_type: it has the same value in all", play, other, Workers(1))
    assert not (tmp_path / "run").exists()
    small = tmp_path / "small.safetensors"
    write_directions(small, (unit(0, 8, "first"), unit(1, 8, "second"), unit(2, 8, "third")))
    assert_refuses("8 weights", play, again(options, tmp_path / "run", directions=small), Workers(1))
