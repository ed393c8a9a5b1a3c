"""Events begin where they were planted, and what changes at them is found, with intervals over samples."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.attributions import (
    ARRAYS,
    PARTS,
    Attributions,
    OverSamples,
    joined,
    part_shares,
    summary_lines,
)
from analysis.attribution.events import around_event, event_lines, event_table, onsets, parsed_event
from tests.command import assert_refuses

SAMPLES, TICKS, BEFORE = 12, 10, 4


def test_a_condition_begins_after_enough_ticks_without_it() -> None:
    holds = np.zeros(20, bool)
    holds[[3, 4, 9, 15, 16, 18]] = True
    assert onsets(holds, 1, 1).tolist() == [3, 9, 15, 18]
    assert onsets(holds, 3, 1).tolist() == [3, 9, 15]
    assert onsets(holds, 4, 1).tolist() == [9, 15]
    assert onsets(holds, 4, 6).tolist() == [9]
    assert onsets(np.ones(5, bool), 1, 1).tolist() == []  # it does not begin at birth


def test_events_are_parsed_and_refused() -> None:
    feature, fulfils = parsed_event(" distance_to_npc<=3 ")
    assert feature.name == "distance_to_npc"
    assert fulfils(np.array([2, 3, 4])).tolist() == [True, True, False]
    for text, message in (("distance_to_npc", "--event .*must be a feature"), ("distance_to_ncp < 3", "did you mean")):
        assert_refuses(message, parsed_event, text)


def planted() -> Attributions:
    """From the event on, the target is higher by 1, an NPC is in view with +0.5, and water tiles count twice."""
    random = np.random.default_rng(0)
    count = SAMPLES * TICKS
    sample, offset = np.repeat(np.arange(SAMPLES), TICKS), np.tile(np.arange(TICKS) - BEFORE, SAMPLES)
    later = offset >= 0
    material = np.full((count, 9), 2)
    material[:, 0] = 1  # water
    tiles = np.zeros((count, 2, 9))
    tiles[:, -1, 0] = -0.1 * (1 + later)
    entities = np.zeros((count, 2, 2))
    entities[:, -1, 0] = 0.2  # a player, always
    entities[:, -1, 1] = 0.5 * later + 0.1 * ~later
    kind = np.tile([1, 2], (count, 1))
    nothing = np.zeros((count, 2, 1))
    value = 1.0 * later + random.normal(0, 0.1, count) + np.repeat(random.normal(0, 1, SAMPLES), TICKS)
    components = np.stack([0.3 * later, np.zeros(count)], axis=1)
    return Attributions(
        sample, value, material, tiles, entities, nothing, nothing, np.zeros((count, 2)), np.zeros((count, 0)),
        components, kind, ("health",), ("ic_1", "ic_2"),
    )  # fmt: skip


def test_parts_have_their_shares_in_each_tick() -> None:
    """The task has 3 of 4 two ticks ago in each sample, tiles 1 of 4 in the present; nothing else has any."""
    count, ticks = 8, 3
    tiles, task = np.zeros((count, ticks, 9)), np.zeros((count, ticks))
    tiles[:, -1, 0], task[:, 0] = -1, 3
    nothing = np.zeros((count, ticks, 1))
    maps = Attributions(
        np.repeat(np.arange(4), 2), np.zeros(count), np.zeros((count, 9), int), tiles, nothing, nothing, nothing, task,
        np.zeros((count, 2)), np.zeros((count, 0)), np.zeros((count, 1), int), ("health",),
    )  # fmt: skip
    shares = {(row["part"], row["ticks_ago"]): (row["share"], row["low"], row["high"]) for row in part_shares(maps, 1)}
    assert len(shares) == len(PARTS) * (ticks + 1)
    there = {("task", "2"): 0.75, ("task", "all"): 0.75, ("tiles", "0"): 0.25, ("tiles", "all"): 0.25}
    assert all(share == pytest.approx((there.get(key, 0),) * 3) for key, share in shares.items())
    uneven = np.arange(count)[:, None] % 3  # samples that differ have an interval around their share
    maps = replace(maps, task=task * uneven)
    (row,) = (row for row in part_shares(maps, 1) if (row["part"], row["ticks_ago"]) == ("task", "2"))
    assert row["share"] == pytest.approx(21 / 29) and row["low"] < row["share"] < row["high"]


def test_fewer_entities_in_view_at_present_than_before_can_be_compared_too() -> None:
    arrays = {name: getattr(planted(), name) for name in ARRAYS}
    before = np.pad(arrays["entities"], [(0, 0), (0, 0), (0, 3)], constant_values=0.7)
    before[:, -1, 2:] = 0
    maps = joined([arrays | {"entities": before}], ("health",), ("ic_1", "ic_2"), has_cell=False)
    maps = replace(maps, sample=planted().sample)
    assert maps.entity_kind.shape == (SAMPLES * TICKS, 5) and not maps.entity_kind[:, 2:].any()
    rows = {row.measure: row for row in around_event(maps, BEFORE, 0)}
    assert rows["attribution of an NPC in view"].difference.value == pytest.approx(0.4)


def test_a_sample_is_taken_from_among_others() -> None:
    every, chosen = planted(), planted().where(planted().sample == 1)
    np.testing.assert_array_equal(chosen.sample, np.ones(TICKS))
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(chosen, name), getattr(every, name)[TICKS : 2 * TICKS])


def test_states_without_the_target_count_nowhere() -> None:
    every = planted()
    known = np.arange(len(every)) % 3 > 0
    partly = replace(every, value=np.where(known, every.value, np.nan))
    for name in ("tiles", "entities", "components"):
        getattr(partly, name)[~known] = 0
    title, *lines = summary_lines(partly, "move", "gradients", 0)
    assert lines == summary_lines(every.where(known), "move", "gradients", 0)[1:]
    assert f"{len(every):,} states" in title and f"{(~known).sum()} of them without it" in title


def test_what_changes_at_an_event_is_found() -> None:
    result = planted()
    around = around_event(result, BEFORE, 0)
    rows = {row.measure: row for row in around}
    expected = {
        "attribution of a water tile": (-0.1, -0.2), "attribution of a player in view": (0.2, 0.2),
        "attribution of an NPC in view": (0.1, 0.5), "attribution of ic_1 of the memory": (0.0, 0.3),
        "attribution of ic_2 of the memory": (0.0, 0.0), f"|attribution| of {PARTS[0]}, sum": (0.1, 0.2),
    }  # fmt: skip
    for name, (before, after) in expected.items():
        assert rows[name].before == pytest.approx(before) and rows[name].after == pytest.approx(after), name
        assert rows[name].difference.value == pytest.approx(after - before) and rows[name].samples == SAMPLES
    target = rows["the target itself"].difference
    # Samples differ by more than the event does, but each is compared with itself.
    assert target.low < 1 < target.high and target.high - target.low < 0.3
    lines = event_lines(around, "distance_to_npc <= 3", 0.8, BEFORE, TICKS - BEFORE)
    assert "in 80% of which it does" in lines[0] and any("NPC" in line and line.endswith(" *") for line in lines)
    assert len(event_table(around).splitlines()) == len(around) + 1


def test_intervals_are_over_samples() -> None:
    random = np.random.default_rng(0)
    sample = np.repeat(np.arange(20), 50)
    values = np.repeat(random.normal(0, 1, 20), 50)  # states of a sample tell nothing new
    result = OverSamples(sample, 0).mean(values, np.ones(1000))
    assert result.value == pytest.approx(values.mean())
    assert 0.6 < result.high - result.low < 1.2
