"""Targets of the future on lives written down by hand, and on a really recorded dump."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from activation_store.reader import read_dump, read_metadata
from activation_store.subsample import Subsample
from analysis.features.observed import Observed
from analysis.life.endings import died
from analysis.probes.dataset import Wanted, read_probe_data
from analysis.probes.future import DEATH_WITHIN, FUTURE, HORIZONS, RESOURCES, next_record, record_in
from analysis.probes.inputs import inputs_named
from analysis.probes.targets import NOT_EVERYWHERE, TARGETS, targets_named
from tests.command import assert_refuses
from tests.hand_made_lives import STAY, HandMade, hand_made, write_hand_made
from tests.planted_lives import make_lives
from tests.recorded_probes import shared_probe_dump

NAN = float("nan")
NORTH, SOUTH, EAST, WEST = range(4)


def values(name: str, *lives: HandMade) -> np.ndarray:
    """Return a target of hand-made lives, in their order; shuffling the records must not change it."""
    result = FUTURE[name].compute(Observed(*hand_made(lives)))
    order = np.random.default_rng(3).permutation(len(result))
    np.testing.assert_array_equal(FUTURE[name].compute(Observed(*hand_made(lives, shuffle=3))), result[order])
    return result


def still(ticks: int, **changes: object) -> HandMade:
    return HandMade(row=[5] * ticks, col=[5] * ticks, **changes)  # type: ignore[arg-type]


def test_what_follows_is_of_the_same_life() -> None:
    lives = make_lives([3, 1, 4])
    assert record_in(1, lives).tolist() == [1, 2, -1, -1, 5, 6, 7, -1]
    assert record_in(2, lives).tolist() == [2, -1, -1, -1, 6, 7, -1, -1]
    happened = np.array([True, False, False, True, True, False, True, False])
    assert next_record(happened, lives).tolist() == [-1, -1, -1, -1, 6, 6, -1, -1]
    assert (next_record(np.zeros(8, bool), lives) == -1).all()


def test_displacement_is_from_here_to_there_and_never_into_the_next_life() -> None:
    lives = HandMade([10, 9, 9, 8], [20, 20, 21, 22]), HandMade([50, 51, 52], [60, 60, 60], agent=2)
    rows, cols, later = (values(name, *lives) for name in ("rows_in_2_ticks", "cols_in_2_ticks", "rows_in_20_ticks"))
    assert rows.tolist() == pytest.approx([-1, -1, NAN, NAN, 2, NAN, NAN], nan_ok=True)
    assert cols.tolist() == pytest.approx([1, 2, NAN, NAN, 0, NAN, NAN], nan_ok=True)
    assert np.isnan(later).all()


def test_the_next_direction_is_that_of_the_next_tick() -> None:
    lives = still(4, moves=[NORTH, EAST, STAY, WEST]), still(2, moves=[SOUTH, SOUTH], agent=2)
    result = {name: values(f"next_direction_is_{name}", *lives).tolist() for name in ("north", "south", "east", "none")}
    assert result["east"] == pytest.approx([1, 0, 0, NAN, 0, NAN], nan_ok=True)
    assert result["none"] == pytest.approx([0, 1, 0, NAN, 0, NAN], nan_ok=True)
    assert result["south"] == pytest.approx([0, 0, 0, NAN, 1, NAN], nan_ok=True)
    assert result["north"] == pytest.approx([0, 0, 0, NAN, 0, NAN], nan_ok=True)


def test_meals_drinks_and_harvests_that_follow() -> None:
    own = {
        "food": [90, 85, 100, 95, 90, 85],  # ate before tick 2
        "water": [90, 85, 80, 75, 100, 95],  # drank before tick 4
        "fishing_exp": [0, 0, 0, 0, 5, 5],  # fished in the same tick as drinking
    }
    life = still(6, own=own), still(3, own={"food": [9, 8, 7], "water": [9, 8, 7]}, agent=2)
    assert values("ticks_to_eating", *life).tolist() == pytest.approx([2, 1, *[NAN] * 7], nan_ok=True)
    assert values("ticks_to_drinking", *life).tolist() == pytest.approx([4, 3, 2, 1, *[NAN] * 5], nan_ok=True)
    output = {name: values(f"next_resource_is_{name}", *life).tolist() for name in RESOURCES}
    assert output["food"] == pytest.approx([1, 1, 0, 0, *[NAN] * 5], nan_ok=True)
    for name in ("water", "fish"):
        assert output[name] == pytest.approx([0, 0, 1, 1, *[NAN] * 5], nan_ok=True)
    assert output["ore"] == pytest.approx([0, 0, 0, 0, *[NAN] * 5], nan_ok=True)


def test_the_next_target_is_found_where_it_stands_now() -> None:
    npc, player = (-7, 2, 8, 4), (30, 0, 5, 6)
    others = {0: [npc], 1: [player, npc], 2: [(-7, 2, 7, 4)], 3: [player], 4: [player]}
    life = still(5, others=others, attacks={0: 0, 2: 0, 4: 0})
    # Tick 2 hits the NPC, tick 4 the player; what tick 0 hits is in nobody's future.
    assert values("next_target_is_player", life).tolist() == pytest.approx([0, 0, 1, 1, NAN], nan_ok=True)
    assert values("next_target_rows", life).tolist() == pytest.approx([3, 3, NAN, 0, NAN], nan_ok=True)
    assert values("next_target_cols", life).tolist() == pytest.approx([-1, -1, NAN, 1, NAN], nan_ok=True)


def test_death_is_known_where_the_recording_tells() -> None:
    name = f"dies_within_{DEATH_WITHIN}_ticks"
    # The last record is the moment before the tick of death: that tick and the nine before it are within ten.
    assert values(name, still(13)).tolist() == [0] * 3 + [1] * 10
    assert values(name, still(4)).tolist() == [1] * 4
    # The recording was cut off, so whether the agent outlives ten ticks is unknown near its end.
    assert values(name, still(13, done=False)).tolist() == pytest.approx([0] * 3 + [NAN] * 10, nan_ok=True)
    # At the episode's last tick everyone is done, alive or not.
    assert values(name, still(1024)).tolist() == pytest.approx([0] * 1014 + [NAN] * 10, nan_ok=True)
    both = values(name, still(12), still(11, done=False, agent=2))
    assert both.tolist() == pytest.approx([0] * 2 + [1] * 10 + [0] + [NAN] * 10, nan_ok=True)


def test_every_future_is_described_and_may_be_unknown() -> None:
    assert (len(FUTURE), len(targets_named(["action"]))) == (26, 17)  # as --help says
    assert set(FUTURE) <= set(NOT_EVERYWHERE) and targets_named(["future"]) == tuple(FUTURE.values())
    assert all("nknown" in target.definition for target in FUTURE.values())
    curves = {(target.curve, target.ticks_ahead) for target in FUTURE.values() if target.curve}
    assert {ticks for _, ticks in curves} == set(HORIZONS) and len(curves) == 2 * len(HORIZONS)


def test_the_present_action_is_known_in_every_record() -> None:
    npc = (-7, 2, 8, 4)
    life = still(3, moves=[EAST, STAY, NORTH], others={1: [npc]}, attacks={1: 0})
    seen = Observed(*hand_made([life]))
    output = {target.name: target.compute(seen).astype(float).tolist() for target in targets_named(["action"])}
    assert output["is_moving_east"] == [1, 0, 0] and output["is_moving_north"] == [0, 0, 1]
    assert output["is_attacking_npc"] == [0, 1, 0] and output["is_attacking_player"] == [0, 0, 0]
    assert output["attacked_rows"] == [0, 3, 0] and output["attacked_cols"] == [0, -1, 0]
    assert all(np.isfinite(item).all() for item in output.values())
    assert not set(output) & set(NOT_EVERYWHERE) and set(output) <= set(TARGETS)


def test_lives_with_a_missing_tick_are_refused(tmp_path: Path) -> None:
    """As in a dump that holds only some of each life's ticks: two ticks on is then not the next but one record."""
    lives = [still(6, episode=number) for number in range(3)]
    records, metadata = hand_made(lives)
    wanted = Wanted(inputs_named(["lstm_hidden"], [2]), targets_named(["future"]), (), Subsample())
    whole = write_hand_made(tmp_path / "whole", records, metadata)
    assert len(read_probe_data(whole, wanted)) == 18
    thinned = write_hand_made(tmp_path / "thinned", records.take(records.tick % 2 == 0), metadata)
    assert_refuses("has no record of the tick before 2", read_probe_data, thinned, wanted)


def test_recorded_lives_go_where_they_went(small_world, task, maps, tmp_path_factory) -> None:
    """Against a plain look-up of the same agent's later records in a dump of the real game."""
    folder = shared_probe_dump(tmp_path_factory, small_world, task, maps)
    recorded = Observed(read_dump(folder, episodes=[1]), read_metadata(folder))
    records, dead = recorded.records, died(recorded)
    key = list(zip(records.agent_id.tolist(), records.tick.tolist(), strict=True))
    place = {item: number for number, item in enumerate(key)}
    own = {name: records.columns[name].astype(float) for name in ("row", "col", "truth/food", "truth/water")}
    output = {name: target.compute(recorded) for name, target in FUTURE.items()}
    checked = moved = 0
    for number, (agent, tick) in enumerate(key):
        for axis in ("row", "col"):
            for ahead in HORIZONS:
                then = place.get((agent, tick + ahead))
                expected = NAN if then is None else own[axis][then] - own[axis][number]
                assert output[f"{axis}s_in_{ahead}_ticks"][number] == pytest.approx(expected, nan_ok=True)
                moved += bool(expected > 0)
        then = place.get((agent, tick + 1))
        for option, name in enumerate(("north", "south", "east", "west", "none")):
            expected = NAN if then is None else float(recorded.option("Move.Direction")[then] == option)
            assert output[f"next_direction_is_{name}"][number] == pytest.approx(expected, nan_ok=True)
        following = [place[agent, t] for t in range(tick + 1, tick + 70) if (agent, t) in place]
        for doing, level in (("eating", "truth/food"), ("drinking", "truth/water")):
            amounts = [own[level][number], *(own[level][item] for item in following)]
            waits = [t for t in range(1, len(amounts)) if 0 < amounts[t] >= amounts[t - 1]]
            assert output[f"ticks_to_{doing}"][number] == pytest.approx(waits[0] if waits else NAN, nan_ok=True)
            checked += bool(waits)
        life = recorded.lives.index[number]
        expected = 0.0 if len(following) >= DEATH_WITHIN else 1.0 if dead[life] else NAN
        assert output[f"dies_within_{DEATH_WITHIN}_ticks"][number] == pytest.approx(expected, nan_ok=True)
    assert moved > 50 and checked > 50 and dead.sum() > 0


def test_a_subsample_keeps_the_true_future(small_world, task, maps, tmp_path_factory) -> None:
    """Records are thinned after the future is worked out from every tick."""
    folder = shared_probe_dump(tmp_path_factory, small_world, task, maps)
    wanted = Wanted(inputs_named(["lstm_hidden"], [2]), targets_named(["future"]), (), Subsample())
    every = read_probe_data(folder, wanted)
    some = read_probe_data(folder, replace(wanted, subsample=Subsample(7, seed=2)))
    assert len(some) < len(every) / 5
    where = {item.tobytes(): number for number, item in enumerate(every.inputs["lstm_hidden"])}
    rows = [where[item.tobytes()] for item in some.inputs["lstm_hidden"]]
    np.testing.assert_array_equal(some.targets, every.targets[rows])
