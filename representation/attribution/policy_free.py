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


class BeyondTheView:
    """What sizes of maps hold beyond what maps that know nothing of the policy explain."""

    def __init__(self, free: np.ndarray):
        """Rank the maps that know nothing of the policy, (N, tiles, F), within states."""
        self._free = _ranks(free)
        self._inverse = np.linalg.pinv(self._free, rcond=1e-9)  # (N, F, tiles)

    def left(self, tiles: np.ndarray) -> np.ndarray:
        """Rank the sizes of maps, (N, tiles), and return what a regression leaves, of length 1 each; 0 if nothing."""
        whole = _ranks(np.abs(tiles)[:, :, None])
        rest = (whole - self._free @ (self._inverse @ whole))[:, :, 0]  # (N, tiles)
        size = np.linalg.norm(rest, axis=1, keepdims=True)
        something = size > 1e-6 * np.linalg.norm(whole, axis=1)
        return np.divide(rest, size, out=np.zeros_like(rest), where=something)


def alike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the correlation of what is left of two maps, a partial rank correlation of their sizes.

    Args:
        one: what `BeyondTheView` leaves of the map under study, (N, tiles).
        other: likewise, of the one that it is compared with.

    Returns:
        (N,); 1 if nothing is left of the map under study, and 0 if nothing is left of the other alone.
    """
    return np.where(one.any(axis=1), (one * other).sum(axis=1), 1.0)


def _ranks(maps: np.ndarray) -> np.ndarray:
    """Rank tiles within states, (N, tiles, F), less the mean rank."""
    from scipy.stats import rankdata

    ranks = rankdata(maps, axis=1)
    return ranks - ranks.mean(axis=1, keepdims=True)
