"""The names of planned displacements: how far south or east of where it stands an agent will be some ticks later.

Probes name their targets so, and directions end with the name of their target. Interventions along such a direction say
whether the path bends as the direction predicts.
"""

import re
from dataclasses import dataclass
from typing import Literal

Axis = Literal["row", "col"]

_NAME = re.compile(r"(?:.*/)?(row|col)s_in_([1-9][0-9]{0,3})_ticks")


@dataclass(frozen=True)
class PlannedDisplacement:
    """What a direction reads.

    Attributes:
        axis: row, tiles to the south; or col, tiles to the east.
        ticks: how far ahead.
    """

    axis: Axis
    ticks: int

    @property
    def name(self) -> str:
        """The name of the target, such as rows_in_10_ticks."""
        return f"{self.axis}s_in_{self.ticks}_ticks"


def planned_displacement(name: str) -> PlannedDisplacement | None:
    """Return what the direction of that name reads; None if it is no planned displacement."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return PlannedDisplacement("row" if found[1] == "row" else "col", int(found[2]))
