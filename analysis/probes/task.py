"""How the probes of one dump are fitted to an input, or to a baseline and a memory side by side, and scored.

Worlds are dealt out to folds. Variables that are taken as known, such as the tick, become columns that probes can read.
A control task (Hewitt and Liang 2019, "Designing and interpreting probes with control tasks") has the rhythm and range
of a life but belongs to another moment of it: what a probe can learn of it tells how much of a score is the probe's own
doing. Shifting a target around within each life keeps its autocorrelation and all that is true of the life as a whole;
what is left is how a state goes with its own moment.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.lives import Lives
from analysis.probes.dataset import ProbeData
from analysis.probes.inputs import Columns
from analysis.probes.ridge import Fitted, ReadOuts, fit_ridge, fit_ridge_beside
from analysis.probes.scores import Losses, average_precision, losses

_KNOTS = 8
SCALE = 30.0
"""What these columns are scaled by beside a baseline: their penalty is 900 times smaller, so they are used in full.

Otherwise a wide baseline, which needs a large penalty, would drown them, and the memory would get the credit.
"""
_LEAST_SHIFT, _LARGEST_SHIFT = 0.25, 0.75
"""Shares of a life; a shift by little would leave a slow target as it was."""


def smooth_basis(given: np.ndarray) -> np.ndarray:
    """Expand variables so that a linear probe of them can bend: cubic splines, (B, G) to (B, columns) float32.

    A variable of few values gets a column for each of them instead.
    """
    from sklearn.preprocessing import OneHotEncoder, SplineTransformer

    blocks = [np.empty((len(given), 0))]
    for column in given.T[:, :, None]:
        few = len(np.unique(column)) <= _KNOTS
        basis = OneHotEncoder(sparse_output=False) if few else SplineTransformer(_KNOTS, knots="quantile")
        blocks.append(basis.fit_transform(column))
    return np.concatenate(blocks, axis=1).astype(np.float32)


def shifted_within_lives(values: np.ndarray, lives: Lives, seed: int) -> np.ndarray:
    """Shift each life's values around in a circle, each life by its own share: (B, T) to (B, T)."""
    shares = np.random.default_rng(seed).uniform(_LEAST_SHIFT, _LARGEST_SHIFT, len(lives))
    shift = np.round(shares * lives.lengths).astype(np.int64)
    shift = np.clip(shift, np.minimum(1, lives.lengths - 1), None)  # a life of two is shifted by one, of one by none
    start, length = (np.repeat(array, lives.lengths) for array in (lives.starts, lives.lengths))
    source = start + (np.arange(len(values)) - start + np.repeat(shift, lives.lengths)) % length
    shifted = np.empty_like(values)
    shifted[lives.order] = values[lives.order][source]
    return shifted


class Task:
    """What is the same for all inputs of a dump: targets, controls, given variables, and how records are split."""

    def __init__(self, data: ProbeData, fold: np.ndarray, yes_or_no: np.ndarray, usable: np.ndarray, seed: int):
        """Take the folds of records, (B,), and which targets are yes-or-no, and usable, (T,) bool each."""
        self.data, self.fold, self.yes_or_no, self.usable, self.seed = data, fold, yes_or_no, usable, seed
        self.given = smooth_basis(data.given)  # (B, G)
        self.alike = [
            (rows, some) for rows, columns in alike(np.isfinite(data.targets)) if len(some := columns[usable[columns]])
        ]
        self.controls = np.full(data.targets.shape, np.nan)
        """Targets shifted within lives; of one that does not apply everywhere, among the records that it applies to."""
        for rows, columns in self.alike:
            here = np.ix_(rows, columns)
            self.controls[here] = shifted_within_lives(data.targets[here], data.lives.of_records(rows), seed)

    def input(self, name: str, known: bool = False) -> tuple[Columns, np.ndarray]:
        """Return an input, (B, C), and the scales of its columns to choose from, (K, C); known: with those given."""
        x = Columns.of(self.data.inputs[name])
        bands = self.data.bands.get(name, np.ones((1, x.width)))
        if not known:
            return x, bands
        scales = np.full((len(bands), self.given.shape[1]), SCALE)
        return x.beside(self.given), np.concatenate([bands, scales], axis=1)

    def linear(
        self, everywhere: Columns, bands: np.ndarray, with_control: bool = False
    ) -> tuple[np.ndarray, np.ndarray, ReadOuts]:
        """Fit and cross-validate linear probes of an input: ridge or, for yes-or-no targets, logistic regressions.

        Returns:
            What probes said of records that they were not fitted to: of targets, in their units, of yes-or-no targets
            log-odds; and of their control tasks, which is NaN unless asked for. (B, T) each, NaN where not applicable.
            And the read-outs, fitted to all records.
        """
        targets = self.data.targets
        real, control = np.full((2, *targets.shape), np.nan)
        weight, bias = np.full((everywhere.width, targets.shape[1]), np.nan), np.full(targets.shape[1], np.nan)
        for rows, columns in self.alike:
            here, count = np.ix_(rows, columns), len(columns)
            y = np.concatenate([targets[here], self.controls[here][:, : count * with_control]], axis=1)
            ranked = np.tile(self.yes_or_no[columns], 1 + with_control)
            x, fold = replace(everywhere, rows=np.flatnonzero(rows)), self.fold[rows]
            fitted = classified(x, y, fold, ranked, fit_ridge(x, y, fold, bands))
            real[here] = fitted.predicted[:, :count]
            if with_control:
                control[here] = fitted.predicted[:, count:]
            weight[:, columns] = fitted.read_outs.weight[:, :count]
            bias[columns] = fitted.read_outs.bias[:count]
        return real, control, ReadOuts(weight, bias)

    def linear_beside(self, baseline: Columns, scale: np.ndarray, memories: Sequence[str]) -> dict[str, np.ndarray]:
        """Fit and cross-validate linear probes of a baseline and a memory; return each memory's predictions, (B, T).

        Scales are of the baseline's columns, (C,).
        """
        targets = self.data.targets
        real = {name: np.full(targets.shape, np.nan) for name in memories}
        others = {name: self.data.inputs[name] for name in memories}
        for rows, columns in self.alike:
            x = replace(baseline, rows=np.flatnonzero(rows))
            here, ranked, fold = np.ix_(rows, columns), self.yes_or_no[columns], self.fold[rows]
            for name, fitted in fit_ridge_beside(x, others, targets[here], fold, scale).items():
                result = classified(x.beside(others[name]), targets[here], fold, ranked, fitted)
                real[name][here] = result.predicted
        return real

    def networks(self, x: Columns, y: np.ndarray) -> np.ndarray:
        """Train and cross-validate networks; return predictions of targets or of their controls, (B, T)."""
        from analysis.probes.mlp import fit_mlp

        predicted, columns = np.full(y.shape, np.nan), self.usable
        if columns.any():
            predicted[:, columns] = fit_mlp(x, y[:, columns], self.fold, self.yes_or_no[columns], self.seed)
        return predicted

    def losses(self, predicted: np.ndarray, y: np.ndarray) -> Losses:
        """Score predictions of targets or of their controls, (B, T) each."""
        data = self.data
        total = np.zeros((2, data.worlds, y.shape[1]))
        for rows, columns in self.alike:
            here = np.ix_(rows, columns)
            mean = mean_of_the_rest(y[here], self.fold[rows])
            part = losses(predicted[here], y[here], mean, data.world[rows], data.worlds, self.yes_or_no[columns])
            total[:, :, columns] = part.lost, part.stake
        return Losses(*total)

    def precision(self, predicted: np.ndarray) -> Losses:
        """Score predictions of binary targets by average precision, (B, T)."""
        data = self.data
        total = np.zeros((2, data.worlds, len(self.usable)))
        for rows, columns in self.alike:
            binary = columns[self.yes_or_no[columns]]
            here = np.ix_(rows, binary)
            part = average_precision(predicted[here], data.targets[here], data.world[rows], data.worlds)
            total[:, :, binary] = part.lost, part.stake
        return Losses(*total)


def classified(
    x: np.ndarray | Columns, y: np.ndarray, fold: np.ndarray, yes_or_no: np.ndarray, ridge: Fitted
) -> Fitted:
    """Put logistic regressions in the place of the ridge regressions of yes-or-no targets, with the same penalties."""
    if not yes_or_no.any():
        return ridge
    from analysis.probes.logistic import fit_logistic

    choices = {left_out: chosen.of_targets(yes_or_no) for left_out, chosen in ridge.choices.items()}
    logistic = fit_logistic(x, y[:, yes_or_no], fold, choices)
    ridge.predicted[:, yes_or_no] = logistic.predicted
    ridge.read_outs.weight[:, yes_or_no] = logistic.read_outs.weight
    ridge.read_outs.bias[yes_or_no] = logistic.read_outs.bias
    return ridge


def alike(applies: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Group targets that apply to the same records: (B, T) bool to pairs of rows, (B,) bool, and columns, int64."""
    _, group = np.unique(np.packbits(applies, axis=0), axis=1, return_inverse=True)
    columns = [np.flatnonzero(group.ravel() == number) for number in range(group.max(initial=-1) + 1)]
    return [(applies[:, column[0]], column) for column in columns]


def mean_of_the_rest(y: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return for each record the mean over all other folds' records: what to guess without any input, (B, T)."""
    counts = np.bincount(fold)
    sums = np.stack([np.bincount(fold, weights=column) for column in y.T], axis=1)  # (folds, T)
    rest = (sums.sum(axis=0) - sums) / (len(y) - counts)[:, None]
    return rest[fold]
