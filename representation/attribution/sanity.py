"""Does a map say something of this policy? Three checks that a meaningless map fails.

Randomised weights must change it (Adebayo et al. 2018, arXiv:1810.03292); tiles that it calls important must matter
when they are replaced (Atrey et al. 2020, arXiv:1912.05743, on why a map alone does not show that); and integrated
gradients must add up.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from agent_zoo.base import RecurrentPolicy
from representation.attribution.methods import Maps, counterfactual_materials, play
from representation.attribution.targets import Target
from representation.attribution.windows import Windows

MOST_ALIKE = 0.5
"""Rank correlation of maps with those of randomised weights above which the maps do not depend on the weights."""
COMPLETE = 0.05
"""Largest error of the sum of integrated gradients, as a share of the difference to the baseline, on the median."""
_STAGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
_RANDOM_ORDERS = 3
_RESAMPLES = 1000


@dataclass(frozen=True)
class Randomised:
    """Maps after weights were shuffled.

    Attributes:
        part: shuffled, with all parts before it.
        alike: mean rank correlation of |maps| of tiles with the unshuffled ones; NaN if a map is flat.
    """

    part: str
    alike: float


@dataclass(frozen=True, eq=False)
class Curves:
    """The target as tiles are replaced (deletion) or put back (insertion), mean over states.

    Attributes:
        share: of the tiles, (P,).
        deletion: in the map's order, most positive first, less the target of the recorded view, (P,).
        insertion: likewise, less the target of the wholly replaced view, (P,).
        random_deletion: in random order, (P,).
        random_insertion: in random order, (P,).
        advantage: area between random and map's deletion plus that between map's and random insertion, over states.
        low, high: ends of its 95% interval over samples.
    """

    share: np.ndarray
    deletion: np.ndarray
    insertion: np.ndarray
    random_deletion: np.ndarray
    random_insertion: np.ndarray
    advantage: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Sanity:
    """All checks.

    Attributes:
        randomised: weights, from the outputs inwards.
        curves: deletion and insertion of tiles.
        incomplete: median |error| of integrated gradients as a share of the difference; NaN for other methods.
    """

    randomised: tuple[Randomised, ...]
    curves: Curves
    incomplete: float

    def failures(self) -> list[str]:
        """Return a phrase for each check that failed."""
        found = []
        last = self.randomised[-1].alike
        if not np.isfinite(last) or last > MOST_ALIKE:
            found.append(f"maps with all weights shuffled are alike (rank correlation {last:.2f})")
        if not self.curves.low > 0:
            found.append("tiles that it marks matter no more than random ones")
        if np.isfinite(self.incomplete) and self.incomplete > COMPLETE:
            found.append(f"integrated gradients do not add up (median error {self.incomplete:.0%})")
        return found


def check_maps(
    policy: RecurrentPolicy, windows: Windows, target: Target, maps: Maps, sample: np.ndarray,
    again: Callable[[RecurrentPolicy], Maps], seed: int,
) -> Sanity:  # fmt: skip
    """Check the maps of some states.

    Args:
        policy: whose maps they are.
        windows: of these states.
        target: that is attributed.
        maps: of these states.
        sample: that each state belongs to, (N,), the units of the interval.
        again: computes the same maps for another policy.
        seed: of shuffled weights and random orders.
    """
    randomised = tuple(
        Randomised(part, _alike(maps.tiles, again(shuffled).tiles)) for part, shuffled in _shuffled(policy, seed)
    )
    share = (maps.error.abs() / maps.change.abs().clamp(min=1e-12)).nanmedian()
    return Sanity(
        randomised, _curves(policy, windows.last(policy), target, maps.tiles[:, -1], sample, seed), float(share)
    )


def _shuffled(policy: RecurrentPolicy, seed: int) -> Iterator[tuple[str, RecurrentPolicy]]:
    """Yield copies of a policy whose weights are shuffled within each tensor: one more part each, outputs first."""
    changed = copy.deepcopy(policy)
    encoder = changed.policy
    outputs = [encoder.action_decoder, encoder.critic]
    memory = [changed.memory] if changed.memory is not None else []
    of_outputs = {id(parameter) for module in outputs for parameter in module.parameters()}
    rest = [parameter for parameter in encoder.parameters() if id(parameter) not in of_outputs]
    stages = {
        "action heads and critic": [each for module in outputs for each in module.parameters()],
        "memory": [each for module in memory for each in module.parameters()],
        "encoder": rest,
    }
    generator = torch.Generator().manual_seed(seed)
    for name, parameters in stages.items():
        for parameter in parameters:
            order = torch.randperm(parameter.numel(), generator=generator)
            parameter.data = parameter.data.flatten()[order].view_as(parameter)
        if parameters:
            yield name, changed


def _alike(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the mean rank correlation of |maps| over states and ticks, (N, T, tiles) each; NaN if all are flat."""
    from scipy.stats import rankdata

    a, b = (rankdata(each.abs().flatten(0, 1).numpy(), axis=1) for each in (one, other))
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    size = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    known = size > 0
    return float(((a * b).sum(axis=1)[known] / size[known]).mean()) if known.any() else float("nan")


def _curves(
    policy: RecurrentPolicy, windows: Windows, target: Target, maps: torch.Tensor, sample: np.ndarray, seed: int
) -> Curves:
    """Replace tiles one after the other, in the order of a map and in random orders; windows of one tick."""
    count, tiles = maps.shape
    generator = torch.Generator().manual_seed(seed)
    own = _replaced(policy, windows, target, maps.argsort(dim=1, descending=True))
    random = [
        _replaced(policy, windows, target, torch.rand(count, tiles, generator=generator).argsort(dim=1))
        for _ in range(_RANDOM_ORDERS)
    ]
    deletion, insertion = own
    random_deletion, random_insertion = (torch.stack(each).mean(dim=0) for each in zip(*random, strict=True))
    share = np.array(_STAGES)
    gain = (random_deletion - deletion) + (insertion - random_insertion)  # (N, P)
    area = np.trapezoid(np.nan_to_num(gain.numpy()), share, axis=1)
    _, number = np.unique(sample, return_inverse=True)
    size = np.bincount(number)
    draws = np.random.default_rng([seed, 10]).multinomial(len(size), np.full(len(size), 1 / len(size)), _RESAMPLES)
    means = draws @ np.bincount(number, area) / (draws @ size)
    low, high = np.quantile(means, [0.025, 0.975])
    return Curves(
        share, _mean(deletion), _mean(insertion), _mean(random_deletion), _mean(random_insertion), float(area.mean()),
        float(low), float(high),
    )  # fmt: skip


def _mean(curves: torch.Tensor) -> np.ndarray:
    return curves.nanmean(dim=0).numpy()


def _replaced(
    policy: RecurrentPolicy, windows: Windows, target: Target, order: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the target as more tiles are replaced, and as more are put back, less that of the start: (N, P) each."""
    count, tiles = order.shape
    material = windows.observation.material
    other = counterfactual_materials(material, policy.policy.layout.materials)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(tiles).expand(count, -1))
    found = []
    for putting_back in (False, True):
        values = []
        for share in _STAGES:
            first = rank < round(share * tiles)
            changed = torch.where(first != putting_back, other, material)
            values.append(play(policy, windows, replace(windows.observation, material=changed), target))
        curve = torch.stack(values, dim=1)
        found.append(curve - curve[:, :1])
    return found[0], found[1]
