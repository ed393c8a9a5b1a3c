"""Categorical features: one of several options a record. Each option is a feature that is 0 or 1."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.features.feature import YES_OR_NO, Compute, Feature
from analysis.features.observed import Observed


@dataclass(frozen=True, eq=False)
class Category:
    """A categorical feature.

    Attributes:
        name: such as "move".
        definition: one sentence that says what is measured.
        options: short name of each option, and the phrase that says what holds in its records, in order.
        compute: function from B records to the number of each record's option, (B,) int64.
        head: the action head that it reads; "" for none.
        over_time: as of `Feature`.
        of_tiles: as of `Feature`.
    """

    name: str
    definition: str
    options: Mapping[str, str]
    compute: Callable[[Observed], np.ndarray]
    head: str = ""
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
