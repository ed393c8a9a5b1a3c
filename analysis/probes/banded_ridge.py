"""Linear probes of a baseline and a memory side by side, each block with its own penalty (banded ridge regression).

Nunez-Elizalde, Huth and Gallant 2019, "Voxelwise encoding models with non-spherical multivariate normal priors",
NeuroImage 197. The baseline may have thousands of columns and the memory a few hundred, so the baseline is eliminated:
one Cholesky factor of its block for each of its penalties serves all memories and all of their penalties, which cost
only a small Schur complement each.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from analysis.probes.inputs import Columns
from analysis.probes.ridge import (
    ALL_FOLDS,
    PENALTIES,
    Choice,
    Fitted,
    Moments,
    NormalEquations,
    ReadOuts,
    predicted_by,
    records_by_fold,
    without,
)

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
