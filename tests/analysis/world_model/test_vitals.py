"""Distributions over the levels of vitals, and over their changes."""

import pytest
import torch

from analysis.world_model.network import CHANGES, changed_levels, expected, median, spread_levels
from analysis.world_model.scene import VITAL_LEVELS

CERTAIN = 30.0
"""A logit beside which others do not matter."""


def certain(*changes: int) -> torch.Tensor:
    """Logits of changes that are sure to happen, one for each vital, (1, 3, CHANGES)."""
    logits = torch.zeros(1, 3, CHANGES)
    for vital, change in enumerate(changes):
        logits[0, vital, change + VITAL_LEVELS - 1] = CERTAIN
    return logits


def test_a_vital_is_the_mean_of_its_levels() -> None:
    vitals = torch.tensor([[0.0, 0.88, 1.0], [0.5, 0.025, 0.31]])
    levels = spread_levels(vitals)
    torch.testing.assert_close(levels.sum(dim=2), torch.ones(2, 3))
    assert ((levels > 1e-6).sum(dim=2) <= 2).all()
    torch.testing.assert_close(expected(levels), vitals)


@pytest.mark.parametrize(
    ("change", "after"),
    [((-1, 0, 10), (0.45, 0.62, 1.0)), ((-20, 5, -1), (0.0, 0.87, 0.85)), ((8, -3, 2), (0.9, 0.47, 1.0))],
)  # fmt: skip
def test_a_certain_change_moves_vitals_within_the_scale(change: tuple[int, ...], after: tuple[float, ...]) -> None:
    before = spread_levels(torch.tensor([[0.5, 0.62, 0.9]]))
    found = changed_levels(before, certain(*change)).exp()
    torch.testing.assert_close(found.sum(dim=2), torch.ones(1, 3))
    torch.testing.assert_close(expected(found), torch.tensor([after]), atol=2e-3, rtol=0)


def test_changes_mix_by_their_probabilities() -> None:
    logits = certain(-1, -1, -1)
    logits[:, :, 10 + VITAL_LEVELS - 1] = CERTAIN - torch.log(torch.tensor(3.0))  # a meal in one of four ticks
    found = changed_levels(spread_levels(torch.tensor([[0.4, 0.4, 0.8]])), logits).exp()
    torch.testing.assert_close(found[0, 0, [7, 18]], torch.tensor([0.75, 0.25]), atol=2e-3, rtol=0)
    torch.testing.assert_close(found[0, 2, [15, 20]], torch.tensor([0.75, 0.25]), atol=2e-3, rtol=0)
    torch.testing.assert_close(median(found)[0], torch.tensor([0.35, 0.35, 0.75]), atol=1e-3, rtol=0)


def test_the_median_ignores_what_is_far_and_finds_what_is_between_levels() -> None:
    levels = spread_levels(torch.tensor([0.88, 0.3, 0.0]).unsqueeze(0))
    far = spread_levels(torch.tensor([0.1, 1.0, 1.0]).unsqueeze(0))
    torch.testing.assert_close(median(0.7 * levels + 0.3 * far), torch.tensor([[0.88, 0.3, 0.0]]))
