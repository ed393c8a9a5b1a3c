"""Does a map say something of this policy? Checks that a map which knows nothing of the policy fails.

Tiles that it calls important must matter when they are replaced (Atrey et al. 2020, arXiv:1912.05743), and more than
tiles that stand out without any policy. Other weights must change it: those of an untrained twin, and its own, shuffled
(Adebayo et al. 2018, arXiv:1810.03292). And integrated gradients must add up.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from agent_zoo.base import RecurrentPolicy
from analysis.attribution.attributions import OverSamples
from analysis.attribution.methods import Maps, counterfactual_materials, play
from analysis.attribution.targets import Target
from analysis.attribution.windows import LifeWindows
from analysis.materials import MATERIAL_NAMES
from analysis.statistics.resampling import Estimate

FOOD = MATERIAL_NAMES.index("foilage")
_FIRST_HALF = (0.0, 0.02, 0.06, 0.15, 0.35)
TWINS = 3
"""Untrained networks whose maps are compared."""
COMPLETE = 0.05
"""Largest error of the sum of integrated gradients, as a share of the difference to the baseline, on the median."""
RANDOM, TWIN = "random order", "untrained twins"
_SHUFFLES = 2


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
    """Return the mean map of all states of other samples for each state, (N, tiles): what it says whatever the state.

    Zeros if all states are of one sample.
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


@dataclass(frozen=True, eq=False)
class Views:
    """N states whose tiles can be replaced."""

    material: torch.Tensor  # of the tiles in view, (N, tiles) uint8
    materials: int
    sample: np.ndarray  # that each state belongs to, (N,)
    # value_of: returns the target in these states, (N,), given other materials, (N, tiles)
    value_of: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Curves:
    """The target as tiles are replaced (deletion) or put back (insertion) in some order, K stages."""

    share: np.ndarray  # of the tiles, (K,), from 0 to 1, symmetric around a half
    deletion: np.ndarray  # target, (N, K)
    insertion: np.ndarray  # likewise, from the wholly replaced view, (N, K)

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


@dataclass(frozen=True)
class Check:
    """One number that must lie on one side of a limit."""

    of: str  # what the map is compared with
    value: float  # the number, a mean over states
    low: float  # low, high: ends of its 95% interval over samples; both the number itself where it has none
    high: float
    limit: float  # that the whole interval must be above or below
    above: bool  # whether it must be above

    @property
    def passed(self) -> bool:
        """Whether it is on the right side; not if it is unknown."""
        return self.low > self.limit if self.above else self.high < self.limit


@dataclass(frozen=True, eq=False)
class Sanity:
    """All checks."""

    area: Estimate  # between insertion and deletion in the map's order, with its interval
    # leads: how much larger it is than in each order that does not know the policy, or the state; above 0
    leads: tuple[Check, ...]
    # alike: correlation of the sizes of the map with those of other weights, beyond what the view alone explains:
    # untrained twins, then its own weights, shuffled from the outputs inwards, without parts that the target does not
    # read
    alike: tuple[Check, ...]
    # complete: of integrated gradients, median |error| as a share of the difference; None for other methods
    complete: Check | None
    # curves: of the map, in random order, and in the order over which the map's lead is smallest, by name
    curves: Mapping[str, Curves]

    @property
    def checks(self) -> tuple[Check, ...]:
        """All of them."""
        return (*self.leads, *self.alike, *([self.complete] if self.complete is not None else ()))

    def failures(self) -> list[str]:
        """Return a phrase for each kind of check that failed."""
        phrases = []
        if orders := [check.of for check in self.leads if not check.passed]:
            phrases.append(f"its order of tiles is not shown to beat simpler ones ({', '.join(orders)})")
        if weights := [check.of for check in self.alike if not check.passed]:
            phrases.append(f"its sizes are too much like those of other weights ({', '.join(weights)})")
        if self.complete is not None and not self.complete.passed:
            phrases.append(f"integrated gradients do not add up (median error {self.complete.value:.0%})")
        return phrases


def check_maps(
    policy: RecurrentPolicy, windows: LifeWindows, target: Target, maps_of: Callable[[RecurrentPolicy], Maps],
    sample: np.ndarray, twins: Sequence[RecurrentPolicy], seed: int,
) -> Sanity:  # fmt: skip
    """Check the maps of some states, as far as they are of the present tick's tiles.

    Args:
        sample: that each state belongs to, (N,), the units of intervals.
    """
    last = windows.last(policy)

    def value_of(material: torch.Tensor) -> torch.Tensor:
        return play(policy, last, replace(last.observation, material=material), target)

    views = Views(last.observation.material, policy.policy.layout.materials, sample, value_of)
    value = value_of(views.material)
    shuffled: dict[str, list[torch.Tensor]] = {}
    for draw in range(_SHUFFLES):
        for part, other in _shuffled(policy, seed + draw):
            if not torch.equal(play(other, last, last.observation, target), value):  # the target reads these weights
                shuffled.setdefault(part, []).append(maps_of(other)["tiles"][:, -1])
    maps = maps_of(policy)
    change, error = maps["change"], None
    if change.isfinite().any():
        error = (maps["error"].abs() / change.abs().clamp(min=1e-12)).numpy()
    of_twins = [maps_of(twin)["tiles"][:, -1] for twin in twins]
    return judged(views, maps["tiles"][:, -1], of_twins, shuffled, error, seed)


def judged(
    views: Views, tiles: torch.Tensor, twins: Sequence[torch.Tensor], shuffled: Mapping[str, Sequence[torch.Tensor]],
    error: np.ndarray | None, seed: int,
) -> Sanity:  # fmt: skip
    """Judge the maps of some states.

    Args:
        tiles: their maps, (N, tiles).
        twins: maps of untrained networks for the same states, (N, tiles) each.
        shuffled: by what was shuffled of the weights, the maps of several draws, (N, tiles) each.
        error: of integrated gradients, as a share of the difference, (N,); None for other methods.
    """
    over, free = OverSamples(views.sample, seed), policy_free_maps(views.material)
    own, others = replaced_in_order(views, tiles), _other_orders(views, tiles, free, seed)
    leads = [_check(over, name, own.area - curves.area, 0.0, above=True) for name, curves in others.items()]
    closest = min(leads, key=lambda check: check.value).of
    leads.append(_check(over, f"95% of {TWIN}", own.area - _reached_by_twins(views, twins), 0.0, above=True))
    beyond = BeyondTheView(torch.stack(list(free.values()), dim=2).numpy())
    left = beyond.left(tiles.numpy())

    def like(of: str, weights: Sequence[torch.Tensor], limit: float) -> Check:
        correlations = [alike(left, beyond.left(other.numpy())) for other in weights]
        return _check(over, of, np.mean(correlations, axis=0), limit, above=False)

    twin = like(TWIN, twins, 0.5)
    stages = [like(f"{part} shuffled", draws, (1 + twin.value) / 2) for part, draws in shuffled.items()]
    complete = None
    if error is not None:
        median = float(np.median(error))
        complete = Check("the difference to the baseline", median, median, median, COMPLETE, above=False)
    shown = {name: others[name] for name in (RANDOM, closest)}
    area = over.mean(own.area, np.ones(len(tiles)))
    return Sanity(area, tuple(leads), (twin, *stages), complete, {"the map": own, **shown})


def _other_orders(
    views: Views, tiles: torch.Tensor, free: Mapping[str, torch.Tensor], seed: int
) -> dict[str, Curves]:  # fmt: skip
    """Replace tiles in orders that know nothing of the policy or of the state, in the better direction of each."""
    random = torch.rand(tiles.shape, generator=torch.Generator().manual_seed(seed))
    orders = {**free, "mean map of the other samples": mean_of_other_samples(tiles, views.sample), RANDOM: random}
    curves = {name: replaced_in_order(views, order) for name, order in orders.items()}
    return {name: curve if curve.area.mean() >= 0 else curve.reversed() for name, curve in curves.items()}


def _reached_by_twins(views: Views, twins: Sequence[torch.Tensor]) -> float:
    """Return the area that the maps of 95% of untrained networks stay below, a prediction from K of them.

    Untrained weights are as likely as their negatives, so areas lie around 0: those of K networks foretell that of
    another by Student's t distribution with K degrees of freedom, as far as they are normal.
    """
    from scipy.stats import t

    areas = np.array([replaced_in_order(views, tiles).area.mean() for tiles in twins])
    return float(t.ppf(0.95, len(areas)) * np.sqrt((areas**2).mean()))


def _check(over: OverSamples, of: str, values: np.ndarray, limit: float, *, above: bool) -> Check:
    mean = over.mean(values, np.ones(len(values)))
    return Check(of, mean.value, mean.low, mean.high, limit, above)


def _shuffled(policy: RecurrentPolicy, seed: int) -> Iterator[tuple[str, RecurrentPolicy]]:
    """Yield copies of a policy whose weights are shuffled within each tensor: one more part each, outputs first."""
    changed = copy.deepcopy(policy)
    encoder = changed.policy
    outputs = [encoder.action_decoder, encoder.critic]
    memory = [changed.memory] if changed.memory is not None else []
    of_outputs = {id(parameter) for module in outputs for parameter in module.parameters()}
    stages = {
        "heads and critic": [parameter for module in outputs for parameter in module.parameters()],
        "heads, critic and memory": [parameter for module in memory for parameter in module.parameters()],
        "all weights": [parameter for parameter in encoder.parameters() if id(parameter) not in of_outputs],
    }
    generator = torch.Generator().manual_seed(seed)
    for name, parameters in stages.items():
        for parameter in parameters:
            order = torch.randperm(parameter.numel(), generator=generator)
            parameter.data = parameter.data.flatten()[order].view_as(parameter)
        if parameters:
            yield name, changed
