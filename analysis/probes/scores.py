"""Scores as shares of what could go wrong, kept world by world, with their intervals and tests.

R squared is one minus the squared error over that of always guessing the training records' mean, so chance is 0. AUC is
one minus the share of pairs of a positive and a negative record in one world that are ranked wrongly, ties half: chance
is .5. Pairs are formed within worlds only, since each world is predicted by a probe of its own, on a scale of its own
(Forman and Scholz 2010, "Apples-to-apples in cross-validation studies", SIGKDD Explorations 12). Average precision is
that of each world, weighted by its positives; chance is the fraction of positives.

A value's standard error is that of its bootstrap over worlds (Efron and Tibshirani 1993, "An introduction to the
bootstrap", chapter 6), enlarged by sqrt(W / (W - 1)), since a bootstrap of few units is too narrow by that (Hesterberg
2015, "What teachers should know about the bootstrap"); interval and one-sided p-value are Student's with W - 1 degrees
of freedom. With few worlds that is wide, as it has to be. What it covers is which worlds the probe is tested on, not
the training of the policy.

How alike two layers are on the same stream is their debiased linear CKA (Kornblith et al. 2019, "Similarity of neural
network representations revisited", equation 4, with the unbiased estimator of HSIC of Song et al. 2012, "Feature
selection via dependence maximization", equation 5). Records of one life resemble each other, which would make any two
layers alike, so one record is drawn from each life, and the draws are averaged.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.lives import Lives
from analysis.statistics.inference import false_discovery
from analysis.statistics.resampling import Bootstrap, jackknife

CONFIDENCE = 0.95

Key = tuple[str, str]
"""A kind of probe and the name of an input."""


@dataclass(frozen=True)
class Losses:
    """What went wrong in each world, and what could have. W worlds, T targets. Both are (W, T) float64."""

    lost: np.ndarray
    stake: np.ndarray

    @property
    def score(self) -> np.ndarray:
        """The scores over all worlds, (T,); NaN where nothing was at stake."""
        return self.resampled(np.ones((1, len(self.lost))))[0]

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """Return the scores if worlds were drawn so often, (R, W) to (R, T)."""
        stake = weights @ self.stake
        return 1 - np.divide(weights @ self.lost, stake, out=np.full(stake.shape, np.nan), where=stake > 0)


def losses(
    predicted: np.ndarray, y: np.ndarray, baseline: np.ndarray, world: np.ndarray, worlds: int, yes_or_no: np.ndarray
) -> Losses:
    """Compare predictions with the truth, world by world.

    Args:
        predicted, y, baseline: (B, T); y finite, the baseline what is guessed without any input.
        world: (B,).
        yes_or_no: which targets are scored by AUC, (T,) bool.
    """
    from scipy.stats import rankdata

    lost, stake = np.zeros((2, worlds, y.shape[1]))
    for column in np.flatnonzero(~yes_or_no):
        for of, guess in ((lost, predicted), (stake, baseline)):
            squares = (y[:, column] - guess[:, column]) ** 2
            of[:, column] = np.bincount(world, weights=squares, minlength=worlds)
    for number, column in itertools.product(np.unique(world), np.flatnonzero(yes_or_no)):
        here = world == number
        yes = y[here, column] > 0.5
        pairs = float(yes.sum()) * float((~yes).sum())
        if pairs:
            # Mann and Whitney: the sum of the yeses' ranks counts the pairs that they win.
            won = rankdata(predicted[here, column])[yes].sum() - yes.sum() * (yes.sum() + 1) / 2
            lost[number, column], stake[number, column] = pairs - won, pairs
    return Losses(lost, stake)


def average_precision(predicted: np.ndarray, y: np.ndarray, world: np.ndarray, worlds: int) -> Losses:
    """Compare predictions of binary targets with the truth by average precision, world by world.

    Predictions and y, 0 or 1, are (B, T), worlds (B,).
    """
    from sklearn.metrics import average_precision_score

    lost, stake = np.zeros((2, worlds, y.shape[1]))
    for number in np.unique(world):
        here = world == number
        positives = (y[here] > 0.5).sum(axis=0)
        for column in np.flatnonzero(positives):
            score = average_precision_score(y[here, column] > 0.5, predicted[here, column])
            lost[number, column], stake[number, column] = positives[column] * (1 - score), positives[column]
    return Losses(lost, stake)


@dataclass(frozen=True)
class Estimates:
    """Values with their intervals and the p-values of being above 0 by chance, (T,) each; NaN where unknown."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    over: tuple[Key | None, ...] = ()
    """The kind of probe and the baseline that each value is a difference from, where it was chosen among several; None
    where nothing was probed."""
    bias: np.ndarray | None = None  # how far the bootstrap's mean lies from the value of an advantage, (T,)

    @cached_property
    def q(self) -> np.ndarray:
        """p-values corrected over the targets, (T,)."""
        return false_discovery(self.p)


def draw_worlds(worlds: int, resamples: int, seed: int) -> np.ndarray:
    """Draw as many worlds as there are, with replacement: how often each resample draws each, (R, W) float64."""
    units = ((0, tuple(range(worlds))),)
    bootstrap = Bootstrap(confidence=CONFIDENCE, resamples=resamples, seed=seed)
    return bootstrap.draw(units).episodes.astype(np.float64)


def estimate(value: np.ndarray, resampled: np.ndarray, informative: np.ndarray) -> Estimates:
    """Turn a value, (T,), and its resamples, (R, T), into an interval and a test.

    `informative` counts the worlds that a target has something at stake in, (T,).
    """
    from scipy.stats import t

    enough = informative >= 2
    worlds = np.where(enough, informative, 2)
    # Columns without any number are zeros here, so that no warning tells what the caller knows.
    resampled = np.where(np.isfinite(resampled).any(axis=0), resampled, 0.0)
    spread = np.sqrt(np.nanvar(resampled, axis=0, ddof=1) * worlds / (worlds - 1))
    reach = spread * t.ppf((1 + CONFIDENCE) / 2, worlds - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = t.sf(value / spread, worlds - 1)
    known = enough & np.isfinite(value) & (spread > 0)
    low, high, p = (np.where(known, numbers, np.nan) for numbers in (value - reach, value + reach, p))
    return Estimates(value, low, high, p)


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
