"""Dumps of an intervention run: the same records as an extraction's, with the states after the edit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nmmo.systems.item import Hat, ItemState

from activation_store.interventions import Arm
from activation_store.reader import read_dump, read_metadata
from analysis.interventions.edits.memory_edits import Clear
from analysis.interventions.edits.state_edits import steer
from analysis.interventions.play import outcomes
from analysis.interventions.play.edited_play import PlayedGroup, play_arm
from analysis.interventions.play.experiment import ArmPlan, When
from analysis.interventions.play.recordings import RecordedArms, dump_folder
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.extraction import RecordingPlan, record_group
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.recorder import Batch, Finished
from tests.driven import DRIVER, UNITS
from tests.planted_interventions import unit

LAYERS = ("lstm_hidden", "lstm_cell", "action_decoder")
GROUPS = (Group(4, (0, 1)), Group(4, (2, 3)))
TWIN = Arm("unedited", "unedited", "trained", None, "unedited")
EDIT = Arm("edit, dose -0.9", "edit", "trained", -0.9, "unedited")
NO_EDIT, UNTRAINED = replace(TWIN, name="no edit", kind="no edit"), replace(EDIT, name="untrained", policy="untrained")
ARMS = (TWIN, EDIT, NO_EDIT, UNTRAINED)
PLAN = RecordingPlan(4, None, 4, LAYERS, format="parquet")
STEERED = ArmPlan(EDIT.name, 4, When(2, 9), states=(steer(unit(DRIVER, UNITS), -0.9),), recorded=LAYERS)


def batches(pool: PolicyPool, plan: ArmPlan) -> list[Batch]:
    return [output for output in play_arm(pool, GROUPS[0], plan) if isinstance(output, Batch)]


def test_an_unedited_arm_records_what_an_extraction_does(pool: PolicyPool) -> None:
    extracted = list(record_group(pool, GROUPS[0], ("all",), (), None))
    *recorded, played = play_arm(pool, GROUPS[0], ArmPlan("unedited", 4, recorded=("all",)))
    assert isinstance(played, PlayedGroup) and len(recorded) == len(extracted) > 18
    for mine, theirs in zip(recorded, extracted, strict=True):
        if isinstance(theirs, Finished):
            assert mine == theirs
            continue
        one, other = mine.records, theirs.records
        assert one.activations.keys() == other.activations.keys() > {"encoder_output"}
        for layer, states in other.activations.items():
            np.testing.assert_array_equal(one.activations[layer], states)
        for name in ("step", "agent_id", "episode", "tick", "reward", "value", "action", "log_probability", "tile"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for name, column in other.columns.items():
            np.testing.assert_array_equal(one.columns[name], column)
        assert one.columns.keys() - other.columns.keys() == {"drawn", "edited"}
        assert not one.columns["edited"].any()


def test_recorded_states_are_those_after_the_edit(pool: PolicyPool) -> None:
    edited = 0
    for batch in batches(pool, STEERED):
        records = batch.records
        read_out = records.activations["lstm_hidden"][:, DRIVER]
        now = records.columns["edited"]
        np.testing.assert_array_equal(now, records.columns["drawn"] & (records.step >= 2) & (records.step < 9))
        np.testing.assert_allclose(read_out[now], -0.9, atol=1e-6)
        assert (abs(read_out[~now] + 0.9) > 1e-3).all()
        edited += now.sum()
    assert edited > 30


def test_ways_and_armour_of_lives_are_those_that_are_recorded(
    pool: PolicyPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = pool.start

    def start_with_hats(*where: Any) -> None:
        start(*where)
        for shared in pool.shared:
            realm = shared.world.game.realm
            for player in realm.players.values():
                hat = Hat(realm, 1)
                player.inventory.receive(hat)
                if player.ent_id % 2:
                    hat.use(player)

    monkeypatch.setattr(pool, "start", start_with_hats)
    monkeypatch.setattr(outcomes, "_ARMOUR_TICK", 5)
    *recorded, played = play_arm(pool, GROUPS[0], STEERED)
    columns = ItemState.State.attr_name_to_col
    places: dict[tuple[int, int], list[np.ndarray]] = {}
    defences: dict[tuple[int, int], float] = {}
    for records in (batch.records for batch in recorded if isinstance(batch, Batch)):
        middle = records.tile[:, records.tile.shape[1] // 2, :2].astype(float)  # the agent stands there
        items = records.inventory
        defence = items.values[:, [columns[f"{style}_defense"] for style in ("melee", "range", "mage")]].sum(axis=1)
        worn = np.bincount(items.owner, defence * (items.values[:, columns["equipped"]] == 1), len(records))
        lives = list(zip(records.episode.tolist(), records.agent_id.tolist(), strict=True))
        for life, place in zip(lives, middle, strict=True):
            places.setdefault(life, []).append(place)
        if records.step[0] == 5:
            defences |= dict(zip(lives, worn.tolist(), strict=True))
    for row in played.rows:
        path = places[row["episode"], row["agent"]]
        assert row["ticks"] == len(path) > 1
        ways = 100 * (path[-1] - path[0]) / (len(path) - 1)
        assert (row["south"], row["east"]) == pytest.approx(tuple(ways))
        assert row.get("armour") == defences.get((row["episode"], row["agent"]))
    assert np.std([row["south"] for row in played.rows]) > 1
    assert len(defences) > 10 and len(set(defences.values())) > 1


def test_an_emptied_memory_is_recorded_as_it_goes_on(pool: PolicyPool) -> None:
    """After the tick: what the policy made of an empty memory, which differs from what the twin's memory held."""
    plans = (ArmPlan("edit", 16, memories=memories, recorded=LAYERS) for memories in ((Clear(1),), ()))
    cleared, twin = (batches(pool, plan) for plan in plans)
    first, second = (item.records.activations["lstm_cell"] for item in cleared[:2])
    np.testing.assert_array_equal(first, twin[0].records.activations["lstm_cell"])  # empty at birth anyway
    assert np.abs(second - twin[1].records.activations["lstm_cell"]).max() > 1e-4


class Stop(Exception):
    """Interrupts a run."""


def record(folder: Path, contest: Contest, pool: PolicyPool, stop_after: int | None = None) -> None:
    """Play what is missing, as a run does; optionally end after this many messages."""
    reported = 0
    plans = {TWIN.name: ArmPlan(TWIN.name, 4, recorded=LAYERS), EDIT.name: STEERED}
    with RecordedArms(folder, contest, ARMS, PLAN) as dumps:
        assert [dumps.layers_of(arm) for arm in ARMS] == [LAYERS, LAYERS, (), ()]
        for arm in (TWIN, EDIT):
            for group in GROUPS:
                if dumps.hold(arm, group):
                    continue
                for output in play_arm(pool, group, plans[arm.name]):
                    reported += 1
                    if reported == stop_after:
                        raise Stop
                    if isinstance(output, Batch | Finished):
                        dumps.take(arm.name, output)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def run_folder(contest: Contest, pool: PolicyPool, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    record(folder, contest, pool)
    return folder


def test_dumps_can_be_read_and_say_what_they_are_and_are_not_made_without_layers(
    run_folder: Path, contest: Contest, tmp_path: Path
) -> None:
    for arm, is_edited in ((TWIN, False), (EDIT, True)):
        folder = dump_folder(run_folder, arm)
        metadata, records = read_metadata(folder), read_dump(folder)
        assert metadata.environment["intervention"] == {"arm": arm.name, "kind": arm.kind, "dose": arm.dose}
        assert [episode["episode"] for episode in metadata.episodes] == [0, 1, 2, 3] and metadata.lives == 4 * 16
        assert set(records.activations) == set(LAYERS)
        drawn, edited = records.column("drawn"), records.column("edited")
        assert len({*zip(records.episode[drawn].tolist(), records.agent_id[drawn].tolist(), strict=True)}) == 4 * 4
        assert edited.any() == is_edited and not edited[~drawn].any()
    assert {path.name for path in (run_folder / "dumps").iterdir()} == {"unedited", "edit_dose_-0.9"}
    with RecordedArms(tmp_path, contest, ARMS, replace(PLAN, layers=())) as dumps:
        assert dumps.folders == [] and dumps.hold(EDIT, GROUPS[0]) and dumps.layers_of(EDIT) == ()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stop_after", [26, 52])
def test_an_interrupted_recording_is_continued_to_the_same_bytes(
    run_folder: Path, contest: Contest, pool: PolicyPool, tmp_path: Path, stop_after: int
) -> None:
    with pytest.raises(Stop):
        record(tmp_path, contest, pool, stop_after)
    assert not list(tmp_path.rglob("edit*/metadata.json"))
    record(tmp_path, contest, pool)
    assert contents(tmp_path) == contents(run_folder)


def test_whole_dumps_are_left_alone(run_folder: Path, contest: Contest, pool: PolicyPool) -> None:
    before = contents(run_folder)
    record(run_folder, contest, pool, stop_after=1)  # nothing is played, so nothing stops it
    with RecordedArms(run_folder, contest, ARMS, PLAN) as dumps:
        for output in play_arm(pool, GROUPS[0], STEERED):  # as if the group's lives had been lost
            if isinstance(output, Batch | Finished):
                dumps.take(EDIT.name, output)
    assert contents(run_folder) == before
