"""What is measured of a world model."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Row:
    """One measure at one horizon, with 95% intervals.

    Attributes:
        measure: name, see `tick_errors.HIGHER_IS_BETTER`.
        horizon: ticks after the last one seen.
        model: of the world model.
        model_low: end of its interval.
        model_high: likewise.
        copied: of copying the last tick.
        better: how much better the model is; above 0 is better, whichever way the measure points.
        better_low: end of its interval.
        better_high: likewise.
        predictions: ticks predicted.
        unit: what is resampled: episode or life.
    """

    measure: str
    horizon: int
    model: float
    model_low: float
    model_high: float
    copied: float
    better: float
    better_low: float
    better_high: float
    predictions: int
    unit: str


@dataclass(frozen=True)
class OtherDice:
    """How far two real courses from one state differ in one measure at one horizon, with 95% intervals.

    Attributes:
        measure: name, see `tick_errors.HIGHER_IS_BETTER`.
        horizon: ticks after the last one that both courses share.
        other: of the course with other dice, against the course as it was.
        other_low: end of its interval.
        other_high: likewise.
        bound: what no prediction without knowledge of the dice exceeds on average, half-way from `other` to no
            difference; NaN for measures without such a bound.
        model: of the world model in the same ticks.
        copied: of copying the last tick, likewise.
        better: how much better the model is than the other course; above 0 is better, whichever way the measure points.
        better_low: end of its interval.
        better_high: likewise.
        ticks: compared.
        unit: what is resampled: episode or life.
    """

    measure: str
    horizon: int
    other: float
    other_low: float
    other_high: float
    bound: float
    model: float
    copied: float
    better: float
    better_low: float
    better_high: float
    ticks: int
    unit: str


@dataclass(frozen=True)
class Behaviour:
    """How often something happens in real and in simulated ticks at the same distance from the same starts."""

    what: str
    real: float
    simulated: float


@dataclass(frozen=True, eq=False)
class Quality:
    """Everything that is measured.

    Attributes:
        rows: open-loop errors by measure and horizon.
        end_auroc: of the end of lives, NaN if none ended.
        end_brier: mean squared error of its probability.
        end_share: of predicted ticks that had ended.
        calibration: mean probability and share right of the most probable materials, by tenths of the probability, with
            the number of tiles, (10, 3).
        calibration_error: mean distance between the two, weighted by tiles.
        behaviours: frequencies.
        memory_distance: energy distance between real and simulated cell states at the last horizon, and between two
            halves of the real ones, relative to the mean distance of two real states.
        other_dice: differences between real courses by measure and horizon; empty if none were played.
    """

    rows: list[Row]
    end_auroc: float
    end_brier: float
    end_share: float
    calibration: np.ndarray
    calibration_error: float
    behaviours: list[Behaviour]
    memory_distance: tuple[float, float]
    other_dice: list[OtherDice] = field(default_factory=list)
