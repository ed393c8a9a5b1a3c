"""The action that the agent chose in this tick, as targets: what a plan is to be told apart from.

Meant for `--given action`: whoever knows the action of this tick knows part of the near future without any plan.
"""

from collections.abc import Callable

import numpy as np

from analysis.features.actions import ACTIONS
from analysis.features.choices import DIRECTIONS
from analysis.features.feature import YES_OR_NO
from analysis.features.observed import Observed
from representation.probes.target import Target

_SUMS_UP_OTHERS = ("is_idle",)


def _moves(option: int, name: str) -> Target:
    return Target(
        f"is_moving_{name}",
        YES_OR_NO,
        f"The agent chose to move {name}.",
        lambda seen: seen.option("Move.Direction") == option,
    )


def _attacked(axis: str) -> Callable[[Observed], np.ndarray]:
    def compute(seen: Observed) -> np.ndarray:
        way = np.zeros(len(seen))
        struck = seen.target_rows >= 0
        there = seen.entity(axis)[seen.target_rows[struck]].astype(np.float64)
        way[struck] = there - seen.own_as_seen(axis)[struck]
        return way

    return compute


PRESENT_ACTION = {
    target.name: target
    for target in (
        *(_moves(option, name) for option, name in enumerate(DIRECTIONS)),
        *(Target.of(feature) for feature in ACTIONS if feature.name not in _SUMS_UP_OTHERS),
        *(
            Target(
                f"attacked_{axis}s",
                "tiles",
                f"Tiles {side} to the entity that the agent chose to attack; 0 if it chose none.",
                _attacked(axis),
            )
            for axis, side in (("row", "south"), ("col", "east"))
        ),
    )
}
