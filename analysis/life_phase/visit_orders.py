"""Visits of lives in random order, no two visits to the same state side by side: what follows what by chance.

If every tick had a random label, whatever the labels' frequencies, then all orders of a life's visits in which no state
follows itself would be equally likely. Drawing orders in which states may follow themselves, and leaving those pairs
out, is another null: it takes any labels of unequal frequency for a finding.
"""

from collections.abc import Iterator

import numpy as np

from analysis.life_phase.visits import Visits

_STEPS = 6
"""Steps from one order to the next: a visit is offered another place in about a third of them."""


def random_orders(found: Visits, orders: int, seed: int) -> Iterator[np.ndarray]:
    """Draw orders of each stretch's visits in which no state follows itself, as a reversible Markov chain visits them.

    The chain starts at the visits as they are and runs both ways, so that they lie at a random place among the orders
    drawn: then p-values that count these orders are right however slowly the chain mixes (the serial method of Besag
    and Clifford 1989, "Generalized Monte Carlo significance tests", Biometrika 76, 633-642).

    Args:
        found: V visits.
        orders: to draw.

    Yields:
        The state of each visit, (V,) int64, the same array changed each time.
    """
    rng = np.random.default_rng(seed)
    before = int(rng.integers(orders + 1))
    for count in (before, orders - before):
        chain = _Chain(found, rng)
        for _ in range(count):
            for _ in range(_STEPS):
                chain.exchange()
            chain.reverse()
            yield chain.state


class _Chain:
    """A random walk among the orders. A step back is as likely as the step was, so all orders are equally likely."""

    def __init__(self, found: Visits, rng: np.random.Generator):
        self.state = found.state.copy()
        self._rng = rng
        self._stretch = np.unique(found.stretch, return_inverse=True)[1]
        self._lengths = np.bincount(self._stretch)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._begin = self._starts[self._stretch]
        self._end = (self._starts + self._lengths - 1)[self._stretch]
        self._place = np.arange(len(self.state)) - self._begin  # in its stretch

    def exchange(self) -> None:
        """Exchange visits that lie opposite each other, wherever no state then follows itself.

        Half of each stretch's visits may move at once, about a random centre: their neighbours stay, or move with them.
        """
        centre = self._rng.integers(0, 2 * self._lengths - 1)[self._stretch]  # twice the centre's place
        half = self._rng.integers(0, 2, len(self._lengths))[self._stretch]
        opposite = self._begin + centre - self._place
        distance = np.abs(centre - 2 * self._place)
        inside = (opposite >= self._begin) & (opposite <= self._end)
        place = np.flatnonzero(inside & (distance > 0) & (distance // 2 % 2 == half))
        other = opposite[place]
        new = self.state[other]
        allowed = np.zeros(len(self.state), bool)
        allowed[place] = self._fits(place, -1, new, other) & self._fits(place, 1, new, other)
        both = allowed[place] & allowed[other]
        self.state[place[both]] = new[both]

    def _fits(self, place: np.ndarray, side: int, new: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return whether new states differ from their neighbours on one side, which must not be what they come from."""
        next_to = place + side
        at_edge = place == (self._begin if side < 0 else self._end)[place]
        return at_edge | (next_to == other) | (self.state[np.where(at_edge, place, next_to)] != new)

    def reverse(self) -> None:
        """Turn a random part of each stretch round, wherever no state then follows itself.

        Exchanges alone cannot make 1, 0, 1, 0 of 0, 1, 0, 1.
        """
        ends = self._starts + self._rng.integers(0, self._lengths, (2, len(self._lengths)))
        first, last = ends.min(axis=0), ends.max(axis=0)
        state, stop = self.state, self._starts + self._lengths - 1
        left = (first == self._starts) | (state[np.maximum(first - 1, 0)] != state[last])
        right = (last == stop) | (state[np.minimum(last + 1, len(state) - 1)] != state[first])
        turned = (left & right)[self._stretch]
        own = np.arange(len(state))
        turned &= (own >= first[self._stretch]) & (own <= last[self._stretch])
        state[turned] = state[(first + last)[self._stretch][turned] - own[turned]]
