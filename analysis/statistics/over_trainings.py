"""Means over trainings, and differences of two kinds of them, whether they played worlds of their own or the same."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import or_
from typing import Literal

import numpy as np

from analysis.statistics.resampling import Estimate
from common.user_error import UserError

ByWorld = Mapping[str, float]
"""What one training reached in each world that it played, by the world's name; NaN where a world has no value."""

Worlds = Literal["own", "of a kind", "of the first", "of the second", "shared"]
"""Each training played worlds of its own; all of a kind, all of the first or of the second kind, or all of all kinds
played the same."""

_PLAYED_THE_SAME: dict[Worlds, tuple[int, ...]] = {"own": (), "of the first": (0,), "of the second": (1,)}
_WORLDS: dict[tuple[bool, ...], Worlds] = {
    (True,): "own", (True, True): "own", (False, False): "of a kind", (False, True): "of the first",
    (True, False): "of the second",
}  # fmt: skip

_ROUNDING = 1e-12
_SMALLEST_P = 1e-12


@dataclass(frozen=True)
class OverTrainings(Estimate):
    """A mean over trainings or a difference of two; the interval and p are NaN where nothing allows them."""

    p: float = np.nan


def in_worlds(kinds: Sequence[Sequence[ByWorld]], paired: bool = False) -> tuple[list[np.ndarray], Worlds]:
    """Bring trainings of one or two kinds into the shape that `over_trainings` takes.

    Args:
        kinds: one or two.
        paired: whether the trainings of two kinds at the same place belong together. They may then share worlds with
            each other.

    Returns:
        For each kind, its T trainings' values, (T, W), and who played the same worlds: its columns. Worlds without a
        value in one of those trainings are left out. Trainings with worlds of their own have one column, their means.

    Raises:
        UserError: trainings share some of their worlds, but not all.
    """
    everyone = [training for kind in kinds for training in kind]
    if len(everyone) > 1 and len(set(map(frozenset, everyone))) == 1:
        known = _known(everyone)
        return [_table(kind, known) for kind in kinds], "shared"
    if paired and _apart([frozenset().union(*pair) for pair in zip(*kinds, strict=True)]):
        pairs = [_means(pair) for pair in zip(*kinds, strict=True)]
        return [np.array(means)[:, None] for means in zip(*pairs, strict=True)], "own"
    own = [_apart(kind) for kind in kinds]
    alike = [len(set(map(frozenset, kind))) == 1 for kind in kinds]
    if _apart([frozenset().union(*kind) for kind in kinds]) and all(map(or_, own, alike)):
        values = [
            np.array([_mean(training) for training in kind])[:, None] if apart else _table(kind, _known(kind))
            for kind, apart in zip(kinds, own, strict=True)
        ]
        return values, _WORLDS[tuple(own)]
    raise UserError(
        "trainings share some of the worlds that they played, but not all: let all play the same worlds, or give each "
        "a seed of its own"
    )


def over_trainings(
    kinds: Sequence[np.ndarray], worlds: Worlds, confidence: float, paired: bool = False
) -> OverTrainings:
    """Return the mean of one kind of trainings, or the mean of the first minus that of the second, for new trainings.

    With worlds of their own, only trainings vary: Student's t of one kind, Welch's (1947) of two. Trainings that
    played the same worlds have the luck of these in common, which does not show in how they differ. Worlds are then a
    second random effect, crossed with trainings. The variance of the mean is estimated from the expected mean squares
    (Cornfield and Tukey 1956, Annals of Mathematical Statistics 27, 907-949): that of the trainings' means over T, plus
    that of the worlds' means (of two kinds in the same worlds, of their differences) over W, minus that of the
    interaction over TW, which both contain; but no less than either of them. Student's quantiles for T - 1 and W - 1
    degrees of freedom are weighted with the first two (Cochran and Cox 1957, "Experimental designs", section 4.14),
    which errs to the safe side: `benchmarks.null_rates` measures false findings with 3 to 8 trainings and 4 to 24
    worlds.

    Args:
        kinds: one or two, each (T, W): the value of each training in each world; of worlds of their own, (T, 1), the
            means.
        confidence: of the interval, 0 to 1.
        paired: whether the trainings of two kinds at the same place belong together, so that only their differences
            vary.

    Returns:
        No interval and no p with fewer than two trainings of a kind, with fewer than two shared worlds, or if nothing
        varies. No mean either if a training has no value.
    """
    if not all(kind.size and np.isfinite(kind).all() for kind in kinds):
        return OverTrainings(np.nan)
    signed = [kind if place == 0 else -kind for place, kind in enumerate(kinds)]
    value = float(sum(kind.mean() for kind in signed))
    trainings = [kind.mean(axis=1) for kind in signed]  # (T,) each
    trainings = [np.sum(trainings, axis=0)] if paired else trainings
    same = [signed[place] for place in _PLAYED_THE_SAME.get(worlds, range(len(kinds)))]
    of_worlds = [kind.mean(axis=0) for kind in same]  # (W,) each
    of_worlds = [np.sum(of_worlds, axis=0)] if worlds == "shared" else of_worlds
    varying, size = [*trainings, *of_worlds], max(float(np.abs(kind).max()) for kind in kinds)
    if min(map(len, varying)) < 2 or all(np.ptp(scores) <= _ROUNDING * size for scores in varying):
        return OverTrainings(value)
    parts = np.array([scores.var(ddof=1) / len(scores) for scores in varying])
    freedom = np.array([len(scores) - 1 for scores in varying], np.float64)
    if worlds == "own":
        alike = np.full(len(parts), parts.sum() ** 2 / (parts**2 / freedom).sum())  # Satterthwaite 1946
        return _interval(value, float(parts.sum()), parts, alike, confidence)
    meeting = [np.sum(signed, axis=0)] if paired and worlds == "shared" else same
    variance = parts.sum() - sum(map(_interaction, meeting))
    variance = max(variance, parts[: len(trainings)].sum(), parts[len(trainings) :].sum())
    return _interval(value, float(variance), parts, freedom, confidence)


def _interaction(values: np.ndarray) -> float:
    """Return the mean square of the interaction of trainings and worlds, (T, W), over TW: its part of the variance."""
    trainings, worlds = values.shape
    left = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    return float((left**2).sum() / ((trainings - 1) * (worlds - 1)) / (trainings * worlds))


def _interval(
    value: float, variance: float, parts: np.ndarray, freedom: np.ndarray, confidence: float
) -> OverTrainings:
    """Return the interval by Student's quantiles for each part's degrees of freedom, weighted with the parts."""
    from scipy import optimize, special

    weights, error = parts / parts.sum(), np.sqrt(variance)

    def quantile(p: float) -> float:
        return float(-weights @ special.stdtrit(freedom, p / 2))

    ratio, reach = abs(value) / error, quantile(1 - confidence) * error
    p = _SMALLEST_P
    if ratio < quantile(p):
        p = float(optimize.brentq(lambda p: quantile(p) - ratio, p, 1.0, rtol=1e-10, xtol=1e-15))
    return OverTrainings(value, float(value - reach), float(value + reach), p)


def _known(trainings: Sequence[ByWorld]) -> list[str]:
    worlds = [world for world in trainings[0] if all(np.isfinite(training[world]) for training in trainings)]
    return sorted(worlds)


def _table(trainings: Sequence[ByWorld], worlds: Sequence[str]) -> np.ndarray:
    return np.array([[training[world] for world in worlds] for training in trainings]).reshape(
        len(trainings), len(worlds)
    )


def _apart(played: Iterable[Iterable[str]]) -> bool:
    worlds = [world for training in played for world in training]
    return len(set(worlds)) == len(worlds)


def _means(pair: Sequence[ByWorld]) -> list[float]:
    """Return the mean of each of two trainings; if they played the same worlds, over those where both have a value."""
    if len(set(map(frozenset, pair))) > 1:
        return [_mean(training) for training in pair]
    known = _known(pair)
    return [_mean({world: training[world] for world in known}) for training in pair]


def _mean(training: ByWorld) -> float:
    known = [value for value in training.values() if np.isfinite(value)]
    return float(np.mean(known)) if known else np.nan
