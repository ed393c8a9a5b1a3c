"""What a run knows of the dictionaries of one layer, and reports of each as rows of tables."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from activation_store.sparse_dictionary import BASELINES
from analysis.sparse.fitting import Fitted
from analysis.sparse.scores import CONFIDENCE, RESAMPLES, Estimate, Units, Usage
from analysis.sparse.splicing import SplicedRun
from analysis.statistics.inference import LEVEL
from analysis.statistics.stability import above_floor

FOUND_AGAIN = 0.9
"""Cosine from which on two features count as the same."""


@dataclass(frozen=True, eq=False)
class FeatureStability:
    """How features match those of the same autoencoder with another seed."""

    cosine: np.ndarray  # of each living feature's direction with its partner in a one-to-one matching, (alive,)
    mean: Estimate
    found_again: Estimate  # share of living features with a partner at `FOUND_AGAIN` or more
    chance: float  # mean cosine of as many random directions, matched in the same way
    floor: np.ndarray
    """The cosines of two autoencoders of a Gaussian of the same covariance and autocorrelation, (their alive,)."""
    gaussian: Estimate  # mean of these
    q: np.ndarray  # of each living feature's cosine against the floor, (alive,)
    stable: float  # share of living features that are above the floor, q <= 0.05


def stability(own: np.ndarray, others: np.ndarray, floor: np.ndarray, seed: int) -> FeatureStability:
    """Match features one to one with those of another seed, so that the sum of their cosines is largest.

    Intervals are over features: how much other features of the same two trainings would differ, not other trainings.

    Args:
        own: directions of the living features, of length 1, (F, U).
        others: of the other autoencoder's living features, (G, U).
        floor: what `matched` gives for the living features of two autoencoders that were fitted to a Gaussian.
    """
    cosine = matched(own, others)
    random = np.random.default_rng(seed)
    drawn = [random.standard_normal(directions.shape) for directions in (own, others)]
    chance = matched(*(vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in drawn))
    q = above_floor(cosine, floor)
    return FeatureStability(
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


Row = dict[str, Any]
"""A row of a table. Ends of 95% intervals are `_low` and `_high`; numbers that are not known are NaN."""


def are_compared(autoencoder: Fitted, other: Fitted) -> bool:
    """Tell whether a baseline is one for an autoencoder: of the same layer and k, k-means of the same width."""
    own, its = autoencoder.plan, other.plan
    same = its.kind in BASELINES and own.kind not in BASELINES and (own.layer, own.k) == (its.layer, its.k)
    return same and own.original is None and (its.kind != "k_means" or own.features == its.features)


_UNKNOWN = Estimate(math.nan)


def _ends(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


@dataclass(frozen=True, eq=False)
class Tested:
    """Everything that is known of the dictionaries of one layer."""

    fitted: dict[str, Fitted]
    usages: dict[str, Usage]  # of the test states, by name
    units: Units  # of intervals over the test states
    spliced: SplicedRun | None  # what splicing in changes; None if nothing was spliced
    stabilities: dict[tuple[str, str], FeatureStability]  # by the names of an autoencoder and its other seed

    def scores(self) -> list[Row]:
        """Return a row for each dictionary on the test episodes.

        `k` is of the features of a state that were wanted, `active` of those that a state has; `alive` of features that
        are active in any state. `unexplained` is the share of the variance that reconstructions do not explain. If
        spliced, `kl` is the divergence of the policy's actions from those on the recorded state in nats, `kl_kept` the
        share of that caused by the mean state that is avoided, 1 if perfect; `value` the absolute difference of the
        critic's value, and `value_share` the same in its standard deviations.
        """
        return [self._score(*both) for both in self.fitted.items()]

    def _score(self, name: str, fitted: Fitted) -> Row:
        plan, dictionary, usage, run = fitted.plan, fitted.dictionary, self.usages[name], self.spliced
        return {
            "name": plan.name, "layer": plan.layer, "kind": plan.kind, "features": dictionary.features,
            "k": dictionary.k, "seed": plan.seed, "active": usage.active, "alive": usage.alive,
            **_ends("unexplained", usage.unexplained), **_ends("kl", run.kl(name) if run else _UNKNOWN),
            "kl_kept": run.kl_kept(name).value if run else math.nan,
            **_ends("value", run.value(name) if run else _UNKNOWN),
            "value_share": run.value_share(name) if run else math.nan,
        }  # fmt: skip

    def comparisons(self) -> list[Row]:
        """Return a row for each autoencoder and baseline of the same k: how much less error and divergence it has."""
        return [
            self._comparison(one, other)
            for one, own in self.fitted.items()
            for other, its in self.fitted.items()
            if are_compared(own, its)
        ]

    def _comparison(self, name: str, baseline: str) -> Row:
        own, its = self.usages[name], self.usages[baseline]
        less = self.units.mean(its.error - own.error, own.deviation)
        kl_less = self.spliced.kl_less(name, baseline) if self.spliced else _UNKNOWN
        names = {"autoencoder": name, "baseline": baseline}
        return {**names, **_ends("unexplained_less", less), **_ends("kl_less", kl_less)}

    def stability(self) -> list[Row]:
        """Return a row for each autoencoder and the same with another seed; columns are fields of `FeatureStability`.

        `cosine` and `gaussian` are means.
        """
        return [
            {
                "autoencoder": name, "other": other, **_ends("cosine", stability.mean),
                **_ends("found_again", stability.found_again), "chance": stability.chance,
                **_ends("gaussian", stability.gaussian), "stable": stability.stable,
            }
            for (name, other), stability in self.stabilities.items()
        ]  # fmt: skip
