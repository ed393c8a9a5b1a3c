"""What an edit predicts: options move to the side on which a donor's value lies, and paths bend as planned."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from activation_store.directions import Axis, PlannedDisplacement, planned_displacement
from activation_store.interventions import LivesTable, Outcome
from analysis.interventions.effects.controls import (
    DRAWN_DIRECTIONS,
    Judged,
    PerEpisode,
    compare,
    concluded,
    controls_of,
    detectable_effect,
    edits,
    judged,
    on_episodes_of,
    tests_of,
)
from analysis.interventions.effects.inference import FEWEST_FOR_RANK, OverEpisodes, rank_threshold, ranks_among
from analysis.interventions.effects.outcomes import BEND, EAST, FOLLOWS, FOLLOWS_SIDES, SOUTH, Margins
from analysis.interventions.effects.pairs import Pairs
from analysis.statistics.inference import POWER, false_discovery
from analysis.statistics.resampling import Estimate

_HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class Follows(Judged):
    """How often one option of one edit follows the variable by which donors are drawn.

    All others are as in `Judged`, p by flipping the signs of episodes. But a random direction may well move an option
    always in the same way, so that shares are far from normal, near both ends. So beyond_q takes the rank among random
    directions, corrected for all options, variables and doses of a direction (`ranks_among`) and multiplied by the
    number of directions that are edited one by one.
    """

    feature: str
    option: str  # head and option, separated by a slash
    effect: Estimate
    """Mean over episodes of the share of edited ticks in which the option follows, minus 0.5, which is expected if the
    variable does not matter. Ticks with higher and with lower donors count half each."""
    episodes: int  # with a value; it takes lives with higher and lives with lower donors
    lives: int  # edited lives with a share

    @property
    def measured(self) -> Estimate:
        """See `Judged.measured`."""
        return self.effect


def options_that_follow(
    table: LivesTable, everything: Sequence[Pairs], over: OverEpisodes, margins: Margins, pairing_works: bool
) -> list[Follows]:
    """Measure and test every option that has shares on both sides, of every edit of the trained policy."""
    outcomes = list(map(Outcome.parse, table.outcomes))
    low, high = ({option.of for option in outcomes if option.measure == side} for side in FOLLOWS_SIDES)
    measured = [
        (edit, name, option)
        for edit in edits(everything)
        for name in sorted(low & high)
        if (option := _follows(edit, everything, name, over, margins)).episodes
    ]
    options = [option for _, _, option in measured]
    plain = [replace(option, against=tuple(of for of in option.against if not of.drawn)) for option in options]
    ranks, thresholds = _among_directions(measured, everything)
    p = np.array([np.max([option.p, *(of.p for of in option.against)]) for option in plain])
    beyond = np.maximum(false_discovery(p), ranks)
    beyond[[not option.can_be_compared for option in options]] = np.nan
    sizes = [detectable_effect(option, tests_of(options)) for option in plain]
    noise = [option.error * stats.t.isf(1 - POWER, max(1, option.freedom)) for option in options]
    sizes = np.fmax(sizes, thresholds + noise)
    q = false_discovery(np.array([option.p for option in options]))
    return concluded(options, q, beyond, np.where(sizes > _HALF, np.inf, sizes).tolist(), pairing_works)


def _follows(edit: Pairs, everything: Sequence[Pairs], name: str, over: OverEpisodes, margins: Margins) -> Follows:
    per_episode = _above_half(name)
    values = per_episode(edit)
    error, freedom = over.error(values)
    feature, _, option = name.partition("/")
    with_share = np.any([np.isfinite(edit.values[side]) for side in _sides(name)], axis=0)
    return Follows(
        arm=edit.arm.name, dose=edit.arm.dose, feature=feature, option=option, effect=over.estimate(values),
        episodes=int(np.isfinite(values).sum()), lives=int((with_share & edit.edited).sum()),
        p=over.sign_flip_p(values), error=error, freedom=freedom, smallest_p=over.smallest_p(values),
        against=compare(edit, controls_of(edit, everything, _sides(name)[0]), per_episode, over),
        margin=margins.of(FOLLOWS),
    )  # fmt: skip


def _among_directions(
    measured: Sequence[tuple[Pairs, str, Follows]], everything: Sequence[Pairs]
) -> tuple[np.ndarray, np.ndarray]:
    """Return p of the rank of each option's share among those of random directions, and how large it had to be, (N,).

    Options of all doses of a direction are corrected together; the p-values are 0, and nothing is asked for, where no
    random directions were measured.
    """
    ranks, thresholds = np.zeros((2, len(measured)))
    directions = list(dict.fromkeys(edit.arm.direction for edit, _, _ in measured))
    for direction in directions:
        rows = [row for row, (edit, _, _) in enumerate(measured) if edit.arm.direction == direction]
        for kind in DRAWN_DIRECTIONS:
            shares = _shares([measured[row][:2] for row in rows], kind, everything)  # (1 + K, rows)
            if len(shares) < 2:
                continue
            ranks[rows] = np.maximum(ranks[rows], np.minimum(1, len(directions) * ranks_among(shares)))
            most = len(directions) * (1 + FEWEST_FOR_RANK)
            size = rank_threshold(shares) if len(shares) >= most else np.full(len(rows), np.inf)
            thresholds[rows] = np.maximum(thresholds[rows], size)
    return ranks, thresholds


def _shares(options: Sequence[tuple[Pairs, str]], kind: str, everything: Sequence[Pairs]) -> np.ndarray:
    """Return mean shares above one half of edits and of K random directions, the same over doses, (1 + K, options).

    Those of random directions are NaN for an option that none of them moves.
    """
    columns = []
    for edit, name in options:
        per_episode = _above_half(name)
        arms = [edit, *controls_of(edit, everything, _sides(name)[0]).get(kind, [])]
        columns.append([_mean(on_episodes_of(edit, arm, per_episode(arm))) for arm in arms])
    fewest = min((len(column) for column in columns if np.isfinite(column[1:]).any()), default=1)
    return np.array([[*column, *[np.nan] * fewest][:fewest] for column in columns]).T


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def _sides(name: str) -> tuple[str, ...]:
    """Return the names of the outcomes that say how often an option follows lower and higher donors."""
    return tuple(Outcome(side, name).name for side in FOLLOWS_SIDES)


def _above_half(name: str) -> PerEpisode:
    """Return the function that gives an arm's share above one half in each episode."""

    def per_episode(pairs: Pairs) -> np.ndarray:
        sides = [pairs.episode_means(pairs.values[side], pairs.edited) for side in _sides(name)]
        return np.mean(sides, axis=0) - _HALF

    return per_episode


_PER_TICKS = 100  # of the outcomes south and east
_TURN = 360.0


@dataclass(frozen=True, kw_only=True)
class Bend(Judged):
    """What one edit does to the read-outs of a planned displacement, and to the path that agents take.

    All others are as in `Judged`: of the way along the predicted direction, tested by flipping the signs of episodes,
    beside those of controls along the same direction.
    """

    plan: str  # name of the two directions without their axis, such as masked_3M/lstm_cell
    ticks: int  # ahead, of the planned displacement
    predicted: float  # by how many tiles the edit moves the planned displacement in total, south and east together
    along: Estimate
    """How much further agents get in so many ticks than in the twin, in tiles, in the predicted direction."""
    across: Estimate  # the same at right angles to it, clockwise on the map
    angle: Estimate
    """Between the predicted and the realised change of displacement, in degrees from -180 to 180; its interval is over
    resampled episodes, around the estimate. Without an effect it is anything."""
    episodes: int
    lives: int  # edited lives with a value

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

    def per_episode(pairs: Pairs) -> np.ndarray:
        return south * _further(pairs, SOUTH, ticks) + east * _further(pairs, EAST, ticks)

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
    turned = _degrees(over.resampled_means(ways)) - value
    ends = over.interval(0.0, (turned + _TURN / 2) % _TURN - _TURN / 2, len(ways))
    low, high = value + ends.clip(-_TURN / 2, _TURN / 2)
    return Estimate(value, float(low), float(high))


def _degrees(ways: np.ndarray) -> np.ndarray:
    """Return the angle of ways along and across, (..., 2) -> (...)."""
    return np.degrees(np.arctan2(ways[..., 1], ways[..., 0]))
