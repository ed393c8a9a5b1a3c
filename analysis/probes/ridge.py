"""Linear probes of numeric targets: ridge regressions on standardised inputs, for all folds and penalties at once.

A ridge regression needs only sums of products of its records. These are computed once per fold. Every training set is a
sum of folds, and one factorisation of its correlation matrix plus a penalty serves all targets.

Blocks of columns can have penalties of their own: banded ridge regression (Nunez-Elizalde, Huth and Gallant 2019,
"Voxelwise encoding models with non-spherical multivariate normal priors", NeuroImage 197). A column that is scaled by s
after standardisation is penalised by penalty / s^2, and one that is scaled by 0 is left out.

A baseline may have thousands of columns and a memory a few hundred. So where both are read side by side, the baseline
is eliminated: one Cholesky factor of its block for each of its penalties serves all memories and all of their
penalties, which cost only a small Schur complement each.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from analysis.probes.inputs import Columns

PENALTIES = np.logspace(-6, 1, 8)
"""Tried for every target, times the number of training records: from almost no shrinkage to almost nothing left."""

_CONSTANT = 1e-9
"""Standard deviation, relative to the magnitude, below which a column does not vary but is rounded."""
_CONSTANT_IN_SUMS = 1e-6
"""The same where the deviation is from sums of squares: a mean's square is subtracted, and half of the digits go."""


@dataclass(frozen=True)
class Moments:
    """Sums over some records. C columns of the input, T targets.

    x and y are sums, (C,) and (T,); xx and xy of products, (C, C) and (C, T); yy of each target's squares, (T,).
    """

    count: float
    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    xy: np.ndarray
    yy: np.ndarray

    @staticmethod
    def of(x: Columns, y: np.ndarray, records: np.ndarray) -> "Moments":
        """Sum over some records of (B, C) and (B, T), in double precision a chunk at a time."""
        y = y[records]
        xx, xy = np.zeros((x.width, x.width)), np.zeros((x.width, y.shape[1]))
        sums = np.zeros(x.width)
        for here, values in x.chunks(records):
            chunk = values.astype(np.float64)
            sums += chunk.sum(axis=0)
            xx += chunk.T @ chunk
            xy += chunk.T @ y[here]
        return Moments(len(y), sums, y.sum(axis=0), xx, xy, (y**2).sum(axis=0))

    @staticmethod
    def total(parts: "Iterable[Moments]") -> "Moments":
        """Add up the sums of several sets of records."""
        sums = zip(*(vars(part).values() for part in parts), strict=True)
        return Moments(*(functools.reduce(operator.add, of_parts) for of_parts in sums))


@dataclass(frozen=True)
class ReadOuts:
    """Linear read-outs: input @ weight + bias predicts each target in its own unit, or its log-odds if it is yes-or-no.

    Weights are (C, T) float64 in units of the raw input, biases (T,).
    """

    weight: np.ndarray
    bias: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Predict targets of records, (B, C) to (B, T) float64."""
        return x @ self.weight + self.bias


class NormalEquations:
    """Ridge regressions on one training set, ready for any penalty."""

    def __init__(self, moments: Moments, scale: np.ndarray | None = None):
        """Standardise the training set's input, and then scale its columns, (C,); by default by 1."""
        self.mean, self.target_mean = moments.x / moments.count, moments.y / moments.count
        covariance = moments.xx / moments.count - np.outer(self.mean, self.mean)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0))
        self.per_unit = standardising(self.mean, deviation, _CONSTANT_IN_SUMS) * (1.0 if scale is None else scale)
        self.correlation = covariance * np.outer(self.per_unit, self.per_unit)
        with_targets = moments.xy / moments.count - np.outer(self.mean, self.target_mean)
        self.with_targets = with_targets * self.per_unit[:, None]  # (C, T)

    def fit(self, chosen: "Choice") -> ReadOuts:
        """Fit every target with its own penalty and its own scales of the columns."""
        weight = np.empty(self.with_targets.shape)
        for scale, theirs in groups(chosen.scales):
            for value, solve in self._factors(scale, np.unique(chosen.penalty[theirs])):
                columns = np.flatnonzero(theirs & (chosen.penalty == value))
                weight[:, columns] = solve(columns)
        return self._read_outs(weight)

    def validation_loss(self, held_out: Moments, bands: np.ndarray) -> np.ndarray:
        """Return the sum of squared errors on other records for every band, penalty and target, (K * P, T).

        Bands are scales of the columns, (K, C).
        """
        every = np.arange(len(self.target_mean))
        losses = []
        for scale in bands:
            kept = np.flatnonzero(scale)
            xx = held_out.xx if len(kept) == len(scale) else held_out.xx[np.ix_(kept, kept)]
            for _, solve in self._factors(scale, PENALTIES):
                fitted = self._read_outs(solve(every))
                w, b = fitted.weight[kept], fitted.bias
                squares = np.einsum("ct,ct->t", w, xx @ w) + 2 * b * (held_out.x[kept] @ w) + held_out.count * b**2
                products = np.einsum("ct,ct->t", w, held_out.xy[kept]) + b * held_out.y
                losses.append(squares - 2 * products + held_out.yy)
        return np.array(losses)

    def _read_outs(self, weight: np.ndarray) -> ReadOuts:
        return ReadOuts(weight, self.target_mean - self.mean @ weight)

    def _factors(self, scale: np.ndarray, penalties: np.ndarray) -> "Iterator[tuple[float, Solve]]":
        """Factorise the system of each penalty; yield the penalty and what solves it for given targets."""
        # A Cholesky factor for each of eight penalties takes a fraction of the time of one eigendecomposition.
        from scipy.linalg import cho_factor, cho_solve

        kept = np.flatnonzero(scale)
        correlation = self.correlation if len(kept) == len(scale) else self.correlation[np.ix_(kept, kept)]
        scaled = correlation * np.outer(scale[kept], scale[kept])
        for penalty in penalties:
            system = scaled.copy()
            system.flat[:: len(system) + 1] += penalty
            factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)

            def solve(targets: np.ndarray, factor: tuple[np.ndarray, bool] = factor) -> np.ndarray:
                weight = np.zeros((len(scale), len(targets)))
                answers = self.with_targets[np.ix_(kept, targets)] * scale[kept, None]
                solved = cho_solve(factor, answers, check_finite=False)
                weight[kept] = solved * (scale * self.per_unit)[kept, None]
                return weight

            yield float(penalty), solve


Solve = Callable[[np.ndarray], np.ndarray]
"""From numbers of targets, (N,), to their weights in raw units, (C, N)."""


def groups(scales: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Group targets by the scales of their columns: (T, C) to pairs of (C,) and which targets, (T,) bool."""
    for scale in np.unique(scales, axis=0):
        yield scale, (scales == scale).all(axis=1)


def standardising(mean: np.ndarray, deviation: np.ndarray, constant: float = _CONSTANT) -> np.ndarray:
    """Return what columns of these means and deviations are multiplied by, (C,): 0 for those that do not vary."""
    varies = deviation > constant * np.maximum(np.abs(mean), 1e-30)
    return np.divide(1, deviation, out=np.zeros_like(deviation), where=varies)


@dataclass(frozen=True)
class Choice:
    """What was chosen for each of T targets. Penalties are (T,), scales of the standardised columns (T, C)."""

    penalty: np.ndarray
    scales: np.ndarray

    @staticmethod
    def best(losses: np.ndarray, bands: np.ndarray) -> "Choice":
        """Choose the band and penalty of the least loss, (K * P, T) as `validation_loss` returns them, for K bands."""
        band, penalty = np.unravel_index(losses.argmin(axis=0), (len(bands), len(PENALTIES)))
        return Choice(PENALTIES[penalty], bands[band])


ALL_FOLDS = -1
Choices = dict[int, Choice]
"""Left-out fold -> what the other folds chose for the fit to them; and of `ALL_FOLDS`, for that to all records."""


@dataclass(frozen=True)
class Fitted:
    """Linear probes of one input.

    `predicted` is of records that the fit has not seen, (B, T) float64; `read_outs` are fitted to all records.
    """

    predicted: np.ndarray
    read_outs: ReadOuts
    choices: Choices


def fit_ridge(x: np.ndarray | Columns, y: np.ndarray, fold: np.ndarray, bands: np.ndarray | None = None) -> Fitted:
    """Fit and cross-validate linear probes.

    Penalty and band of every target are chosen on folds that the fit is not tested on.

    Args:
        x: input, (B, C).
        y: targets, (B, T) float64, finite.
        fold: of each record, (B,) int64, at least three.
        bands: scales of the columns to choose from, (K, C); by default one band of 1 everywhere.
    """
    x = Columns.of(x)
    bands = np.ones((1, x.width)) if bands is None else bands
    records = records_by_fold(fold)
    sums = {number: Moments.of(x, y, rows) for number, rows in records.items()}

    def losses_without(*folds: int) -> list[np.ndarray]:
        equations = NormalEquations(_rest(sums, *folds))
        return [equations.validation_loss(sums[number], bands) for number in folds]

    choices = {number: Choice.best(losses, bands) for number, losses in _validated(sums, losses_without).items()}
    fits = {number: NormalEquations(_rest(sums, number)).fit(choices[number]) for number in (*sums, ALL_FOLDS)}
    return Fitted(_predicted_by(fits, x, records), fits[ALL_FOLDS], choices)


def records_by_fold(fold: np.ndarray) -> dict[int, np.ndarray]:
    """Return the numbers of each fold's records, int64, from the fold of each record, (B,)."""
    return {int(number): np.flatnonzero(fold == number) for number in np.unique(fold)}


def _rest(sums: dict[int, Moments], *left_out: int) -> Moments:
    return Moments.total(part for number, part in sums.items() if number not in left_out)


def _validated(sums: dict[int, Moments], losses_without: Callable[..., list[np.ndarray]]) -> dict[int, np.ndarray]:
    """Cross-validate every choice over all folds, and within the folds that remain without each of them.

    Fits without two folds are validated on both: on each for the choice that leaves out the other. `losses_without`
    takes one or two folds, and returns the losses on each of them of fits to the others.
    """
    losses = dict.fromkeys((*sums, ALL_FOLDS), np.zeros(()))
    for number in sums:
        losses[ALL_FOLDS] = losses[ALL_FOLDS] + losses_without(number)[0]
    for pair in itertools.combinations(sums, 2):
        for left_out, of_other in zip(pair, reversed(losses_without(*pair)), strict=True):
            losses[left_out] = losses[left_out] + of_other
    return losses


def _predicted_by(fits: dict[int, ReadOuts], x: Columns, records: dict[int, np.ndarray]) -> np.ndarray:
    """Return what the read-outs that were fitted without each fold say of its records, (B, T) float64."""
    predicted = np.empty((len(x), len(fits[ALL_FOLDS].bias)))
    for number, rows in records.items():
        for here, values in x.chunks(rows):
            predicted[rows[here]] = fits[number].predict(values)
    return predicted


PENALTY_RATIOS = (1e-2, 1e4)
"""Least and largest penalty of the baseline, divided by the memory's, that is tried: the baseline is the wider one."""


def fit_ridge_beside(
    baseline: np.ndarray | Columns, memories: dict[str, np.ndarray], y: np.ndarray, fold: np.ndarray,
    scale: np.ndarray | None = None,
) -> dict[str, Fitted]:  # fmt: skip
    """Fit and cross-validate ridge regressions on a baseline together with each memory.

    Both penalties of every target are chosen on folds that the fit is not tested on.

    Args:
        baseline: (B, C).
        memories: name -> (B, M) float32, of all records of which the baseline may have some.
        y: targets, (B, T) float64, finite.
        fold: of each record, (B,) int64, at least three.
        scale: of the baseline's standardised columns, (C,); by default 1.

    Returns:
        Memory -> probes of the columns of the baseline and, after them, of the memory.
    """
    baseline = Columns.of(baseline)
    x = baseline.beside(*memories.values())
    ends = np.cumsum([baseline.width, *(memory.shape[1] for memory in memories.values())]).tolist()
    blocks = {name: slice(*place) for name, place in zip(memories, itertools.pairwise(ends), strict=True)}
    scale = np.ones(baseline.width) if scale is None else scale
    records = records_by_fold(fold)
    sums = {number: Moments.of(x, y, rows) for number, rows in records.items()}

    def without(*folds: int) -> _Beside:
        return _Beside(_rest(sums, *folds), scale, list(blocks.values()))

    def losses_without(*folds: int) -> list[np.ndarray]:
        return without(*folds).validation_losses([sums[number] for number in folds])

    losses = _validated(sums, losses_without)
    trainings = {number: without(number) for number in losses}
    fitted = {}
    for place, (name, block) in enumerate(blocks.items()):
        chosen = {number: _choose(of_memories[place]) for number, of_memories in losses.items()}
        fits = {number: trainings[number].fit_beside(block, *penalties) for number, penalties in chosen.items()}
        units = block.stop - block.start
        choices = {number: _as_choice(*penalties, scale, units) for number, penalties in chosen.items()}
        predicted = _predicted_by(fits, baseline.beside(memories[name]), records)
        fitted[name] = Fitted(predicted, fits[ALL_FOLDS], choices)
    return fitted


def _choose(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose the penalties of baseline and memory of the least loss, from one (penalties, penalties, T): (T,) each."""
    ratio = PENALTIES[:, None] / PENALTIES
    tried = (ratio > PENALTY_RATIOS[0] * 0.99) & (ratio < PENALTY_RATIOS[1] * 1.01)
    allowed = np.where(tried[:, :, None], losses, np.inf)
    place = allowed.reshape(-1, losses.shape[2]).argmin(axis=0)
    first, second = np.unravel_index(place, losses.shape[:2])
    return PENALTIES[first], PENALTIES[second]


def _as_choice(of_baseline: np.ndarray, of_memory: np.ndarray, scale: np.ndarray, units: int) -> Choice:
    """Say the same as one penalty and scales of the columns, given those of the baseline's, (C,)."""
    ratio = np.sqrt(of_baseline / of_memory)[:, None]
    of_columns = np.tile(scale, (len(of_baseline), 1))
    return Choice(of_baseline, np.concatenate([of_columns, np.repeat(ratio, units, axis=1)], axis=1))


_Eliminated = tuple[np.ndarray, np.ndarray, Callable[[float], np.ndarray]]
"""What is left for a memory once the baseline with one penalty is eliminated: u, (C, T), v, (C, M), and the memory's
weights w, (M, T), from a penalty of its own. The weights of the baseline are u - v @ w."""


class _Beside(NormalEquations):
    """Ridge regressions on a baseline and each of several memories, on one training set."""

    def __init__(self, moments: Moments, scale: np.ndarray, blocks: list[slice]):
        """Take the scales of the baseline's columns, (C,), which come first, and the columns of each memory."""
        super().__init__(moments, np.r_[scale, np.ones(len(moments.x) - len(scale))])
        self.width, self.blocks = len(scale), blocks

    def _eliminate(self, penalty: float, blocks: list[slice]) -> list[_Eliminated]:
        """Eliminate the baseline with a penalty of its own, for some memories."""
        from scipy.linalg import cho_factor, cho_solve

        r, y, c = self.correlation, self.with_targets, self.width
        system = r[:c, :c].copy()
        system.flat[:: c + 1] += penalty
        factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        targets = y.shape[1]
        solved = cho_solve(factor, np.concatenate([y[:c], r[:c, c:]], axis=1), check_finite=False)
        u, every_v = solved[:, :targets], solved[:, targets:]
        eliminated: list[_Eliminated] = []
        for block in blocks:
            v = every_v[:, block.start - c : block.stop - c]
            values, vectors = np.linalg.eigh(r[block, block] - r[block, :c] @ v)  # the Schur complement
            values, rest = np.maximum(values, 0), y[block] - r[block, :c] @ u

            def weights(
                penalty: float, values: np.ndarray = values, vectors: np.ndarray = vectors, rest: np.ndarray = rest
            ) -> np.ndarray:
                return vectors @ ((vectors.T @ rest) / (values + penalty)[:, None])

            eliminated.append((u, v, weights))
        return eliminated

    def validation_losses(self, held_out: list[Moments]) -> list[np.ndarray]:
        """Return sums of squared errors on other sets of records for all pairs of penalties.

        Returns:
            For each set of records: (memories, penalties of the baseline, penalties of the memory, T).
        """
        others = [self._standardised(moments) for moments in held_out]
        losses = [
            [[self._losses(other, *parts) for parts in zip(self.blocks, eliminated, strict=True)] for other in others]
            for eliminated in (self._eliminate(penalty, self.blocks) for penalty in PENALTIES)
        ]
        return list(np.array(losses).transpose(1, 2, 0, 3, 4))

    def _standardised(self, held_out: Moments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return sums of products over other records, standardised as the training records are, of xx, xy and yy."""
        h, mean, target_mean, per_unit = held_out, self.mean, self.target_mean, self.per_unit[:, None]
        xx = h.xx - np.outer(h.x, mean) - np.outer(mean, h.x) + h.count * np.outer(mean, mean)
        xy = h.xy - np.outer(h.x, target_mean) - np.outer(mean, h.y) + h.count * np.outer(mean, target_mean)
        yy = h.yy - 2 * target_mean * h.y + h.count * target_mean**2
        return xx * per_unit * self.per_unit, xy * per_unit, yy

    def _losses(
        self, held_out: tuple[np.ndarray, np.ndarray, np.ndarray], block: slice, eliminated: _Eliminated
    ) -> np.ndarray:
        """Return the sum of squared errors for every penalty of a memory, (P, T)."""
        (xx, xy, yy), (u, v, weights), c = held_out, eliminated, self.width
        xu, xv = xx[:c, :c] @ u, xx[:c, :c] @ v
        across = xx[block, :c]
        square = v.T @ xv - across @ v - (across @ v).T + xx[block, block]  # (M, M)
        linear = xy[block] - v.T @ xy[:c] + v.T @ xu - across @ u  # (M, T)
        fixed = yy - 2 * (u * xy[:c]).sum(axis=0) + (u * xu).sum(axis=0)
        every = map(weights, PENALTIES)
        return np.stack([fixed - 2 * (w * linear).sum(axis=0) + (w * (square @ w)).sum(axis=0) for w in every])

    def fit_beside(self, block: slice, of_baseline: np.ndarray, of_memory: np.ndarray) -> ReadOuts:
        """Fit every target with its own penalties, (T,) each; read-outs are of the baseline and the memory, raw."""
        c = self.width
        weight = np.empty((c + block.stop - block.start, len(of_baseline)))
        for penalty in np.unique(of_baseline):
            ((u, v, weights),) = self._eliminate(penalty, [block])
            for own in np.unique(of_memory[of_baseline == penalty]):
                theirs = (of_baseline == penalty) & (of_memory == own)
                w = weights(own)[:, theirs]
                weight[c:, theirs], weight[:c, theirs] = w, u[:, theirs] - v @ w
        columns = np.r_[:c, block]
        weight *= self.per_unit[columns, None]
        return ReadOuts(weight, self.target_mean - self.mean[columns] @ weight)
