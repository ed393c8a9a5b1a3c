"""Differences between recorded and simulated lives that were planted are found, and none where there is none."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from agent_zoo.soft_path import soft_tick
from analysis.world_model.findings import PARTS, LifeTicks, compared, taken, value_saliency
from analysis.world_model.outcomes import Row
from analysis.world_model.policy_interface import imagined_view
from analysis.world_model.scene import VITALS
from analysis.world_model.windows import CONTEXT
from tests.agent_zoo.test_soft_path import doubled
from tests.command import assert_refuses

LIVES, LENGTH, UNITS = 120, 10, 6
RANDOM = np.random.default_rng(0)
MIXING = RANDOM.standard_normal((3, UNITS))


def planted(far: float = 0.5, shuffled: bool = False) -> LifeTicks:
    """Lives whose memory holds their vitals, in two places of the space that are far from each other.

    Args:
        far: share of the lives that are in the second place.
        shuffled: whether the memory holds the vitals of other ticks.
    """
    life = np.repeat(np.arange(LIVES), LENGTH)
    vitals = RANDOM.uniform(0, 100, (len(life), 3))
    held = RANDOM.permutation(vitals) if shuffled else vitals
    states = held @ MIXING / 100 + 0.01 * RANDOM.standard_normal((len(life), UNITS))
    place = np.zeros((len(life), 1))
    place[life < far * LIVES] = 50
    both = np.concatenate([states, np.repeat(place, 8, axis=1)], axis=1)
    return {"life": life, "lstm_cell": both, "vitals": vitals}


def by_name(result: list[Row]) -> dict[str, Row]:
    return {one["finding"]: one for one in result}


def test_lives_of_the_same_kind_have_the_same_findings() -> None:
    for one in compared(planted(), planted(), seed=1):
        assert one["difference"].low < 0.02 and one["difference"].high > -0.02
        assert one["recorded"].low <= one["recorded"].value <= one["recorded"].high and one["lives"] == LIVES // 2
        if one["finding"].startswith("score"):
            assert one["recorded"].value > 0.99 and one["simulated"].value > 0.99


def test_a_memory_that_no_longer_holds_the_vitals_is_noticed() -> None:
    result = by_name(compared(planted(), planted(shuffled=True), seed=1))
    for name in VITALS:
        score, error = result[f"score of a probe of {name}"], result[f"error of a probe of {name}"]
        assert score["recorded"].value > 0.99
        assert score["simulated"].value == pytest.approx(-1, abs=0.2)  # as two uniform numbers
        assert score["difference"].high < -1 and error["difference"].low > 20
        assert error["simulated"].value == pytest.approx(100 / 3, abs=3)


def test_spreads_are_those_of_the_lives_compared() -> None:
    narrow = planted()
    narrow["vitals"] = 50 + narrow["vitals"] / 10
    result = by_name(compared(planted(), narrow, seed=1))
    for name in VITALS:
        spread = result[f"spread of {name}"]
        assert spread["recorded"].value == pytest.approx(100 / 12**0.5, abs=2)  # of a uniform distribution
        assert spread["simulated"].value == pytest.approx(10 / 12**0.5, abs=0.2) and spread["difference"].high < -20


def test_shares_of_clusters_that_differ_are_noticed() -> None:
    """Half of the recorded lives are far away and none of the simulated ones: shares are at least half off."""
    same, other = (by_name(compared(planted(), planted(far), seed=1)) for far in (0.5, 0.0))
    name = "distance of cluster shares"
    assert other[name]["simulated"].value > 0.4 and other[name]["difference"].low > 0
    assert abs(same[name]["difference"].value) < 0.1


def test_ratios_are_of_sums_over_ticks() -> None:
    plain = planted()
    above, below = RANDOM.uniform(0, 1, (2, len(plain["life"])))
    same, half = ({**plain, "share": np.stack([one, below + 1], axis=1)} for one in (above, above / 2))
    result = by_name(compared(same, half, seed=1))["share"]
    assert result["recorded"].value == pytest.approx(1 / 3, abs=0.02)
    assert result["simulated"].value == pytest.approx(result["recorded"].value / 2)
    assert result["difference"].high < 0


def test_the_values_saliency_is_its_gradient_times_input(recorded) -> None:
    """Own row and tiles are changed a little, and the value follows the gradient."""
    model, windows = recorded.model(), recorded.windows()[0]
    there, scene = windows.at(CONTEXT)
    soft, before = scene.soft(model.network.shape.materials), windows.memory(CONTEXT - 1, there)
    around = windows.around.take(there)
    result = value_saliency(model, soft, around, before)
    shares = [one for name, one in result.items() if name.startswith("share")]
    assert len(shares) == len(PARTS) and all((one >= 0).all() for one in shares)
    assert np.sum([one[:, 0] for one in shares], axis=0) == pytest.approx(shares[0][:, 1])

    # In double precision, so that steps can be tiny: else some lead over the kink of a rectifier.
    precise = copy.deepcopy(model.policy).double()
    kind_means = model.stats.kind_means.double()
    memory = replace(before, hidden=before.hidden.double(), cell=before.cell.double())

    def value(own: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            view = imagined_view(replace(soft, own=own), kind_means, around, model.layout)
            return soft_tick(precise, doubled(view.observation), memory)[0].value.numpy()

    own, size = soft.own.double(), 1e-6
    for name, place in zip(VITALS, model.network.vitals, strict=True):
        step = torch.zeros_like(own)
        step[:, place] = size
        slope = (value(own + step) - value(own - step)) / (2 * 100 * size)  # own vitals are read in hundreds of points
        assert result[f"change of the value per point of {name}"][:, 0] == pytest.approx(slope, rel=1e-3, abs=1e-8)


def test_too_few_lives_are_refused() -> None:
    few = taken(planted(), np.arange(15 * LENGTH))
    assert_refuses("a comparison needs 16 recorded lives on test maps, and there are 15", compared, few, few, 0)
