"""What a probe is asked to predict."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.features.feature import YES_OR_NO, Feature
from analysis.features.observed import Observed


@dataclass(frozen=True)
class Target:
    """One quantity to predict from what went on inside a policy.

    Attributes:
        unit: of its values; "0 or 1" for a yes-or-no target.
        compute: from every tick of whole lives to (B,) values; NaN where the question makes no sense.
        curve: that the target belongs to with those that differ in nothing but how far ahead they look.
    """

    name: str
    unit: str
    definition: str
    compute: Callable[[Observed], np.ndarray]
    curve: str | None = None
    ticks_ahead: int | None = None

    @property
    def yes_or_no(self) -> bool:
        """Whether it is scored by AUC; all others are scored by R squared."""
        return self.unit == YES_OR_NO

    @staticmethod
    def of(feature: Feature) -> "Target":
        """Make a target of a behavioural feature."""
        return Target(feature.name, feature.unit, feature.definition, feature.compute)
