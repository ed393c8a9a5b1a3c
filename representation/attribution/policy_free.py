"""Maps that know nothing of the policy: what a map has to beat before it says something of one."""

import numpy as np
import torch

from analysis.materials import MATERIAL_NAMES

FOOD = MATERIAL_NAMES.index("foilage")


def policy_free_maps(material: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return maps that follow from the view alone, by name.

    Args:
        material: of the tiles in view, a square around the agent, (N, tiles) uint8.

    Returns:
        Maps, (N, tiles) each; only the order of tiles within a state means something. "unlike the average view" is the
        size of the input without any gradient: how seldom the other states have that material at that place.
    """
    count, tiles = material.shape
    side = round(tiles**0.5)
    row, column = (torch.from_numpy(axis.ravel()).double() for axis in np.indices((side, side)))
    between = torch.hypot(row[:, None] - row, column[:, None] - column)  # (tiles, tiles)
    near = -between[tiles // 2].expand(count, -1)  # (N, tiles)
    food = material == FOOD
    far = torch.full((1, tiles), 2.0 * side, dtype=torch.float64)  # where no food is in view
    to_food = torch.stack([torch.cat([between[view], far]).amin(dim=0) for view in food])  # (N, tiles)
    planes = torch.nn.functional.one_hot(material.long(), len(MATERIAL_NAMES)).double()  # (N, tiles, materials)
    share = planes.mean(dim=0).expand_as(planes).gather(2, material.long().unsqueeze(2)).squeeze(2)
    return {
        "nearest first": near,
        "food first": near + 2.0 * side * food,
        "near food first": -to_food,
        "unlike the average view": -share,
    }


def mean_of_other_samples(tiles: torch.Tensor, sample: np.ndarray) -> torch.Tensor:
    """Return, for each state, the mean map of all states of other samples: what a map says whatever the state.

    Args:
        tiles: maps, (N, tiles).
        sample: of each state, (N,).

    Returns:
        (N, tiles); zeros if all states are of one sample.
    """
    other = torch.from_numpy(sample[:, None] != sample).to(tiles.dtype)  # (N, N)
    return other @ tiles / other.sum(dim=1, keepdim=True).clamp(min=1)


def alike_beyond(one: np.ndarray, other: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return how alike the sizes of two maps are beyond what the view alone explains, for each state.

    Both maps' sizes are ranked within a state and regressed on the ranks of maps that know nothing of the policy; what
    the regression leaves is correlated, a partial rank correlation. It is 1 if nothing is left of the first map, and 0
    if nothing is left of the second alone.

    Args:
        one: the map under study, (N, tiles).
        other: the one that it is compared with, (N, tiles).
        free: maps that know nothing of the policy, (N, tiles, F).

    Returns:
        Correlations, (N,).
    """
    ranks = _ranks(free)
    inverse = np.linalg.pinv(ranks, rcond=1e-9)  # (N, F, tiles)
    left = []
    for sizes in (np.abs(one), np.abs(other)):
        whole = _ranks(sizes[:, :, None])
        rest = (whole - ranks @ (inverse @ whole))[:, :, 0]  # (N, tiles)
        size = np.linalg.norm(rest, axis=1)
        something = size > 1e-6 * np.linalg.norm(whole[:, :, 0], axis=1)
        left.append(np.divide(rest, size[:, None], out=np.zeros_like(rest), where=something[:, None]))
    nothing = ~left[0].any(axis=1)
    return np.where(nothing, 1.0, (left[0] * left[1]).sum(axis=1))


def _ranks(maps: np.ndarray) -> np.ndarray:
    """Rank tiles within states, (N, tiles, F), less the mean rank."""
    from scipy.stats import rankdata

    ranks = rankdata(maps, axis=1)
    return ranks - ranks.mean(axis=1, keepdims=True)
