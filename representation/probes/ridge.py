"""Linear probes of numeric targets: ridge regressions on standardised inputs, for all folds and penalties at once.

All that a ridge regression needs of its records are sums of products. Those are taken once a fold; every training set
is a sum of folds, and one factor of its correlation matrix and a penalty serves all targets.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

PENALTIES = np.logspace(-6, 1, 8)
"""Tried for every target, times the number of training records: from next to none to next to nothing left."""

_CHUNK = 8192
_CONSTANT = 1e-9
"""Standard deviation, relative to the magnitude, below which a column does not vary but is rounded."""


@dataclass(frozen=True)
class Moments:
    """Sums over some records. C columns of the input, T targets.

    Attributes:
        count: of records.
        x: sums of the input, (C,).
        y: of the targets, (T,).
        xx: of products, (C, C).
        xy: (C, T).
        yy: of each target's squares, (T,).
    """

    count: float
    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    xy: np.ndarray
    yy: np.ndarray

    @staticmethod
    def of(x: np.ndarray, y: np.ndarray) -> "Moments":
        """Sum over records, (B, C) and (B, T), in double precision a chunk at a time."""
        columns, targets = x.shape[1], y.shape[1]
        xx, xy = np.zeros((columns, columns)), np.zeros((columns, targets))
        sums = np.zeros(columns)
        for start in range(0, len(x), _CHUNK):
            chunk = x[start : start + _CHUNK].astype(np.float64)
            sums += chunk.sum(axis=0)
            xx += chunk.T @ chunk
            xy += chunk.T @ y[start : start + _CHUNK]
        return Moments(len(x), sums, y.sum(axis=0), xx, xy, (y**2).sum(axis=0))

    @staticmethod
    def total(parts: "Iterable[Moments]") -> "Moments":
        """Add up the sums of several sets of records."""
        first, *others = parts
        names = ("count", "x", "y", "xx", "xy", "yy")
        sums = {name: getattr(first, name) for name in names}
        for other in others:
            sums = {name: sums[name] + getattr(other, name) for name in names}
        return Moments(**sums)


@dataclass(frozen=True)
class ReadOuts:
    """Linear read-outs: input @ weight + bias predicts each target in its own unit, or its log-odds if it is yes-or-no.

    Attributes:
        weight: (C, T) float64, a unit of the raw input each.
        bias: (T,) float64.
    """

    weight: np.ndarray
    bias: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Predict targets of records, (B, C) to (B, T) float64."""
        return x @ self.weight + self.bias


class NormalEquations:
    """Ridge regressions on one training set, ready for any penalty."""

    def __init__(self, moments: Moments):
        """Standardise the training set's input."""
        self.mean, self.target_mean = moments.x / moments.count, moments.y / moments.count
        covariance = moments.xx / moments.count - np.outer(self.mean, self.mean)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0))
        self.per_unit = standardising(self.mean, deviation)
        self.correlation = covariance * np.outer(self.per_unit, self.per_unit)
        with_targets = moments.xy / moments.count - np.outer(self.mean, self.target_mean)
        self.with_targets = with_targets * self.per_unit[:, None]  # (C, T)

    def fit(self, penalty: np.ndarray) -> ReadOuts:
        """Fit every target with its own penalty, (T,)."""
        weight = np.empty(self.with_targets.shape)
        for each in np.unique(penalty):
            theirs = penalty == each
            weight[:, theirs] = self._solve(each, self.with_targets[:, theirs]) * self.per_unit[:, None]
        return ReadOuts(weight, self.target_mean - self.mean @ weight)

    def _solve(self, penalty: float, with_targets: np.ndarray) -> np.ndarray:
        # Eight Cholesky factors, one a penalty, take a fraction of the time of one eigendecomposition.
        from scipy.linalg import cho_factor, cho_solve

        system = self.correlation.copy()
        system.flat[:: len(system) + 1] += penalty
        factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        return cho_solve(factor, with_targets, check_finite=False)

    def validation_loss(self, held_out: Moments, penalties: np.ndarray) -> np.ndarray:
        """Return the sum of squared errors on other records for every penalty and target, (P, T)."""
        found = []
        for penalty in penalties:
            fitted = self.fit(np.full(len(self.target_mean), penalty))
            w, b = fitted.weight, fitted.bias
            squares = np.einsum("ct,ct->t", w, held_out.xx @ w) + 2 * b * (held_out.x @ w) + held_out.count * b**2
            products = np.einsum("ct,ct->t", w, held_out.xy) + b * held_out.y
            found.append(squares - 2 * products + held_out.yy)
        return np.array(found)


def standardising(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return what columns of these means and deviations are multiplied by, (C,): 0 for those that do not vary."""
    varies = deviation > _CONSTANT * np.maximum(np.abs(mean), 1e-30)
    return np.divide(1, deviation, out=np.zeros_like(deviation), where=varies)


@dataclass(frozen=True)
class Penalties:
    """The penalties that were chosen for T targets.

    Attributes:
        of_fold: left-out fold -> what the others chose for its fit, (T,) each.
        overall: what all folds chose for the fit to all records, (T,).
    """

    of_fold: dict[int, np.ndarray]
    overall: np.ndarray

    def of_targets(self, targets: np.ndarray) -> "Penalties":
        """Return those of some targets, (T,) bool."""
        return Penalties({fold: chosen[targets] for fold, chosen in self.of_fold.items()}, self.overall[targets])


@dataclass(frozen=True)
class Fitted:
    """Linear probes of one input.

    Attributes:
        predicted: of records that the fit has not seen, (B, T) float64.
        read_outs: fitted to all records.
        penalties: that were chosen.
    """

    predicted: np.ndarray
    read_outs: ReadOuts
    penalties: Penalties


def fit_ridge(x: np.ndarray, y: np.ndarray, fold: np.ndarray) -> Fitted:
    """Fit and cross-validate linear probes; each penalty is chosen on folds that the fit is not tested on.

    Args:
        x: input, (B, C) float32.
        y: targets, (B, T) float64, finite.
        fold: of each record, (B,) int64, at least three.
    """
    numbers = [int(each) for each in np.unique(fold)]
    sums = {each: Moments.of(x[fold == each], y[fold == each]) for each in numbers}
    alone = {each: _without(sums, each) for each in numbers}
    outer = sum(alone[each].validation_loss(sums[each], PENALTIES) for each in numbers)
    inner = _inner_losses(sums)
    penalties = Penalties(
        {each: PENALTIES[inner[each].argmin(axis=0)] for each in numbers}, PENALTIES[np.argmin(outer, axis=0)]
    )
    predicted = np.empty(y.shape)
    for each in numbers:
        predicted[fold == each] = alone[each].fit(penalties.of_fold[each]).predict(x[fold == each])
    return Fitted(predicted, _without(sums).fit(penalties.overall), penalties)


def _without(sums: dict[int, Moments], *left_out: int) -> NormalEquations:
    return NormalEquations(Moments.total(part for each, part in sums.items() if each not in left_out))


def _inner_losses(sums: dict[int, Moments]) -> dict[int, np.ndarray]:
    """Cross-validate every penalty within the folds that are left without each fold, (P, T) each.

    What is fitted without two folds is validated on either, for the other's sake.
    """
    found = {each: np.zeros(()) for each in sums}
    for one, other in itertools.combinations(sums, 2):
        fitted = _without(sums, one, other)
        for left_out, held_out in ((one, other), (other, one)):
            found[left_out] = found[left_out] + fitted.validation_loss(sums[held_out], PENALTIES)
    return found
