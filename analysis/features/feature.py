"""What a behavioural feature is."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.features.observed import Observed

Compute = Callable[[Observed], np.ndarray]
"""From B records to (B,) values, none of them NaN."""

YES_OR_NO = "0 or 1"


@dataclass(frozen=True)
class Feature:
    """One behavioural feature. It may use its record's tick and earlier ones, never later ones.

    Attributes:
        name: how tables and figures call it.
        unit: the unit of its values; "0 or 1" for a yes-or-no feature.
        definition: one sentence that says exactly what is counted.
        compute: from records to (B,) values.
        over_time: it also looks at earlier ticks of a life, so it needs all of them: `compute` gets a history.
        of_tiles: it needs the tiles in view, the largest part of an observation.
    """

    name: str
    unit: str
    definition: str
    compute: Compute
    over_time: bool = False
    of_tiles: bool = False
