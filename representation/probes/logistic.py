"""Linear probes of yes-or-no targets: L2-regularised logistic regressions, all targets at once."""

from collections.abc import Sequence

import numpy as np
import torch

from representation.probes.logistic_solver import Basis, TrainingSet, log_odds, solve
from representation.probes.ridge import Fitted, Penalties, ReadOuts, standardising

_BLOCK = 4096


def fit_logistic(x: np.ndarray, y: np.ndarray, fold: np.ndarray, penalties: Penalties) -> Fitted:
    """Fit and cross-validate logistic regressions.

    Args:
        x: input, (B, C) float32.
        y: targets, (B, T) float64, 0 and 1, both of them in at least three folds.
        fold: of each record, (B,) int64, at least three.
        penalties: in units of the curvature p (1 - p) at each target's share p of yeses, where the ridge regression's
            are in units of its own, 1: so those that a ridge regression has chosen serve here too, and save nearly all
            of the work.

    Returns:
        Predictions and read-outs in log-odds.
    """
    records = _Records(x, y, fold)
    predicted = np.empty(y.shape)
    for each, chosen in penalties.of_fold.items():
        predicted[fold == each] = records.predict(each, records.fit((each,), chosen))
    return Fitted(predicted, records.in_raw_units(records.fit((), penalties.overall)), penalties)


class _Records:
    """Standardised records, fold by fold and block by block, where they are computed with."""

    def __init__(self, x: np.ndarray, y: np.ndarray, fold: np.ndarray):
        rows = {int(each): np.flatnonzero(fold == each) for each in np.unique(fold)}
        blocks = {each: np.split(here, range(_BLOCK, len(here), _BLOCK)) for each, here in rows.items()}
        self.mean = x.mean(axis=0, dtype=np.float64)
        squares = [((x[block] - self.mean) ** 2).sum(axis=0) for some in blocks.values() for block in some]
        deviation = np.sqrt(np.sum(squares, axis=0) / len(x))
        self.per_unit = standardising(self.mean, deviation)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.x = {n: [self._tensor((x[b] - self.mean) * self.per_unit) for b in some] for n, some in blocks.items()}
        self.y = {n: [self._tensor(y[b]) for b in some] for n, some in blocks.items()}
        self.basis = Basis.of([block for blocks in self.x.values() for block in blocks])

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(self.device)

    def fit(self, left_out: Sequence[int], penalties: np.ndarray) -> torch.Tensor:
        """Fit all targets to the other folds, with penalties of (T,): weights and intercepts, (C + 1, T)."""
        others = [each for each in self.x if each not in left_out]
        x, y = ([block for each in others for block in folds[each]] for folds in (self.x, self.y))
        target = torch.arange(len(penalties), device=self.device)
        return solve(TrainingSet(x, y), self.basis, target, torch.from_numpy(penalties).to(self.device))

    def predict(self, held_out: int, weights: torch.Tensor) -> np.ndarray:
        """Return the log-odds of the records of a fold, (B, T) float64."""
        return torch.cat(list(log_odds(self.x[held_out], weights))).double().cpu().numpy()

    def in_raw_units(self, weights: torch.Tensor) -> ReadOuts:
        """Return read-outs of the input as it was given."""
        weight = weights[:-1].cpu().numpy() * self.per_unit[:, None]
        return ReadOuts(weight, weights[-1].cpu().numpy() - self.mean @ weight)
