"""Linear probes of yes-or-no targets: L2-regularised logistic regressions, all targets at once."""

from collections.abc import Sequence

import numpy as np
import torch

from representation.probes.logistic_solver import Basis, TrainingSet, correlation, log_odds, solve
from representation.probes.ridge import Choice, Choices, Fitted, ReadOuts, groups, standardising

_BLOCK = 4096


def fit_logistic(x: np.ndarray, y: np.ndarray, fold: np.ndarray, choices: Choices) -> Fitted:
    """Fit and cross-validate logistic regressions.

    Args:
        x: input, (B, C) float32.
        y: targets, (B, T) float64, 0 and 1, both of them in at least three folds.
        fold: of each record, (B,) int64, at least three.
        choices: of a ridge regression of the same targets. Its penalties are relative to the curvature of its loss, 1;
            here they are relative to p (1 - p), with p the fraction of positives. So they mean about the same, and
            reusing them saves most of the work.

    Returns:
        Predictions and read-outs in log-odds.
    """
    records = _Records(x, y, fold)
    predicted = np.empty(y.shape)
    for each, chosen in choices.of_fold.items():
        predicted[fold == each] = records.predict(each, records.fit((each,), chosen))
    return Fitted(predicted, records.in_raw_units(records.fit((), choices.overall)), choices)


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
        self._correlation = correlation([block for blocks in self.x.values() for block in blocks])
        self._bases: dict[bytes, Basis] = {}

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(self.device)

    def fit(self, left_out: Sequence[int], chosen: Choice) -> torch.Tensor:
        """Fit all targets to the other folds, with the chosen penalties: weights and intercepts, (C + 1, T)."""
        others = [each for each in self.x if each not in left_out]
        x, y = ([block for each in others for block in folds[each]] for folds in (self.x, self.y))
        weights = torch.empty(len(chosen.scales[0]) + 1, len(chosen.penalty), dtype=torch.float64, device=self.device)
        for scale, theirs in groups(chosen.scales):
            target = torch.from_numpy(np.flatnonzero(theirs)).to(self.device)
            penalty = torch.from_numpy(chosen.penalty[theirs]).to(self.device)
            training = TrainingSet(x, y, torch.from_numpy(scale).to(self.device))
            weights[:, target] = solve(training, self._basis(scale), target, penalty)
        return weights

    def _basis(self, scale: np.ndarray) -> Basis:
        key = scale.tobytes()
        if key not in self._bases:
            self._bases[key] = Basis.of(self._correlation, torch.from_numpy(scale).to(self.device))
        return self._bases[key]

    def predict(self, held_out: int, weights: torch.Tensor) -> np.ndarray:
        """Return the log-odds of the records of a fold, (B, T) float64."""
        return torch.cat(list(log_odds(self.x[held_out], weights))).double().cpu().numpy()

    def in_raw_units(self, weights: torch.Tensor) -> ReadOuts:
        """Return read-outs of the input as it was given."""
        weight = weights[:-1].cpu().numpy() * self.per_unit[:, None]
        return ReadOuts(weight, weights[-1].cpu().numpy() - self.mean @ weight)
