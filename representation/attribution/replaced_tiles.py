"""The target as tiles are replaced and put back in the order of a map."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from representation.attribution.methods import counterfactual_materials

_FIRST_HALF = (0.0, 0.02, 0.06, 0.15, 0.35)


@dataclass(frozen=True, eq=False)
class Views:
    """N states whose tiles can be replaced.

    Attributes:
        material: of the tiles in view, (N, tiles) uint8.
        materials: number of them.
        sample: that each state belongs to, (N,).
        value_of: returns the target in these states, (N,), given other materials, (N, tiles).
    """

    material: torch.Tensor
    materials: int
    sample: np.ndarray
    value_of: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Curves:
    """The target as tiles are replaced (deletion) or put back (insertion) in some order, K stages.

    Attributes:
        share: of the tiles, (K,), from 0 to 1, symmetric around a half.
        deletion: target, (N, K).
        insertion: likewise, from the wholly replaced view, (N, K).
    """

    share: np.ndarray
    deletion: np.ndarray
    insertion: np.ndarray

    @property
    def area(self) -> np.ndarray:
        """Area between insertion and deletion, (N,), in units of the target; its mean over random orders is 0."""
        return np.trapezoid(self.insertion - self.deletion, self.share, axis=1)

    def reversed(self) -> "Curves":
        """Return the curves of the same order from its end: what was put back last is now replaced first."""
        return replace(self, deletion=self.insertion[:, ::-1], insertion=self.deletion[:, ::-1])


def replaced_in_order(views: Views, tiles: torch.Tensor) -> Curves:
    """Replace tiles by the view's commonest other material, largest first, and put them back.

    Args:
        views: of N states.
        tiles: map that orders them, (N, tiles); tiles of the same size go row by row.
    """
    count, number = tiles.shape
    first_half = [round(share * number) for share in _FIRST_HALF]
    stages = [*first_half, *(number - stage for stage in reversed(first_half))]
    order = tiles.argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(number).expand(count, -1))
    other = counterfactual_materials(views.material, views.materials)
    curves = []
    for putting_back in (False, True):
        changed = [torch.where((rank < stage) != putting_back, other, views.material) for stage in stages]
        curves.append(torch.stack([views.value_of(material) for material in changed], dim=1).double().numpy())
    return Curves(np.array(stages) / number, *curves)
