"""Does it matter what came before? Memory of order two: whether the state before a visit tells which one follows it."""

from dataclasses import dataclass

import numpy as np
from scipy.special import entr

from activation_store.reader import Progress
from analysis.life.phases.visits import AgainstChance, Visits, spans
from analysis.statistics.inference import false_discovery
from analysis.statistics.permutation_p import counted_p

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Memory:
    """How far the state before a visit tells the state after it; (K,) each, by the state that is visited.

    Attributes:
        visits: with a state before and one after them, int64.
        explained: share of the entropy of what follows that what came before explains, 0 to 1; NaN where the same
            state always follows.
        given_age: against excursions of about the same age of a life that change places.
        any_age: against all excursions of a life that do. States whose odds change with age deviate from it, too.
    """

    visits: np.ndarray
    explained: np.ndarray
    given_age: AgainstChance
    any_age: AgainstChance


def memory_of_two(
    visit_table: Visits, states: int, permutations: int, seed: int, progress: Progress | None = None
) -> Memory:
    """Test whether what follows a visit depends on what came before it, beyond what follows its state anyway.

    What an agent does from one visit to a state to its next visit there is an excursion. If the state alone decides
    what comes next, as in a Markov chain, all orders of a life's excursions are equally likely. They keep how often
    each state follows each other one, and change which state before goes with which state after. If the chain's odds
    change with age, all orders within a span of visits still are.
    """

    def tested(span: np.ndarray, part: int) -> AgainstChance:
        excursions = _Excursions(visit_table, span, states)
        rng = np.random.default_rng(seed)
        null = np.empty((permutations, states))
        for i in range(permutations):
            null[i] = excursions.explained(rng)[1]
            if progress:
                progress((part + (i + 1) / permutations) / 2)
        varies = np.isfinite(observed) & (np.ptp(np.vstack([observed, np.nan_to_num(null)]), axis=0) > _ROUNDING)
        p = np.where(varies, counted_p(np.nan_to_num(observed), np.nan_to_num(null)), np.nan)
        return AgainstChance(null.mean(axis=0), p, false_discovery(p))

    visits, observed = _Excursions(visit_table, visit_table.stretch, states).explained(None)
    return Memory(visits, observed, tested(spans(visit_table), 0), tested(visit_table.stretch, 1))


class _Excursions:
    """The state before and after each visit, visits sorted by state and span, and how to exchange excursions."""

    def __init__(self, visit_table: Visits, span: np.ndarray, states: int):
        self.states = states
        follows = visit_table.stretch[1:] == visit_table.stretch[:-1]
        before = np.where(np.append(False, follows), np.roll(visit_table.state, 1), -1)
        after = np.where(np.append(follows, False), np.roll(visit_table.state, -1), -1)
        order = np.lexsort((span, visit_table.state))  # stable: in order of ticks
        self.middle, self.before, self.after = visit_table.state[order], before[order], after[order]
        group = self.middle * (span.max(initial=0) + 1) + span[order]
        self.ends = 1 + np.flatnonzero(group[1:] == group[:-1])  # visits that an excursion ends with
        self.group = np.unique(group[self.ends], return_inverse=True)[1]

    def explained(self, rng: np.random.Generator | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the visits that count and the share of entropy explained, (K,) each; `rng` shuffles the excursions."""
        before, after = self.before, self.after
        if rng is not None:
            drawn = self.ends[np.argsort(self.group + rng.random(len(self.group)))]
            before, after = before.copy(), after.copy()
            before[self.ends], after[self.ends - 1] = self.before[drawn], self.after[drawn - 1]
        both = (before >= 0) & (after >= 0)
        middle, before, after = self.middle[both], before[both], after[both]
        visits = np.bincount(middle, minlength=self.states)
        entropies = [self._entropy(middle, key, visits) for key in (before, after, before * self.states + after)]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (entropies[0] + entropies[1] - entropies[2]) / entropies[1]
        return visits, np.where(entropies[1] > _ROUNDING, np.maximum(share, 0.0), np.nan)

    def _entropy(self, middle: np.ndarray, key: np.ndarray, visits: np.ndarray) -> np.ndarray:
        """Return the entropy of the keys of each state's visits, in nats, (K,)."""
        pair, count = np.unique(middle * self.states**2 + key, return_counts=True)
        state = pair // self.states**2
        return np.bincount(state, entr(count / visits[state]), minlength=self.states)
