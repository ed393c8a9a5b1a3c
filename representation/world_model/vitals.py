"""Health, food and water as distributions over levels, and how a distribution over changes moves them.

A meal adds the same to the food of a hungry agent and of one that is nearly full, and an empty stomach cannot get
emptier. A network that predicts changes need not learn that for each level.
"""

import functools

import torch

from representation.world_model.scene import VITAL_LEVELS, VITAL_STEP

CHANGES = 2 * VITAL_LEVELS - 1
"""Changes in levels: -20, -19 up to 20."""
_FLOOR = 1e-4


def spread_levels(vitals: torch.Tensor) -> torch.Tensor:
    """Share each vital between the two levels nearest to it, so that their mean is the vital: (B, 3) to (B, 3, levels).

    Args:
        vitals: divided by 100.
    """
    levels = torch.arange(VITAL_LEVELS, device=vitals.device)
    return (1 - (vitals.unsqueeze(2) * 100 / VITAL_STEP - levels).abs()).clamp(min=0)


def changed_levels(before: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities of levels after a change, (B, 3, levels). No change leads beyond the scale.

    Args:
        before: probabilities of levels, (B, 3, levels).
        change: logits of changes, (B, 3, CHANGES).
    """
    paths = torch.einsum("bvc,lcm->bvlm", change.softmax(dim=2), _destinations(before.device, before.dtype))
    found = torch.einsum("bvl,bvlm->bvm", before, paths)
    return (found * (1 - VITAL_LEVELS * _FLOOR) + _FLOOR).log()


@functools.cache
def _destinations(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Return 1 where a change leads from a level to another, else 0, (levels, changes, levels)."""
    levels, changes = torch.arange(VITAL_LEVELS, device=device), torch.arange(CHANGES, device=device)
    after = (levels.unsqueeze(1) + changes - (VITAL_LEVELS - 1)).clamp(0, VITAL_LEVELS - 1)  # (levels, changes)
    return torch.nn.functional.one_hot(after, VITAL_LEVELS).to(dtype)


def expected(probabilities: torch.Tensor) -> torch.Tensor:
    """Return the mean of distributions over levels, divided by 100, (..., levels) to (...)."""
    levels = torch.arange(VITAL_LEVELS, device=probabilities.device) * (VITAL_STEP / 100)
    return probabilities @ levels


def median(probabilities: torch.Tensor) -> torch.Tensor:
    """Return the median of distributions over levels, divided by 100, (..., levels) to (...).

    A vital between two levels is shared between them, so it is the mean of the median level and those next to it.
    """
    levels = torch.arange(VITAL_LEVELS, device=probabilities.device)
    middle = (probabilities.cumsum(dim=-1) < 0.5).sum(dim=-1, keepdim=True)
    near = probabilities * ((levels - middle).abs() <= 1)
    return expected(near / near.sum(dim=-1, keepdim=True))
