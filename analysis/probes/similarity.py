"""How alike two networks or layers are on the same stream: debiased linear CKA, with lives as the units.

Kornblith et al. 2019, "Similarity of neural network representations revisited", equation 4, with the unbiased estimator
of HSIC of Song et al. 2012, "Feature selection via dependence maximization", equation 5. Records of one life resemble
each other, which would make any two layers alike, so one record is drawn from each life, and the draws are averaged.
"""

import itertools
from collections.abc import Mapping

import numpy as np

from analysis.lives import Lives
from analysis.statistics.resampling import jackknife

_DRAWS = 20
_FEWEST_THINGS = 4
FEWEST_LIVES = 10


def similarities(
    layers: Mapping[str, np.ndarray], lives: Lives, world: np.ndarray, seed: int
) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Compare each pair of layers, (B, units) each, of the same records.

    Worlds are (B,). Returns CKA of each pair, with the ends of its interval from a jackknife over worlds; nothing with
    too few lives.
    """
    if len(lives) < FEWEST_LIVES:
        return {}
    rng = np.random.default_rng(seed)
    draws = [lives.order[lives.starts + rng.integers(lives.lengths)] for _ in range(_DRAWS)]
    results = {}
    for one, other in itertools.combinations(layers, 2):
        value = _mean_cka(layers[one], layers[other], draws)
        without = [
            _mean_cka(layers[one], layers[other], [draw[world[draw] != number] for draw in draws])
            for number in np.unique(world)
        ]
        low, high, _ = jackknife(value, np.array(without))
        reach = (high - low) / 2
        results[one, other] = value, value - reach, float(np.minimum(1.0, value + reach))
    return results


def comparable(layers: Mapping[str, int]) -> tuple[str, ...]:
    """Return the layers of a dump worth comparing: the policy's own, and the hidden states of networks that watched."""
    own = ("encoder_output", "lstm_hidden", "lstm_cell")
    return tuple(name for name in layers if name in own or name.endswith("_lstm_hidden"))


def debiased_cka(x: np.ndarray, y: np.ndarray) -> float:
    """Return the debiased linear CKA of two representations of the same N things, (N, units) each; NaN for N < 4."""
    if len(x) < _FEWEST_THINGS:
        return np.nan
    x, y = (states - states.mean(axis=0) for states in (x.astype(np.float64), y.astype(np.float64)))
    scale = np.sqrt(_unbiased_hsic(x, x) * _unbiased_hsic(y, y))
    return float(_unbiased_hsic(x, y) / scale) if scale > 0 else np.nan


def _unbiased_hsic(x: np.ndarray, y: np.ndarray) -> float:
    """Return the unbiased HSIC of linear kernels, computed from features: no (N, N) matrix is made."""
    count = len(x)
    own_x, own_y = (x**2).sum(axis=1), (y**2).sum(axis=1)  # the kernels' diagonals, which are left out
    rows_x, rows_y = x @ x.sum(axis=0) - own_x, y @ y.sum(axis=0) - own_y
    trace = ((x.T @ y) ** 2).sum() - own_x @ own_y
    sums = rows_x.sum() * rows_y.sum() / ((count - 1) * (count - 2))
    return float((trace + sums - 2 / (count - 2) * (rows_x @ rows_y)) / (count * (count - 3)))


def _mean_cka(x: np.ndarray, y: np.ndarray, draws: list[np.ndarray]) -> float:
    return float(np.mean([debiased_cka(x[draw], y[draw]) for draw in draws]))
