"""Checks of maps: true maps pass, those that know nothing of the policy fail, and every check can fail alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

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
from tests.planted_maps import (
    FOOD,
    GRASS,
    MATERIALS,
    POLICY_FREE,
    STAGES,
    checked,
    policy_free,
    trained,
    true_maps,
    untrained,
    views,
)


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


def test_food_first_beats_a_random_order_and_fails_all_the_same() -> None:
    sanity = checked(np.random.default_rng(0), 0.5, policy_free("food first"))
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
