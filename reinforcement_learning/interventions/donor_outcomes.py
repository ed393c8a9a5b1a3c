"""What only edits with donors leave: how often actions follow the donor's variable, and how usual the change is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agent_zoo.donor_rule import DonorRule
from agent_zoo.state_moments import StateMoments
from reinforcement_learning.interventions.donors import Donors

_GAIN, _WITHIN_DATA = "gain/", "within_data"
_FOLLOWS = ("follows_lower/", "follows_higher/")
_SMALLEST_GAIN = 1e-4  # of a probability; smaller ones may be rounding
_SMALLEST_CHANGE = 1e-5  # length of a change of a state; likewise
_HELD = 0.99  # share of the variance that the leading components hold


@dataclass(frozen=True, eq=False)
class DataSpan:
    """The span of the leading principal components of a layer's unedited states.

    Attributes:
        components: orthonormal, (K, units); they hold 99% of the variance.
    """

    components: np.ndarray

    @staticmethod
    def of(moments: StateMoments) -> "DataSpan":
        """Find the components."""
        values, vectors = np.linalg.eigh(moments.covariance)
        values, vectors = values[::-1], vectors[:, ::-1]
        count = 1 + int(np.searchsorted(np.cumsum(values), _HELD * values.sum()))
        return DataSpan(vectors[:, :count].T)

    def share(self, changes: np.ndarray) -> np.ndarray:
        """Return the share of each squared change that lies in the span, (B, units) -> (B,); NaN without a change."""
        wide = changes.astype(np.float64)
        whole, inside = (wide**2).sum(axis=1), ((wide @ self.components.T) ** 2).sum(axis=1)
        return np.divide(inside, whole, out=np.full(len(whole), np.nan), where=whole > _SMALLEST_CHANGE**2)


class DonorOutcomes:
    """Counts for every slot during one group of episodes.

    `follows_higher/FEATURE/HEAD/OPTION` is the share of ticks with a donor of a higher value in which the option's
    probability rises, `follows_lower/...` of ticks with a donor of a lower value in which it falls. The mean of both is
    the interchange accuracy (Geiger et al. 2021) of the hypothesis that the probability depends on the feature. It is
    expected to be 0.5 if the donor's value does not matter, even if nearly all donors are on one side. Ticks in which
    the probability does not move do not count.

    `within_data` is the share of the squared change that lies in the span of the components that hold 99% of the
    variance of unedited states. Effects of a change outside of it may come from parts of the network that are never
    active otherwise (Makelov, Lange and Nanda 2024, "Is this the subspace you are looking for?").
    """

    def __init__(self, slots: int):
        """Start to count for this number of slots."""
        self._slots = slots
        self._moved: dict[str, np.ndarray] = {}  # ticks with a lower and with a higher donor, (2, slots)
        self._followed: dict[str, np.ndarray] = {}  # those of them in which the option followed
        self._within, self._ticks = np.zeros(slots), np.zeros(slots)

    def add(self, slots: np.ndarray, numbers: Mapping[str, torch.Tensor], donors: Mapping[DonorRule, Donors]) -> None:
        """Count a tick of E edited agents.

        Args:
            slots: of the agents, (E,) int64.
            numbers: what the edit did at once, as `at_once` returns it.
            donors: of these agents.
        """
        gains = {name.removeprefix(_GAIN): each.numpy() for name, each in numbers.items() if name.startswith(_GAIN)}
        for rule, each in donors.items():
            side = np.sign(each.given - each.own)  # (E,)
            for option, gain in gains.items():
                name = f"{rule.feature}/{option}"
                counted = (np.abs(gain) > _SMALLEST_GAIN) & (side != 0)
                place = (side[counted] > 0).astype(np.int64), slots[counted]
                self._of(self._moved, name)[place] += 1
                self._of(self._followed, name)[place] += np.sign(gain[counted]) == side[counted]

    def add_within(self, slots: np.ndarray, shares: Sequence[np.ndarray]) -> None:
        """Count the share of the change of E agents that lies in the span, (E,) for each edited layer; NaN for none."""
        if not shares:
            return
        known = np.isfinite(shares)  # (layers, E)
        mean = np.where(known, shares, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        self._within[slots] += mean
        self._ticks[slots] += known.any(axis=0)

    def row(self, slot: int) -> dict[str, float]:
        """Return the outcomes of one life by name; those that do not exist for it are left out."""
        found = {}
        for name, moved in self._moved.items():
            for side, follows in enumerate(_FOLLOWS):
                if moved[side, slot]:
                    found[follows + name] = float(self._followed[name][side, slot] / moved[side, slot])
        if self._ticks[slot]:
            found[_WITHIN_DATA] = float(self._within[slot] / self._ticks[slot])
        return found

    def _of(self, counts: dict[str, np.ndarray], name: str) -> np.ndarray:
        return counts.setdefault(name, np.zeros((2, self._slots)))
