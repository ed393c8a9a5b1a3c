"""Whether a path bends as an edit of a planned displacement predicts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from activation_store.directions import Axis, PlannedDisplacement, planned_displacement
from activation_store.interventions import LivesTable, Outcome
from analysis.interventions.effects.controls import Judged, PerEpisode, compare, controls_of, edits, judged
from analysis.interventions.effects.inference import OverEpisodes
from analysis.interventions.effects.outcomes import BEND, EAST, SOUTH, Margins
from analysis.interventions.effects.pairs import Pairs
from analysis.statistics.resampling import Estimate

_PER_TICKS = 100  # of the outcomes south and east
_TURN = 360.0


@dataclass(frozen=True, kw_only=True)
class Bend(Judged):
    """What one edit does to the read-outs of a planned displacement, and to the path that agents take.

    Attributes:
        plan: name of the two directions without their axis, such as masked_3M/lstm_cell.
        ticks: ahead, of the planned displacement.
        predicted: by how many tiles the edit moves the planned displacement in total, south and east together.
        along: how much further agents get in so many ticks than in the twin, in tiles, in the predicted direction.
        across: the same at right angles to it, clockwise on the map.
        angle: between the predicted and the realised change of displacement, in degrees from -180 to 180; its
            interval is over resampled episodes, around the estimate. Without an effect it is anything.
        lives: edited lives with a value.

    All others are as in `Judged`: of the way along the predicted direction, tested by flipping the signs of episodes,
    beside those of controls along the same direction.
    """

    arm: str
    dose: float | None
    plan: str
    ticks: int
    predicted: float
    along: Estimate
    across: Estimate
    angle: Estimate
    episodes: int
    lives: int

    @property
    def measured(self) -> Estimate:
        """See `Judged.measured`."""
        return self.along


def bends_of_edits(
    table: LivesTable, everything: Sequence[Pairs], over: OverEpisodes, margins: Margins, pairing_works: bool
) -> list[Bend]:
    """Measure and test every edit of the trained policy that moves both read-outs of a planned displacement."""
    bends = [
        bend
        for edit in edits(everything)
        for plan, ticks in _plans(table)
        if (bend := _bend(edit, everything, plan, ticks, over, margins)) is not None
    ]
    return judged(bends, pairing_works)


def _plans(table: LivesTable) -> list[tuple[str, int]]:
    """Return the plans whose read-outs along rows and along columns were both recorded, with their horizons."""
    outcomes = map(Outcome.parse, table.outcomes)
    moved = [outcome.of for outcome in outcomes if outcome.measure == "planned" and outcome.against == "total"]
    axes: dict[tuple[str, int], set[Axis]] = {}
    for planned in filter(None, map(planned_displacement, moved)):
        axes.setdefault((planned.plan, planned.ticks), set()).add(planned.axis)
    return sorted(plan for plan, recorded in axes.items() if recorded == {"row", "col"})


def _bend(
    edit: Pairs, everything: Sequence[Pairs], plan: str, ticks: int, over: OverEpisodes, margins: Margins
) -> Bend | None:
    directions = (PlannedDisplacement("row", ticks, plan).direction, PlannedDisplacement("col", ticks, plan).direction)
    moved = [edit.values[Outcome("planned", direction, "total").name] for direction in directions]
    planned = np.stack([edit.episode_means(values, edit.edited) for values in moved], axis=1)  # (E, 2)
    known = np.isfinite(planned).all(axis=1)
    mean = planned[known].mean(axis=0) if known.any() else np.zeros(2)
    predicted = float(np.linalg.norm(mean))
    if not predicted:
        return None
    south, east = mean / predicted
    realised = np.stack([_further(edit, side, ticks) for side in (SOUTH, EAST)], axis=1)  # (E, 2)
    # The map's rows grow southwards, so a quarter turn clockwise takes south to west.
    along, across = realised @ [south, east], realised @ [east, -south]
    per_episode = _along(south, east, ticks)
    error, freedom = over.error(along)
    has_way = np.isfinite(edit.difference(SOUTH) + edit.difference(EAST)) & edit.edited
    return Bend(
        arm=edit.arm.name, dose=edit.arm.dose, plan=plan, ticks=ticks, predicted=predicted, along=over.estimate(along),
        across=over.estimate(across), angle=_angle(along, across, over), episodes=int(np.isfinite(along).sum()),
        lives=int(has_way.sum()), p=over.sign_flip_p(along), error=error, freedom=freedom,
        smallest_p=over.smallest_p(along), against=compare(edit, controls_of(edit, everything), per_episode, over),
        margin=margins.of(BEND),
    )  # fmt: skip


def _further(pairs: Pairs, side: str, ticks: int) -> np.ndarray:
    """Return how many tiles further to that side edited agents get in so many ticks than in the twin, (E,)."""
    return pairs.episode_means(pairs.difference(side), pairs.edited) * ticks / _PER_TICKS


def _along(south: float, east: float, ticks: int) -> PerEpisode:
    """Return the function that gives an arm's further way in a direction, in each episode."""
    return lambda pairs: south * _further(pairs, SOUTH, ticks) + east * _further(pairs, EAST, ticks)


def _angle(along: np.ndarray, across: np.ndarray, over: OverEpisodes) -> Estimate:
    """Return the angle of the mean over episodes, (E,) each, in degrees, with its interval over resampled episodes.

    Angles of resamples are taken relative to the estimate, from -180 to 180 degrees, so that an estimate near 180 has
    an interval around it. There is none with fewer than two episodes.
    """
    known = np.isfinite(along) & np.isfinite(across)
    ways = np.stack([along[known], across[known]], axis=1)  # (E, 2)
    if not len(ways) or not ways.any():
        return Estimate(np.nan)
    value = float(_degrees(ways.mean(axis=0)))
    if len(ways) < 2:
        return Estimate(value)
    turned = _degrees(over.resampled_means(ways)) - value
    low, high = over.percentiles((turned + _TURN / 2) % _TURN - _TURN / 2)
    return Estimate(value, value + float(low), value + float(high))


def _degrees(ways: np.ndarray) -> np.ndarray:
    """Return the angle of ways along and across, (..., 2) -> (...)."""
    return np.degrees(np.arctan2(ways[..., 1], ways[..., 0]))
