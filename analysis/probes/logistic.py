"""Linear probes of yes-or-no targets: logistic regressions of many targets at once, by conjugate gradients.

Each pair of a target and its penalty is one column of a matrix of weights, so that a step of all of them is two
products with the records; scikit-learn's solvers treat one column at a time. The step goes along Polak and Ribiere's
direction, as far as one step of Newton's method in one dimension says (Minka 2003, "A comparison of numerical
optimizers for logistic regression"). Gradients are preconditioned by the curvature where nothing is known yet: p (1 -
p) times the input's correlations, plus the penalty, with p the share of yeses. One eigendecomposition serves all
columns.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch.nn.functional import softplus

from analysis.matrix_products import fast_products
from analysis.probes.inputs import Columns
from analysis.probes.ridge import (
    ALL_FOLDS,
    Choices,
    Fitted,
    ReadOuts,
    groups,
    records_by_fold,
    standardising,
)

_STEPS_AT_MOST = 200
_CLOSE_ENOUGH = 1e-5
"""Log-loss still to be gained, by the preconditioner's estimate, as a share of that of the share of yeses."""

_WORTH_DROPPING = 0.2
_SHORTER, _TIMES_SHORTER_AT_MOST = 3.0, 20
_ROUNDING = 1e-6
_TINY = 1e-30
_BLOCK = 4096


Basis = tuple[torch.Tensor, torch.Tensor]
"""Eigenvalues, (C,), and eigenvectors, (C, C), of an input's correlations, float64."""


def basis_of(correlation: torch.Tensor, scale: torch.Tensor) -> Basis:
    """Decompose correlations, (C, C), of columns that are scaled, (C,) float64 each."""
    values, vectors = torch.linalg.eigh(correlation * torch.outer(scale, scale))
    return values.clamp(min=0), vectors


def correlation(x: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the correlations of standardised records, blocks of (B, C) to (C, C) float64."""
    products = sum(((block.T @ block).double() for block in x), torch.zeros((), dtype=torch.float64))
    return products / sum(len(block) for block in x)


class TrainingSet:
    """Records to fit to, blocks of (B, C) and (B, T) float32: standardised in what is computed, and never copied."""

    def __init__(self, x: Sequence[torch.Tensor], y: Sequence[torch.Tensor], scale: torch.Tensor):
        """Take input, about centred, answers, 0 and 1, both of them for each target, and the columns' scales, (C,)."""
        self.x, self.y = x, y
        self.count = sum(len(block) for block in x)
        self.yes_share = self._mean(y)  # (T,)
        self.mean = self._mean(x)  # (C,)
        # Not from sums of squares: a column that varies in no record here would seem to, by rounding.
        deviation = self._mean((block - self.mean) ** 2 for block in x).sqrt()
        self.per_unit = torch.where(deviation > _ROUNDING, scale / deviation, 0)

    def _mean(self, blocks: Iterable[torch.Tensor]) -> torch.Tensor:
        return torch.stack([block.sum(dim=0, dtype=torch.float64) for block in blocks]).sum(dim=0) / self.count

    def in_units_of_x(self, weights: torch.Tensor) -> torch.Tensor:
        """Turn weights of the standardised input and, last, intercepts into those of x, (C + 1, K) each."""
        raw = weights[:-1] * self.per_unit[:, None]
        return torch.cat([raw, weights[-1:] - self.mean @ raw])

    def times(self, weights: torch.Tensor) -> Iterator[torch.Tensor]:
        """Weigh the standardised records, (C + 1, K) to blocks of (B, K) float32."""
        return log_odds(self.x, self.in_units_of_x(weights))

    def gradient(self, errors: Iterator[torch.Tensor]) -> torch.Tensor:
        """Return the mean product of the standardised records with blocks of (B, K), (C + 1, K) float64."""
        parts = [(x.T @ error, error.sum(dim=0, dtype=torch.float64)) for x, error in zip(self.x, errors, strict=True)]
        products = torch.stack([part.double() for part, _ in parts]).sum(dim=0)  # (C, K)
        sums = torch.stack([part for _, part in parts]).sum(dim=0)  # (K,)
        return torch.cat([(products - self.mean[:, None] * sums) * self.per_unit[:, None], sums[None]]) / self.count


def log_odds(x: Sequence[torch.Tensor], weights: torch.Tensor) -> Iterator[torch.Tensor]:
    """Weigh records, blocks of (B, C), with weights and, last, intercepts, (C + 1, K), to blocks of (B, K) float32."""
    weight, bias = weights[:-1].float(), weights[-1].float()
    return (torch.addmm(bias, block, weight) for block in x)


def solve(training: TrainingSet, basis: Basis, target: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """Minimise the mean log-loss plus penalty p (1 - p) / 2 times the sum of squares of the standardised weights.

    The penalty counts in units of the curvature p (1 - p), as it does in the ridge regression, whose curvature is 1:
    the same one means about as much for rare and for common events. A column that is not there after 200 steps is
    taken as it is.

    Args:
        training: with both answers of each target.
        basis: of the correlations of these or of about such records; the solution does not depend on it.
        target: of each column, (K,) int64.
        penalty: of each column, (K,) float64, above 0.

    Returns:
        Weights and, last, intercepts, for the input as it is in `training`: (C + 1, K) float64.
    """
    descent = _Descent(training, basis, target, penalty)
    left = torch.arange(len(target), device=target.device)
    weights = descent.weights.clone()
    for _ in range(_STEPS_AT_MOST):
        far = descent.to_gain > _CLOSE_ENOUGH * descent.entropy
        if not far.any():
            break
        if far.double().mean() < 1 - _WORTH_DROPPING:
            descent.keep(far)
            left = left[far]
        descent.step()
        weights[:, left] = descent.weights
    return training.in_units_of_x(weights)


class _Descent:
    """Where the columns that are not done yet have got to. K columns; blocks are of the training set's records."""

    def __init__(self, training: TrainingSet, basis: Basis, target: torch.Tensor, penalty: torch.Tensor):
        self.training, self.basis = training, basis
        p = training.yes_share[target]
        self.flat = p * (1 - p)  # (K,)
        self.entropy = -(p * p.log() + (1 - p) * (1 - p).log())
        self.penalty = self.flat * penalty
        self.weights = torch.zeros(len(basis[0]) + 1, len(target), dtype=torch.float64, device=p.device)
        self.weights[-1] = torch.logit(p)
        self.y = [block[:, target] for block in training.y]
        self.odds = list(training.times(self.weights))
        self.loss, self.gradient = self._evaluate()
        self.downhill = self._precondition()
        self.direction = self.downhill

    @property
    def to_gain(self) -> torch.Tensor:
        """The loss still to be gained if the curvature were what the preconditioner takes it for, (K,)."""
        return -(self.gradient * self.downhill).sum(dim=0) / 2

    def keep(self, columns: torch.Tensor) -> None:
        """Go on with some columns only, (K,) bool."""
        for name in ("flat", "entropy", "penalty", "loss"):
            setattr(self, name, getattr(self, name)[columns])
        for name in ("weights", "gradient", "downhill", "direction"):
            setattr(self, name, getattr(self, name)[:, columns])
        self.y, self.odds = ([block[:, columns] for block in blocks] for blocks in (self.y, self.odds))

    def step(self) -> None:
        """Move every column along its direction, and find the next one."""
        along = list(self.training.times(self.direction))
        slope = (self.gradient * self.direction).sum(dim=0)
        length = -slope / self._curvature(along).clamp(min=_TINY)
        gradient, power, loss = self.gradient, (2 * self.to_gain).clamp(min=_TINY), self.loss
        self._move(length, along)
        for _ in range(_TIMES_SHORTER_AT_MOST):
            worse = self.loss > loss * (1 + _ROUNDING)
            if not worse.any():
                break
            back = torch.where(worse, length - length / _SHORTER, 0)
            length = length - back
            self._move(-back, along)
        self.downhill = self._precondition()
        turn = -((self.gradient - gradient) * self.downhill).sum(dim=0) / power
        direction = self.downhill + turn.clamp(min=0) * self.direction
        uphill = (self.gradient * direction).sum(dim=0) >= 0
        self.direction = torch.where(uphill, self.downhill, direction)

    def _move(self, length: torch.Tensor, along: Sequence[torch.Tensor]) -> None:
        self.weights = self.weights + length * self.direction
        for odds, change in zip(self.odds, along, strict=True):
            odds.addcmul_(change, length.float())
        self.loss, self.gradient = self._evaluate()

    def _evaluate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loss, (K,), and gradient, (C + 1, K), where the columns are."""
        pairs = list(zip(self.odds, self.y, strict=True))
        # softplus(odds) - y odds is the same, and mere rounding where the answer is certain
        parts = [softplus(odds * (1 - 2 * y)).sum(dim=0, dtype=torch.float64) for odds, y in pairs]
        losses = torch.stack(parts).sum(dim=0) / self.training.count
        gradient = self.training.gradient(odds.sigmoid().sub_(y) for odds, y in pairs)
        gradient[:-1] += self.penalty * self.weights[:-1]
        return losses + self.penalty / 2 * (self.weights[:-1] ** 2).sum(dim=0), gradient

    def _curvature(self, along: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the second derivative along the direction, (K,)."""
        total = torch.zeros_like(self.penalty)
        for odds, change in zip(self.odds, along, strict=True):
            p = odds.sigmoid()
            total += (p * (1 - p) * change**2).sum(dim=0, dtype=torch.float64)
        return total / self.training.count + self.penalty * (self.direction[:-1] ** 2).sum(dim=0)

    def _precondition(self) -> torch.Tensor:
        """Return the steepest way down, in the preconditioner's metric, (C + 1, K)."""
        values, vectors = self.basis
        projected = vectors.T @ self.gradient[:-1] / (self.flat * values[:, None] + self.penalty)
        return -torch.cat([vectors @ projected, self.gradient[-1:] / self.flat])


@fast_products()
def fit_logistic(x: np.ndarray | Columns, y: np.ndarray, fold: np.ndarray, choices: Choices) -> Fitted:
    """Fit and cross-validate logistic regressions.

    Args:
        x: input, (B, C).
        y: targets, (B, T) float64, 0 and 1, both of them in at least three folds.
        fold: of each record, (B,) int64, at least three.
        choices: of a ridge regression of the same targets. Its penalties are relative to the curvature of its loss, 1;
            here they are relative to p (1 - p), with p the fraction of positives. So they mean about the same, and
            reusing them saves most of the work.

    Returns:
        Predictions and read-outs in log-odds.
    """
    x, rows = Columns.of(x), records_by_fold(fold)
    blocks = {number: np.split(here, range(_BLOCK, len(here), _BLOCK)) for number, here in rows.items()}
    every = np.arange(len(x))
    mean = np.concatenate([values.mean(axis=0, dtype=np.float64) for _, values in x.by_column(every)])
    squares = [((x.take(block) - mean) ** 2).sum(axis=0) for some in blocks.values() for block in some]
    per_unit = standardising(mean, np.sqrt(np.sum(squares, axis=0) / len(x)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def tensor(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(device)

    inputs = {n: [tensor((x.take(b) - mean) * per_unit) for b in some] for n, some in blocks.items()}
    answers = {n: [tensor(y[b]) for b in some] for n, some in blocks.items()}
    correlations = correlation([block for some in inputs.values() for block in some])
    bases: dict[bytes, Basis] = {}

    def fit(left_out: int) -> torch.Tensor:
        """Fit all targets to the other folds, with the chosen penalties: weights and intercepts, (C + 1, T)."""
        chosen = choices[left_out]
        others = [number for number in rows if number != left_out]
        known, says = ([block for number in others for block in folds[number]] for folds in (inputs, answers))
        weights = torch.empty(x.width + 1, len(chosen.penalty), dtype=torch.float64, device=device)
        for scale, theirs in groups(chosen.scales):
            target = torch.from_numpy(np.flatnonzero(theirs)).to(device)
            penalty, of_columns = (torch.from_numpy(array).to(device) for array in (chosen.penalty[theirs], scale))
            if (key := scale.tobytes()) not in bases:
                bases[key] = basis_of(correlations, of_columns)
            weights[:, target] = solve(TrainingSet(known, says, of_columns), bases[key], target, penalty)
        return weights

    predicted = np.empty(y.shape)
    for number in rows:
        predicted[fold == number] = torch.cat(list(log_odds(inputs[number], fit(number)))).double().cpu().numpy()
    weights = fit(ALL_FOLDS).cpu().numpy()
    weight = weights[:-1] * per_unit[:, None]
    return Fitted(predicted, ReadOuts(weight, weights[-1] - mean @ weight), choices)
