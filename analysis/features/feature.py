"""What a behavioural feature is."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.features.observed import Observed

Compute = Callable[[Observed], np.ndarray]
"""A function from B records to (B,) values without NaN."""

YES_OR_NO = "0 or 1"


@dataclass(frozen=True)
class Feature:
    """One behavioural feature. It may use the record's tick and earlier ticks of the same life, never later ones.

    Attributes:
        unit: of its values; "0 or 1" for a yes-or-no feature.
        definition: one sentence that says exactly what is measured.
        compute: function from records to (B,) values.
        over_time: whether it uses earlier ticks of the life; `compute` then gets every tick of each life.
        of_tiles: whether it needs the tiles in view, the largest part of an observation.
        choice: the categorical feature of which it is one option, such as "move"; "" for a feature of its own.
        phrase: what agents do or see where an option is 1, such as "moves west"; "" for a feature of its own.
    """

    name: str
    unit: str
    definition: str
    compute: Compute
    over_time: bool = False
    of_tiles: bool = False
    choice: str = ""
    phrase: str = ""
