"""A meter of blindness: whether the listed features cover what clusters or components tell, in numbers and words.

What some variables tell about targets is measured, and how much of it is also in a list of other variables.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.statistics.inference import Inference, student_stretch
from analysis.statistics.resampling import draws_of, folds_of
from common.number_text import share_text

PENALTIES = (1e-3, 1e-1, 1.0, 100.0)
"""Ridge penalties to choose from, per record and standardised column; with the last, a column hardly counts."""

_TREES = 50
_FEWEST_IN_LEAF = 5
_FEWEST_UNITS = 2.0

Targets = Mapping[str, np.ndarray]
"""Parts of what is predicted, by name: (B, columns) each, with any spread."""


@dataclass(frozen=True)
class Part:
    """One part of the targets, and the share of its variance that each set of variables tells about it (R2)."""

    name: str
    studied: float
    listed: float
    together: float


@dataclass(frozen=True)
class Coverage:
    """Shares of the targets' variance, the mean over their parts, in lives held out; 1 is all, below 0 none."""

    about: str
    studied: float  # told by the variables studied, with its interval (NaN with fewer than two units)
    studied_low: float
    studied_high: float
    listed: float  # told by the list
    together: float  # told by both together
    uncovered: float
    """Share of `studied` that is not in the list, (together - listed) / studied, with its interval; NaN unless
    `reliable`."""
    uncovered_low: float
    uncovered_high: float
    parts: tuple[Part, ...]  # the same of each part

    @property
    def reliable(self) -> bool:
        """Whether the variables studied tell more than nothing: the interval of `studied` is above 0."""
        return self.studied_low > 0


def coverage(
    listed: np.ndarray, studied: np.ndarray, groups: np.ndarray, targets: Mapping[str, Targets], unit: np.ndarray,
    settings: Inference,
) -> tuple[Coverage, ...]:  # fmt: skip
    """Measure what is studied, a list, and both together by how well they predict targets in units held out.

    So that what is studied gains nothing by being a curved function of the list, or one of several of its variables at
    once, the list also has what a forest of random trees (Geurts et al. 2006) can recognise of `groups` from it.
    Predictions are linear (ridge regression). Two penalties are chosen in the units fitted for each part of the
    targets: of the list, and of what is studied or recognised. All fits are made without the units in which they
    predict. The fits are not repeated when units are resampled.

    Args:
        listed: (B, F), finite.
        studied: (B, K), finite.
        groups: what is studied as groups, (B,) int64.
        targets: sets of targets, by what they are.
        unit: the life or the episode of each record, (B,) int64; at least two of them.
    """
    unit = np.unique(unit, return_inverse=True)[1]
    fold = folds_of(unit)
    guessed = _recognised(listed, groups, fold, settings.seed)
    listed, guessed, studied = (_standardised(values) for values in (listed, guessed, studied))
    return tuple(
        _coverage(about, parts, listed, guessed, studied, fold, unit, settings) for about, parts in targets.items()
    )


def _recognised(listed: np.ndarray, groups: np.ndarray, fold: np.ndarray, seed: int) -> np.ndarray:
    """Return the probability of each group given the list, by a forest of the other folds, (B, groups) float64."""
    from sklearn.ensemble import ExtraTreesClassifier

    names, group = np.unique(groups, return_inverse=True)
    guessed = np.zeros((len(listed), len(names)))
    for number in range(fold.max() + 1):
        fitted, held_out = fold != number, np.flatnonzero(fold == number)
        forest = ExtraTreesClassifier(
            _TREES, max_features=None, min_samples_leaf=_FEWEST_IN_LEAF, random_state=seed
        ).fit(listed[fitted].astype(np.float32), group[fitted])
        guessed[np.ix_(held_out, forest.classes_)] = forest.predict_proba(listed[held_out].astype(np.float32))
    return guessed


def _standardised(values: np.ndarray) -> np.ndarray:
    """Centre columns and divide them by their spread; those that never change are left out."""
    changes = (values != values[0]).any(axis=0)
    centred = values[:, changes] - values[:, changes].mean(axis=0)
    return np.asarray(centred / centred.std(axis=0), np.float64)


def _coverage(
    about: str, parts: Targets, listed: np.ndarray, guessed: np.ndarray, studied: np.ndarray, fold: np.ndarray,
    unit: np.ndarray, settings: Inference,
) -> Coverage:  # fmt: skip
    # Each part has a total variance of 1; columns are numbered by their part.
    centred = [values - values.mean(axis=0) for values in parts.values()]
    target = np.column_stack([group / np.sqrt((group**2).sum(axis=1).mean()) for group in centred])  # (B, T)
    part = np.repeat(np.arange(len(centred)), [group.shape[1] for group in centred])  # (T,)
    nothing, both = np.empty((len(listed), 0)), np.column_stack([guessed, studied])
    designs = ((nothing, nothing), (nothing, studied), (listed, guessed), (listed, both))
    spread, *errors = (_errors(target, part, one, other, fold, unit) for one, other in designs)  # (units, parts) each
    records = np.bincount(unit).astype(np.float64)
    weights = draws_of(len(records), settings.bootstraps, [settings.seed, 8])
    once = np.ones((1, len(records)))
    by_part = [_r2(error, spread, once)[0] for error in errors]
    alone, without, together = (float(r2.mean()) for r2 in by_part)
    drawn = [_r2(error, spread, weights).mean(axis=1) for error in errors]  # (resamples,) each
    effective = float(records.sum() ** 2 / (records**2).sum())  # Kish 1965
    low, high = _interval(drawn[0], alone, effective, settings)
    uncovered = (np.nan, np.nan, np.nan)
    if low > 0:
        share = (together - without) / alone
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(drawn[0] > 0, (drawn[2] - drawn[1]) / drawn[0], np.nan)
        uncovered = (share, *_interval(shares, share, effective, settings))
    named = tuple(Part(name, *map(float, values)) for name, *values in zip(parts, *by_part, strict=True))
    return Coverage(about, alone, low, high, without, together, *uncovered, named)


def _errors(
    target: np.ndarray, part: np.ndarray, left: np.ndarray, right: np.ndarray, fold: np.ndarray, unit: np.ndarray
) -> np.ndarray:
    """Return the squared errors of each unit while it is held out, (units, parts)."""
    design = np.column_stack([np.ones(len(target)), left, right])  # (B, D)
    penalties = [
        np.repeat([0.0, one, other], [1, left.shape[1], right.shape[1]])
        for one in (PENALTIES if left.size else PENALTIES[:1])
        for other in (PENALTIES if right.size else PENALTIES[:1])
    ]
    members = [fold == number for number in range(fold.max() + 1)]
    sums = (
        np.array([np.count_nonzero(chosen) for chosen in members]),
        np.array([design[chosen].T @ design[chosen] for chosen in members]),
        np.array([design[chosen].T @ target[chosen] for chosen in members]),
    )
    error = np.zeros((unit.max() + 1, part.max() + 1))
    for number, chosen in enumerate(members):
        wrong = (target[chosen] - design[chosen] @ _weights_without(number, sums, penalties, part)) ** 2  # (b, T)
        by_part = np.add.reduceat(wrong, np.flatnonzero(np.diff(part, prepend=-1)), axis=1)  # (b, parts)
        np.add.at(error, unit[chosen], by_part)
    return error


_Sums = tuple[np.ndarray, np.ndarray, np.ndarray]
"""What least squares need of each of N folds: records (N,), and products of columns, (N, D, D) and (N, D, T)."""


def _weights_without(held_out: int, sums: _Sums, penalties: list[np.ndarray], part: np.ndarray) -> np.ndarray:
    """Fit all folds but one, with the penalties of which each part is best predicted between the others, (D, T)."""
    records, squares, products = sums
    fitted = [number for number in range(len(records)) if number != held_out]
    best = np.zeros(part.max() + 1, np.int64)
    if len(fitted) > 1 and len(penalties) > 1:
        losses = []  # squared errors in each fold of a fit to the others, up to a constant, (penalties, parts)
        for penalty in penalties:
            total = np.zeros(len(part))
            for number in fitted:
                weights = _fit(sums, [other for other in fitted if other != number], penalty)
                total += (weights * (squares[number] @ weights - 2 * products[number])).sum(axis=0)
            losses.append(np.bincount(part, total))
        best = np.array(losses).argmin(axis=0)
    weights = np.empty(products.shape[1:])
    for choice in np.unique(best):
        columns = best[part] == choice
        weights[:, columns] = _fit(sums, fitted, penalties[choice])[:, columns]
    return weights


def _fit(sums: _Sums, folds: list[int], penalty: np.ndarray) -> np.ndarray:
    """Return the weights of ridge regression (Hoerl and Kennard 1970), (D, T)."""
    from scipy import linalg

    records, squares, products = (of_folds[folds].sum(axis=0) for of_folds in sums)
    return np.asarray(linalg.solve(squares + np.diag(penalty * records), products, assume_a="pos", check_finite=False))


def _r2(error: np.ndarray, spread: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return R2 of each part for each weighting of the units, (R, U) to (R, parts); 0 where a part never changes."""
    total = weights @ spread
    return 1 - np.divide(weights @ error, total, out=np.ones_like(total), where=total > 0)


def _interval(drawn: np.ndarray, estimate: float, effective: float, settings: Inference) -> tuple[float, float]:
    """Return the percentile interval, stretched about the estimate to match Student's t; NaN with too few units."""
    if effective < _FEWEST_UNITS or np.isfinite(drawn).mean() < settings.confidence:
        return np.nan, np.nan
    tail = (1 - settings.confidence) / 2
    ends = np.nanquantile(drawn, [tail, 1 - tail])
    low, high = estimate + student_stretch(effective, settings.confidence) * (ends - estimate)
    return float(low), float(high)


TOO_SHORT = 0.2
"""The list of features is too short if the lower end of the interval of the uncovered share is above this.

Even where the list holds everything, a finite number of records does not suffice to find all of it: 0 to 8% remain in
planted dumps (docs/analysis.md, what the features cover).
"""

_ALL = 0.99
"""What is studied, such as many components, is all of what it is to tell about."""


@dataclass(frozen=True)
class Blindness:
    """How much of what clusters, codes or components tell is covered by all listed features together."""

    studied: str  # what is studied, such as "clusters"
    features: int
    left_out: tuple[str, ...]  # those that cannot be computed from this dump
    records: int
    unit: str  # what intervals resample, "life" or "episode"
    units: int
    measures: tuple[Coverage, ...]  # about behaviour and about the state; none if they could not be measured
    reason: str  # why there are none, else ""

    @property
    def plural(self) -> str:
        """What intervals resample, in the plural."""
        return "episodes" if self.unit == "episode" else "lives"

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was measured in words; whether the list is too short comes last."""
        if not self.measures:
            return (f"Whether the listed features cover what {self.studied} tell is unknown: {self.reason}.",)
        short = [measure for measure in self.measures if measure.uncovered_low > TOO_SHORT]
        return *(_covered(self, measure) for measure in self.measures), *([_too_short(self, short)] if short else [])

    @property
    def table(self) -> list[str]:
        """The numbers behind the sentences, one line for each part of the targets; none if there are none."""
        if not self.measures:
            return []
        width = max(len(part.name) for measure in self.measures for part in measure.parts) + 2
        lines = [
            f"Variance explained in {self.plural} held out: by {self.studied}, by all {self.features} listed features, "
            "by both together",
            f"  ({self.records:,} records with a next tick, of {self.units:,} {self.plural})",
        ]
        for measure in self.measures:
            lines.append(_row(measure.about, measure, width + 2))
            lines += [_row(f"  {part.name}", part, width + 2) for part in measure.parts if len(measure.parts) > 1]
        missing = f"  Not in the list, since the dump lacks what they need: {', '.join(self.left_out)}"
        return [*lines, *([missing] if self.left_out else [])]


def _row(name: str, shares: Coverage | Part, width: int) -> str:
    values = (shares.studied, shares.listed, shares.together)
    return f"  {name:<{width}} {' '.join(f'{share:>6.1%}' for share in values)}"


def _covered(meter: Blindness, measure: Coverage) -> str:
    share = f"{share_text(measure.studied)}{_between(measure.studied_low, measure.studied_high)}"
    if not measure.reliable:
        return (
            f"What {meter.studied} tell about {measure.about} is not reliably more than nothing: {share} of its "
            f"variance in {meter.plural} held out."
        )
    covered = _between(1 - measure.uncovered_high, 1 - measure.uncovered_low)
    if measure.studied > _ALL:
        return (
            f"In {meter.plural} held out, all {meter.features} listed features together cover "
            f"{_of_all(1 - measure.uncovered)}{covered} of the variance of {measure.about}."
        )
    return (
        f"In {meter.plural} held out, {meter.studied} tell {share} of the variance of {measure.about}; all "
        f"{meter.features} listed features together cover {_of_all(1 - measure.uncovered)} of that{covered}."
    )


def _too_short(meter: Blindness, short: list[Coverage]) -> str:
    parts = []
    for measure in short:
        parts.append(f"{_of_all(measure.uncovered)} of what {meter.studied} tell about {measure.about}")
        if len(measure.parts) > 1:
            parts[-1] += f" (most of all {max(measure.parts, key=lambda part: part.together - part.listed).name})"
    return (
        f"The list of features is too short: {' and '.join(parts)} {'is' if len(short) == 1 else 'are'} in none of "
        "them. A cluster or component without a surviving difference may still stand for something that is not in the "
        "list."
    )


def _between(low: float, high: float) -> str:
    return "" if math.isnan(low) or math.isnan(high) else f" ({_of_all(low)} to {_of_all(high)})"


def _of_all(share: float) -> str:
    """Write an estimated share; one beyond its limits by chance, as the limit."""
    return share_text(min(max(share, 0.0), 1.0))
