"""What a behavioural feature is, and a categorical one: several options, each of them a feature that is 0 or 1."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.features.observed import Observed

Compute = Callable[[Observed], np.ndarray]
"""A function from B records to (B,) values without NaN."""

YES_OR_NO = "0 or 1"


@dataclass(frozen=True)
class Feature:
    """One quantity that records tell: a behavioural feature, or a target of probes.

    A feature may use the record's tick and earlier ticks of the same life, never later ones. What is only a target
    (`analysis.probes.targets`) may, gets every tick of whole lives, and is NaN where the question makes no sense.
    """

    name: str
    unit: str  # of its values; "0 or 1" for a yes-or-no feature
    definition: str  # one sentence that says exactly what is measured
    compute: Compute  # function from records to (B,) values
    over_time: bool = False  # whether it uses earlier ticks of the life; `compute` then gets every tick of each life
    of_tiles: bool = False  # whether it needs the tiles in view, the largest part of an observation
    choice: str = ""  # the categorical feature of which it is one option, such as "move"; "" for a feature of its own
    phrase: str = ""  # what agents do or see where an option is 1, such as "moves west"; "" for a feature of its own
    curve: str | None = None  # that a target belongs to with those that differ in nothing but how far ahead they look
    ticks_ahead: int | None = None

    @property
    def yes_or_no(self) -> bool:
        """Whether probes score it by AUC; all others are scored by R squared."""
        return self.unit == YES_OR_NO


@dataclass(frozen=True, eq=False)
class Category:
    """A categorical feature."""

    name: str
    definition: str
    options: Mapping[str, str]
    """Short name of each option, and the phrase that says what holds in its records, in order."""
    compute: Callable[[Observed], np.ndarray]
    """Function from B records to the number of each record's option, (B,) int64."""
    head: str = ""  # the action head that it reads; "" for none
    over_time: bool = False
    of_tiles: bool = False

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """One yes-or-no feature for each option, such as "move_west"."""
        return tuple(
            Feature(
                f"{self.name}_{option}", YES_OR_NO, f"The agent {phrase}.", self._is(number),
                self.over_time, self.of_tiles, self.name, phrase,
            )
            for number, (option, phrase) in enumerate(self.options.items())
        )  # fmt: skip

    def _is(self, number: int) -> Compute:
        return lambda seen: seen.remembered(self.name, self.compute) == number
