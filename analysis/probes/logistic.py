"""Linear probes of yes-or-no targets: L2-regularised logistic regressions on standardised inputs.

For all targets and penalties at once; see `logistic_solver`.
"""

from collections.abc import Sequence

import numpy as np
import torch

from analysis.probes.logistic_solver import Basis, TrainingSet, log_losses, log_odds, solve
from analysis.probes.ridge import Directions, Fitted

PENALTIES = np.logspace(-6, 1, 8)
"""Tried for every target, in units of the curvature at its share of yeses, as the ridge regression's are of 1."""

_BLOCK = 4096
_CONSTANT = 1e-9
"""Standard deviation, relative to the magnitude, below which a column does not vary but is rounded."""


def fit_logistic(x: np.ndarray, y: np.ndarray, fold: np.ndarray, penalties: np.ndarray = PENALTIES) -> Fitted:
    """Fit and cross-validate logistic regressions; each penalty is chosen on folds that the fit is not tested on.

    For each fold, penalties are compared by their log-loss on either neighbour in a ring of folds, fitted without both.

    Args:
        x: input, (B, C) float32.
        y: targets, (B, T) float64, 0 and 1, both of them in at least three folds.
        fold: of each record, (B,) int64, at least three.
        penalties: to choose from, (P,) float64, above 0.

    Returns:
        Predictions and read-outs in log-odds.
    """
    records = _Records(x, y, fold)
    numbers = [int(each) for each in np.unique(fold)]
    losses = {each: np.zeros((len(penalties), y.shape[1])) for each in numbers}
    every = np.repeat(penalties[:, None], y.shape[1], axis=1)  # (P, T)
    for one, other in zip(numbers, numbers[1:] + numbers[:1], strict=True):
        weights = records.fit((one, other), every)
        for left_out, held_out in ((one, other), (other, one)):
            losses[left_out] += records.losses(held_out, weights)
    predicted = np.empty(y.shape)
    for each in numbers:
        best = penalties[losses[each].argmin(axis=0)][None]
        predicted[fold == each] = records.predict(each, records.fit((each,), best))
    best = penalties[np.sum(list(losses.values()), axis=0).argmin(axis=0)][None]
    return Fitted(predicted, records.in_raw_units(records.fit((), best)))


class _Records:
    """Standardised records, fold by fold and block by block, where they are computed with."""

    def __init__(self, x: np.ndarray, y: np.ndarray, fold: np.ndarray):
        rows = {int(each): np.flatnonzero(fold == each) for each in np.unique(fold)}
        blocks = {each: np.split(here, range(_BLOCK, len(here), _BLOCK)) for each, here in rows.items()}
        self.mean = x.mean(axis=0, dtype=np.float64)
        squares = [((x[block] - self.mean) ** 2).sum(axis=0) for some in blocks.values() for block in some]
        deviation = np.sqrt(np.sum(squares, axis=0) / len(x))
        varies = deviation > _CONSTANT * np.maximum(np.abs(self.mean), 1e-30)
        self.per_unit = np.divide(1, deviation, out=np.zeros_like(deviation), where=varies)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.x = {n: [self._tensor((x[b] - self.mean) * self.per_unit) for b in some] for n, some in blocks.items()}
        self.y = {n: [self._tensor(y[b]) for b in some] for n, some in blocks.items()}
        self.basis = Basis.of([block for blocks in self.x.values() for block in blocks])

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(self.device)

    def fit(self, left_out: Sequence[int], penalties: np.ndarray) -> torch.Tensor:
        """Fit all targets to the other folds, with penalties of (P, T): weights and intercepts, (C + 1, P x T)."""
        others = [each for each in self.x if each not in left_out]
        x, y = ([block for each in others for block in folds[each]] for folds in (self.x, self.y))
        target = torch.arange(penalties.shape[1], device=self.device).repeat(len(penalties))
        penalty = torch.from_numpy(penalties.ravel()).to(self.device)
        return solve(TrainingSet(x, y), self.basis, target, penalty)

    def losses(self, held_out: int, weights: torch.Tensor) -> np.ndarray:
        """Return the log-losses of the records of a fold, summed, of every penalty and target, (P, T)."""
        y = self.y[held_out]
        penalties = weights.shape[1] // y[0].shape[1]
        blocks = zip(log_odds(self.x[held_out], weights), y, strict=True)
        found = torch.stack([log_losses(odds, answers.repeat(1, penalties)) for odds, answers in blocks])
        return found.sum(dim=0).reshape(penalties, -1).cpu().numpy()

    def predict(self, held_out: int, weights: torch.Tensor) -> np.ndarray:
        """Return the log-odds of the records of a fold, (B, T) float64."""
        return torch.cat(list(log_odds(self.x[held_out], weights))).double().cpu().numpy()

    def in_raw_units(self, weights: torch.Tensor) -> Directions:
        """Return read-outs of the input as it was given."""
        weight = weights[:-1].cpu().numpy() * self.per_unit[:, None]
        return Directions(weight, weights[-1].cpu().numpy() - self.mean @ weight)
