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
        self.per_unit = standardising(self.mean, deviation) * (1.0 if scale is None else scale)
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


def standardising(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return what columns of these means and deviations are multiplied by, (C,): 0 for those that do not vary."""
    varies = deviation > _CONSTANT * np.maximum(np.abs(mean), 1e-30)
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

    def of_targets(self, targets: np.ndarray) -> "Choice":
        """Return the choices for some targets, (T,) bool."""
        return Choice(self.penalty[targets], self.scales[targets])


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
    numbers = list(records)
    sums = {number: Moments.of(x, y, records[number]) for number in numbers}
    alone = {number: without(sums, number) for number in numbers}
    outer = np.sum([alone[number].validation_loss(sums[number], bands) for number in numbers], axis=0)
    inner = _inner_losses(sums, bands)
    choices = {number: Choice.best(losses, bands) for number, losses in [*inner.items(), (ALL_FOLDS, outer)]}
    fits = {number: alone[number].fit(choices[number]) for number in numbers}
    return Fitted(predicted_by(fits, x, y.shape[1], records), without(sums).fit(choices[ALL_FOLDS]), choices)


def predicted_by(fits: dict[int, ReadOuts], x: Columns, targets: int, records: dict[int, np.ndarray]) -> np.ndarray:
    """Return what the read-outs that were fitted without each fold say of its records, (B, T) float64."""
    predicted = np.empty((len(x), targets))
    for number, read_outs in fits.items():
        for here, values in x.chunks(records[number]):
            predicted[records[number][here]] = read_outs.predict(values)
    return predicted


def records_by_fold(fold: np.ndarray) -> dict[int, np.ndarray]:
    """Return the numbers of each fold's records, int64, from the fold of each record, (B,)."""
    return {int(number): np.flatnonzero(fold == number) for number in np.unique(fold)}


def without(sums: dict[int, Moments], *left_out: int, scale: np.ndarray | None = None) -> NormalEquations:
    """Return the regressions on all folds but some."""
    return NormalEquations(Moments.total(part for number, part in sums.items() if number not in left_out), scale)


def _inner_losses(sums: dict[int, Moments], bands: np.ndarray) -> dict[int, np.ndarray]:
    """Cross-validate every band and penalty within the folds that remain without each fold, (K * P, T) each.

    A fit without two folds is validated on both: on each for the choice that leaves out the other.
    """
    losses = {number: np.zeros(()) for number in sums}
    for one, other in itertools.combinations(sums, 2):
        fitted = without(sums, one, other)
        for left_out, held_out in ((one, other), (other, one)):
            losses[left_out] = losses[left_out] + fitted.validation_loss(sums[held_out], bands)
    return losses


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
    columns, x = baseline.width, baseline.beside(*memories.values())
    ends = columns + np.cumsum([memory.shape[1] for memory in memories.values()])
    blocks = {
        name: slice(int(start), int(end)) for name, start, end in zip(memories, [columns, *ends], ends, strict=False)
    }
    scale = np.ones(x.width) if scale is None else np.r_[scale, np.ones(x.width - len(scale))]
    records = records_by_fold(fold)
    numbers = list(records)
    sums = {number: Moments.of(x, y, records[number]) for number in numbers}
    inner = {name: {number: np.zeros(()) for number in numbers} for name in memories}
    for one, other in itertools.combinations(numbers, 2):
        pair = _Training(without(sums, one, other, scale=scale), columns, blocks)
        for left_out, inner_losses in zip((one, other), pair.validation_losses([sums[other], sums[one]]), strict=True):
            for name, losses in inner_losses.items():
                inner[name][left_out] = inner[name][left_out] + losses
    outer = {name: np.zeros(()) for name in memories}
    alone = {number: _Training(without(sums, number, scale=scale), columns, blocks) for number in numbers}
    for number, training in alone.items():
        (inner_losses,) = training.validation_losses([sums[number]])
        outer = {name: outer[name] + losses for name, losses in inner_losses.items()}
    everything = _Training(without(sums, scale=scale), columns, blocks)
    fitted = {}
    for name in blocks:
        chosen = {number: _choose(inner[name][number]) for number in numbers}
        fits = {number: alone[number].fit(name, *chosen[number]) for number in numbers}
        predicted = predicted_by(fits, baseline.beside(memories[name]), y.shape[1], records)
        chosen[ALL_FOLDS] = _choose(outer[name])
        units = memories[name].shape[1]
        choices = {number: _as_choice(penalties, scale[:columns], units) for number, penalties in chosen.items()}
        fitted[name] = Fitted(predicted, everything.fit(name, *chosen[ALL_FOLDS]), choices)
    return fitted


Chosen = tuple[np.ndarray, np.ndarray]
"""Penalties of the baseline and of the memory, (T,) each."""
Products = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Sums of products over held-out records, in units of the training set: (C + M, C + M), (C + M, T) and (T,)."""


def _choose(losses: np.ndarray) -> Chosen:
    """Choose the penalties of the least loss: (penalties of the baseline, of the memory, T) to two of (T,)."""
    ratio = PENALTIES[:, None] / PENALTIES
    tried = (ratio > PENALTY_RATIOS[0] * 0.99) & (ratio < PENALTY_RATIOS[1] * 1.01)
    allowed = np.where(tried[:, :, None], losses, np.inf)
    place = allowed.reshape(-1, losses.shape[2]).argmin(axis=0)
    first, second = np.unravel_index(place, losses.shape[:2])
    return PENALTIES[first], PENALTIES[second]


def _as_choice(chosen: Chosen, scale: np.ndarray, units: int) -> Choice:
    """Say the same as one penalty and scales of the columns, given those of the baseline's, (C,)."""
    of_baseline, of_memory = chosen
    ratio = np.sqrt(of_baseline / of_memory)[:, None]
    of_columns = np.tile(scale, (len(of_baseline), 1))
    return Choice(of_baseline, np.concatenate([of_columns, np.repeat(ratio, units, axis=1)], axis=1))


@dataclass(frozen=True)
class _Eliminated:
    """What is left for a memory once the baseline with one penalty is eliminated. C columns, M units, T targets.

    The weights of the baseline are u - v @ w, where w are those of the memory. u is (C, T), v (C, M); `values` (M,) and
    `vectors` (M, M) are the eigendecomposition of the Schur complement, and `rest` is what the memory has to explain,
    (M, T).
    """

    u: np.ndarray
    v: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    rest: np.ndarray

    def weights(self, penalty: float) -> np.ndarray:
        """Return the memory's weights at one penalty of its own, (M, T)."""
        return self.vectors @ ((self.vectors.T @ self.rest) / (self.values + penalty)[:, None])


class _Training:
    """Banded ridge regressions on one training set."""

    def __init__(self, equations: NormalEquations, baseline: int, blocks: dict[str, slice]):
        """Take how many columns are the baseline's, which come first, and those of each memory."""
        self.equations, self.baseline, self.blocks = equations, baseline, blocks

    def _eliminate(self, penalty: float) -> dict[str, _Eliminated]:
        """Eliminate the baseline with a penalty of its own, for every memory."""
        from scipy.linalg import cho_factor, cho_solve

        r, y, c = self.equations.correlation, self.equations.with_targets, self.baseline
        system = r[:c, :c].copy()
        system.flat[:: c + 1] += penalty
        factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        targets = y.shape[1]
        solved = cho_solve(factor, np.concatenate([y[:c], r[:c, c:]], axis=1), check_finite=False)
        u, every_v = solved[:, :targets], solved[:, targets:]
        eliminated = {}
        for name, block in self.blocks.items():
            v = every_v[:, block.start - c : block.stop - c]
            values, vectors = np.linalg.eigh(r[block, block] - r[block, :c] @ v)
            eliminated[name] = _Eliminated(u, v, np.maximum(values, 0), vectors, y[block] - r[block, :c] @ u)
        return eliminated

    def validation_losses(self, held_out: list[Moments]) -> list[dict[str, np.ndarray]]:
        """Return sums of squared errors on other records for all pairs of penalties.

        Returns:
            For each set of records: memory -> (penalties of the baseline, penalties of the memory, T).
        """
        others = [self._standardised(moments) for moments in held_out]
        by_fold: list[dict[str, list[np.ndarray]]] = [{name: [] for name in self.blocks} for _ in others]
        for penalty in PENALTIES:
            for name, eliminated in self._eliminate(penalty).items():
                for moments, losses in zip(others, by_fold, strict=True):
                    losses[name].append(_losses(moments, eliminated, self.baseline, self.blocks[name]))
        return [{name: np.stack(losses) for name, losses in of_fold.items()} for of_fold in by_fold]

    def _standardised(self, held_out: Moments) -> Products:
        """Return the sums over other records, centred and standardised as the training records are."""
        e, h = self.equations, held_out
        per_unit = e.per_unit[:, None]
        xx = h.xx - np.outer(h.x, e.mean) - np.outer(e.mean, h.x) + h.count * np.outer(e.mean, e.mean)
        xy = h.xy - np.outer(h.x, e.target_mean) - np.outer(e.mean, h.y) + h.count * np.outer(e.mean, e.target_mean)
        yy = h.yy - 2 * e.target_mean * h.y + h.count * e.target_mean**2
        return xx * per_unit * e.per_unit, xy * per_unit, yy

    def fit(self, memory: str, of_baseline: np.ndarray, of_memory: np.ndarray) -> ReadOuts:
        """Fit every target with its own penalties, (T,) each; read-outs are of the baseline and the memory, raw."""
        c, block, e = self.baseline, self.blocks[memory], self.equations
        weight = np.empty((c + block.stop - block.start, len(of_baseline)))
        for penalty in np.unique(of_baseline):
            eliminated = self._eliminate(penalty)[memory]
            for own in np.unique(of_memory[of_baseline == penalty]):
                theirs = (of_baseline == penalty) & (of_memory == own)
                w = eliminated.weights(own)[:, theirs]
                weight[c:, theirs], weight[:c, theirs] = w, eliminated.u[:, theirs] - eliminated.v @ w
        columns = np.r_[:c, block]
        weight *= e.per_unit[columns, None]
        return ReadOuts(weight, e.target_mean - e.mean[columns] @ weight)


def _losses(held_out: Products, eliminated: _Eliminated, c: int, block: slice) -> np.ndarray:
    """Return the sum of squared errors for every penalty of the memory, (P, T)."""
    (xx, xy, yy), u, v = held_out, eliminated.u, eliminated.v
    xu, xv = xx[:c, :c] @ u, xx[:c, :c] @ v
    across = xx[block, :c]
    square = v.T @ xv - across @ v - (across @ v).T + xx[block, block]  # (M, M)
    linear = xy[block] - v.T @ xy[:c] + v.T @ xu - across @ u  # (M, T)
    fixed = yy - 2 * (u * xy[:c]).sum(axis=0) + (u * xu).sum(axis=0)
    weights = map(eliminated.weights, PENALTIES)
    return np.stack([fixed - 2 * (w * linear).sum(axis=0) + (w * (square @ w)).sum(axis=0) for w in weights])
