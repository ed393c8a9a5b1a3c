"""What a run knows of the dictionaries of one layer, and reports of each as rows of tables."""

import math
from dataclasses import dataclass

import numpy as np

from activation_store.sparse_dictionary import BASELINES
from analysis.sparse.fitting import Fitted
from analysis.sparse.scores import CONFIDENCE, RESAMPLES, Estimate, Units, Usage
from analysis.sparse.splicing import SplicedRun
from analysis.statistics.inference import LEVEL
from analysis.statistics.surrogate import above_floor

FOUND_AGAIN = 0.9
"""Cosine from which on two features count as the same."""


@dataclass(frozen=True, eq=False)
class Stability:
    """How features match those of the same autoencoder with another seed.

    Attributes:
        cosine: of each living feature's direction with its partner in a one-to-one matching, (alive,).
        found_again: share of living features with a partner at `FOUND_AGAIN` or more.
        chance: mean cosine of as many random directions, matched in the same way.
        floor: the cosines of two autoencoders of a Gaussian of the same covariance and autocorrelation, (their alive,).
        gaussian: mean of these.
        q: of each living feature's cosine against the floor, (alive,).
        stable: share of living features that are above the floor, q <= 0.05.
    """

    cosine: np.ndarray
    mean: Estimate
    found_again: Estimate
    chance: float
    floor: np.ndarray
    gaussian: Estimate
    q: np.ndarray
    stable: float


def stability(own: np.ndarray, others: np.ndarray, floor: np.ndarray, seed: int) -> Stability:
    """Match features one to one with those of another seed, so that the sum of their cosines is largest.

    Intervals are over features: how much other features of the same two trainings would differ, not other trainings.

    Args:
        own: directions of the living features, of length 1, (F, U).
        others: of the other autoencoder's living features, (G, U).
        floor: what `matched` gives for the living features of two autoencoders that were fitted to a Gaussian.
        seed: of the resamples and the random directions.
    """
    cosine = matched(own, others)
    random = np.random.default_rng(seed)
    drawn = [random.standard_normal(directions.shape) for directions in (own, others)]
    chance = matched(*(vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in drawn))
    q = above_floor(cosine, floor)
    return Stability(
        cosine, _over_features(cosine, random), _over_features(cosine >= FOUND_AGAIN, random), float(chance.mean()),
        floor, _over_features(floor, random), q, float((q <= LEVEL).mean()) if len(q) else float("nan"),
    )  # fmt: skip


def matched(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the cosine of each feature, (F, U), with its one-to-one partner among others, (G, U): (F,).

    It is 0 without a partner, where there are fewer others.
    """
    from scipy.optimize import linear_sum_assignment

    cosines = own @ others.T
    rows, columns = linear_sum_assignment(-cosines)
    best = np.zeros(len(own))
    best[rows] = cosines[rows, columns]
    return best


def _over_features(numbers: np.ndarray, random: np.random.Generator) -> Estimate:
    if len(numbers) < 2:
        return Estimate(float(np.mean(numbers)) if len(numbers) else float("nan"), float("nan"), float("nan"))
    drawn = [numbers[random.integers(len(numbers), size=len(numbers))].mean() for _ in range(RESAMPLES)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Estimate(float(numbers.mean()), float(low), float(high))


@dataclass(frozen=True)
class ScoreRow:
    """One dictionary on the test episodes; ends of 95% intervals are `_low` and `_high`, NaN where there is none.

    Attributes:
        k: features of a state that were wanted.
        active: features of a state.
        alive: features that are active in at least one state.
        unexplained: share of the variance that reconstructions do not explain.
        kl: divergence of the policy's actions from those on the recorded state, in nats; NaN if not spliced.
        kl_kept: share of the divergence caused by the mean state that is avoided; 1 is perfect.
        value: absolute difference of the critic's value.
        value_share: the same in its standard deviations.
    """

    name: str
    layer: str
    kind: str
    features: int
    k: int
    seed: int
    active: float
    alive: int
    unexplained: float
    unexplained_low: float
    unexplained_high: float
    kl: float = math.nan
    kl_low: float = math.nan
    kl_high: float = math.nan
    kl_kept: float = math.nan
    value: float = math.nan
    value_low: float = math.nan
    value_high: float = math.nan
    value_share: float = math.nan


@dataclass(frozen=True)
class ComparisonRow:
    """An autoencoder against a baseline of the same k, in the same records.

    Attributes:
        unexplained_less: how much less of the variance the autoencoder leaves unexplained; below 0 if more.
        kl_less: how many nats less divergence it causes; NaN if not spliced.
    """

    autoencoder: str
    baseline: str
    unexplained_less: float
    unexplained_less_low: float
    unexplained_less_high: float
    kl_less: float = math.nan
    kl_less_low: float = math.nan
    kl_less_high: float = math.nan


@dataclass(frozen=True)
class StabilityRow:
    """An autoencoder against the same with another seed.

    Attributes:
        other: name of the one with another seed.
        cosine: of a living feature with its partner, on average.
        found_again: share of living features with a partner at a cosine of 0.9 or more.
        chance: mean cosine of as many random directions.
        gaussian: mean cosine of autoencoders of a Gaussian of the same covariance and autocorrelation.
        stable: share of living features whose cosine exceeds those on the Gaussian, q <= 0.05.
    """

    autoencoder: str
    other: str
    cosine: float
    cosine_low: float
    cosine_high: float
    found_again: float
    found_again_low: float
    found_again_high: float
    chance: float
    gaussian: float
    gaussian_low: float
    gaussian_high: float
    stable: float


def are_compared(autoencoder: Fitted, other: Fitted) -> bool:
    """Tell whether a baseline is one for an autoencoder: of the same layer and k, k-means of the same width."""
    own, its = autoencoder.entry, other.entry
    same = its.kind in BASELINES and own.kind not in BASELINES and (own.layer, own.k) == (its.layer, its.k)
    return same and own.original is None and (its.kind != "k_means" or own.features == its.features)


def _ends(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


@dataclass(frozen=True, eq=False)
class Tested:
    """Everything that is known of the dictionaries of one layer.

    Attributes:
        fitted: the dictionaries, by name.
        usages: of the test states, by name.
        units: of intervals over the test states.
        spliced: what splicing in changes; None if nothing was spliced.
        stabilities: by the names of an autoencoder and its other seed.
    """

    fitted: dict[str, Fitted]
    usages: dict[str, Usage]
    units: Units
    spliced: SplicedRun | None
    stabilities: dict[tuple[str, str], Stability]

    def scores(self) -> list[ScoreRow]:
        """Return a row for each dictionary."""
        return [self._score(*both) for both in self.fitted.items()]

    def _score(self, name: str, fitted: Fitted) -> ScoreRow:
        entry, dictionary, usage, more = fitted.entry, fitted.dictionary, self.usages[name], {}
        if run := self.spliced:
            more = {**_ends("kl", run.kl(name)), **_ends("value", run.value(name))}
            more |= {"kl_kept": run.kl_kept(name).value, "value_share": run.value_share(name)}
        return ScoreRow(
            entry.name, entry.layer, entry.kind, dictionary.features, dictionary.k, entry.seed, usage.active,
            usage.alive, **_ends("unexplained", usage.unexplained), **more,
        )  # fmt: skip

    def comparisons(self) -> list[ComparisonRow]:
        """Return a row for each autoencoder and baseline."""
        return [
            self._comparison(one, other)
            for one, own in self.fitted.items()
            for other, its in self.fitted.items()
            if are_compared(own, its)
        ]

    def _comparison(self, name: str, baseline: str) -> ComparisonRow:
        own, its = self.usages[name], self.usages[baseline]
        less = self.units.mean(its.error - own.error, own.deviation)
        more = _ends("kl_less", self.spliced.kl_less(name, baseline)) if self.spliced else {}
        return ComparisonRow(name, baseline, **_ends("unexplained_less", less), **more)

    def stability(self) -> list[StabilityRow]:
        """Return a row for each pair of seeds."""
        return [
            StabilityRow(
                name, other, **_ends("cosine", stability.mean), **_ends("found_again", stability.found_again),
                chance=stability.chance, **_ends("gaussian", stability.gaussian), stable=stability.stable,
            )
            for (name, other), stability in self.stabilities.items()
        ]  # fmt: skip
