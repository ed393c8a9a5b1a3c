"""What changes at planted events is found, and checks of maps: true ones pass, those that know nothing fail."""

from dataclasses import replace

import numpy as np
import pytest
import torch

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
from analysis.attribution.saliency_run import sanity_lines
from analysis.attribution.sanity import (
    BeyondTheView,
    Check,
    Views,
    alike,
    judged,
    mean_of_other_samples,
    policy_free_maps,
    replaced_in_order,
)
from tests.command import assert_refuses
from tests.planted_maps import (
    FOOD,
    GRASS,
    MATERIALS,
    POLICY_FREE,
    STAGES,
    checked,
    trained,
    true_maps,
    untrained,
    views,
)

SAMPLES, TICKS, BEFORE = 12, 10, 4


def test_a_condition_begins_after_enough_ticks_without_it() -> None:
    holds = np.zeros(20, bool)
    holds[[3, 4, 9, 15, 16, 18]] = True
    assert onsets(holds, 1, 1).tolist() == [3, 9, 15, 18]
    assert onsets(holds, 3, 1).tolist() == [3, 9, 15]
    assert onsets(holds, 4, 1).tolist() == [9, 15]
    assert onsets(holds, 4, 6).tolist() == [9]
    assert onsets(np.ones(5, bool), 1, 1).tolist() == []  # it does not begin at birth
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


def test_a_sample_is_taken_and_states_without_the_target_count_nowhere() -> None:
    every, chosen = planted(), planted().where(planted().sample == 1)
    np.testing.assert_array_equal(chosen.sample, np.ones(TICKS))
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(chosen, name), getattr(every, name)[TICKS : 2 * TICKS])
    every = planted()
    known = np.arange(len(every)) % 3 > 0
    partly = replace(every, value=np.where(known, every.value, np.nan))
    for name in ("tiles", "entities", "components"):
        getattr(partly, name)[~known] = 0
    title, *lines = summary_lines(partly, "move", "gradients", 0)
    assert lines == summary_lines(every.where(known), "move", "gradients", 0)[1:]
    assert f"{len(every):,} states" in title and f"{(~known).sum()} of them without it" in title


def test_what_changes_at_an_event_is_found_with_intervals_over_samples() -> None:
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
    random = np.random.default_rng(0)
    sample = np.repeat(np.arange(20), 50)
    values = np.repeat(random.normal(0, 1, 20), 50)  # states of a sample tell nothing new
    alike = OverSamples(sample, 0).mean(values, np.ones(1000))
    assert alike.value == pytest.approx(values.mean()) and 0.6 < alike.high - alike.low < 1.2


@pytest.mark.parametrize("own", [0.25, 1.0])
def test_a_true_map_passes(own: float) -> None:
    sanity = checked(np.random.default_rng(0), own, true_maps)
    assert sanity.failures() == [] and all(check.passed for check in sanity.checks)
    assert sanity_lines(sanity)[0] == "Sanity checks: all passed"


@pytest.mark.parametrize("name", POLICY_FREE)
def test_a_map_that_knows_nothing_of_the_policy_fails(name: str) -> None:
    """Most of these beat a random order, which was enough before."""
    rng = np.random.default_rng(0)
    sanity = checked(rng, 0.5, POLICY_FREE[name](rng))
    assert any("is not shown to beat simpler ones" in phrase for phrase in sanity.failures())
    first, *others = sanity_lines(sanity)
    assert "failed: its order" in first and not any("all passed" in line for line in (first, *others))
    if name == "food first":
        leads = {check.of: check for check in sanity.leads}
        assert leads["random order"].passed and not leads["food first"].passed
        assert all(check.value == 1 and not check.passed for check in sanity.alike)


@pytest.mark.parametrize("same", ["untrained twins", *(f"{stage} shuffled" for stage in STAGES)])
def test_every_other_network_can_fail_the_map_alone(same: str) -> None:
    rng = np.random.default_rng(1)
    network, material = trained(rng, 0.5), views(rng, 12, 3)
    seen = Views(material, MATERIALS, np.repeat(np.arange(12), 3), network.value)
    own = network.true_map(material)

    def other(name: str) -> torch.Tensor:  # the sizes stay and the signs turn: the map is of the same tiles
        return -own if name in same else untrained(rng).true_map(material)

    shuffled = {stage: [other(stage)] for stage in STAGES}
    sanity = judged(seen, own, [other("untrained twins")], shuffled, None, 0)
    failed = [check.of for check in sanity.alike if not check.passed]
    assert failed == [same] and same in "".join(sanity.failures())
    assert f"FAILED {same}: 1.00 (1.00 to 1.00); must be below" in "\n".join(sanity_lines(sanity))


def test_gradients_that_do_not_add_up_fail_and_so_does_what_is_unknown() -> None:
    rng = np.random.default_rng(2)
    network, material = trained(rng, 1.0), views(rng, 8, 2)
    seen = Views(material, MATERIALS, np.repeat(np.arange(8), 2), network.value)
    others = [untrained(rng).true_map(material)]
    for error, says in ((0.01, []), (0.2, ["integrated gradients do not add up (median error 20%)"])):
        sanity = judged(seen, network.true_map(material), others, {"all": others}, np.full(16, error), 0)
        assert sanity.failures() == says
    alone = replace(seen, sample=np.zeros(16, int))  # one sample: no interval, so nothing is known
    assert not any(check.passed for check in judged(alone, network.true_map(material), others, {}, None, 0).checks)
    assert not Check("it", np.nan, np.nan, np.nan, 0.5, above=False).passed


def test_an_order_from_its_end_puts_back_what_it_replaced() -> None:
    rng = np.random.default_rng(3)
    network, material = trained(rng, 1.0), views(rng, 4, 2)
    seen = Views(material, MATERIALS, np.repeat(np.arange(4), 2), network.value)
    tiles = torch.randn(8, 225, generator=torch.Generator().manual_seed(0))
    one, other = replaced_in_order(seen, tiles).reversed(), replaced_in_order(seen, -tiles)
    np.testing.assert_allclose(one.deletion, other.deletion)
    np.testing.assert_allclose(one.insertion, other.insertion)
    np.testing.assert_allclose(one.area, -replaced_in_order(seen, tiles).area)
    np.testing.assert_allclose(one.deletion[:, 0], network.value(material).numpy())


def test_policy_free_maps_are_what_their_names_say() -> None:
    material = torch.full((2, 25), GRASS, dtype=torch.uint8)
    material[0, 24] = FOOD
    maps = policy_free_maps(material)
    assert maps["nearest first"][0].argmax() == 12 and maps["food first"][0].argmax() == 24
    assert maps["food first"][1].argmax() == 12 and len(maps["near food first"][1].unique()) == 1
    assert maps["near food first"][0, 24] == 0 and maps["near food first"][0, 23] == -1
    assert maps["unlike the average view"][0, 24] == -0.5 and maps["unlike the average view"][0, 0] == -1
    means = mean_of_other_samples(torch.tensor([[1.0], [3.0], [5.0]]), np.array([0, 0, 1]))
    assert means.ravel().tolist() == [5.0, 5.0, 2.0]


def test_what_the_view_explains_is_no_likeness() -> None:
    rng = np.random.default_rng(4)
    free = rng.normal(size=(300, 100, 1))
    one, other = (np.exp(0.5 * (free[:, :, 0] + 0.3 * rng.normal(size=(300, 100)))) for _ in range(2))
    raw, beyond = BeyondTheView(np.zeros((300, 100, 1))), BeyondTheView(free)
    assert alike(raw.left(one), raw.left(other)).mean() > 0.8
    left = beyond.left(one)
    assert abs(alike(left, beyond.left(other)).mean()) < 0.2
    assert alike(left, beyond.left(-one)) == pytest.approx(np.ones(300))  # sizes, whatever the sign
    nothing = beyond.left(np.zeros_like(one))
    assert (alike(left, nothing) == 0).all() and (alike(nothing, left) == 1).all()
    assert not beyond.left(free[:, :, 0] - free.min()).any()
