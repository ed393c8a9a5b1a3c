"""Visits of lives in random order, no two visits to the same state side by side: what follows what by chance.

If states follow each other by their frequencies alone, whether labels are drawn at every tick anew or last for a while,
then all orders of a life's visits are equally likely that have the same first and last visit and in which no state
follows itself. Drawing orders in which states may follow themselves, and leaving those pairs out, is another null: it
takes any labels of unequal frequency for a finding. So does a null that moves the first visit where lives begin in
other states than they go on with, as at birth: where a life begins is not what follows what.
"""

from collections.abc import Iterator

import numpy as np

from analysis.life_phase.visits import Visits

_STEPS = 6
"""Steps from one order to the next: a visit is offered another place in about a third of them."""


def random_orders(found: Visits, orders: int, seed: int) -> Iterator[np.ndarray]:
    """Draw orders of each stretch's visits, its first and last in place, in which no state follows itself.

    A reversible Markov chain visits the orders. It starts at the visits as they are and runs both ways, so that they
    lie at a random place among the orders drawn: then p-values that count these orders are right however slowly the
    chain mixes (the serial method of Besag and Clifford 1989, "Generalized Monte Carlo significance tests", Biometrika
    76, 633-642).

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
    """A random walk among the orders. A step back is as likely as the step was, so all orders are equally likely.

    What moves are the inner visits of a stretch, all but its first and last.
    """

    def __init__(self, found: Visits, rng: np.random.Generator):
        self.state = found.state.copy()
        self._rng = rng
        self._stretch = np.unique(found.stretch, return_inverse=True)[1]
        lengths = np.bincount(self._stretch)
        self._inner = np.maximum(lengths - 2, 0)
        self._starts = np.cumsum(lengths) - lengths + 1  # of the inner visits
        self._begin = self._starts[self._stretch]
        self._end = (self._starts + self._inner - 1)[self._stretch]  # before the begin where there are none
        self._place = np.arange(len(self.state)) - self._begin  # among the inner visits of its stretch

    def exchange(self) -> None:
        """Exchange visits that lie opposite each other, wherever no state then follows itself.

        Half of each stretch's visits may move at once, about a random centre: their neighbours stay, or move with them.
        """
        # Twice the centre's place.
        centre = self._rng.integers(0, np.maximum(2 * self._inner - 1, 1))[self._stretch]
        half = self._rng.integers(0, 2, len(self._inner))[self._stretch]
        own, opposite = self._begin + self._place, self._begin + centre - self._place
        distance = np.abs(centre - 2 * self._place)
        inside = (np.minimum(own, opposite) >= self._begin) & (np.maximum(own, opposite) <= self._end)
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
        return (next_to == other) | (self.state[next_to] != new)

    def reverse(self) -> None:
        """Turn a random part of each stretch round, wherever no state then follows itself.

        Exchanges alone cannot make 1, 0, 1, 0 of 0, 1, 0, 1.
        """
        ends = self._starts + self._rng.integers(0, np.maximum(self._inner, 1), (2, len(self._inner)))
        first, last = ends.min(axis=0), ends.max(axis=0)
        state, final = self.state, len(self.state) - 1
        left = state[first - 1] != state[np.minimum(last, final)]
        right = state[np.minimum(last + 1, final)] != state[np.minimum(first, final)]
        turned = (left & right & (self._inner > 0))[self._stretch]
        own = np.arange(len(state))
        turned &= (own >= first[self._stretch]) & (own <= last[self._stretch])
        state[turned] = state[(first + last)[self._stretch][turned] - own[turned]]
