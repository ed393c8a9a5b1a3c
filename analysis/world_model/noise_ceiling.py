"""How far two real courses of an episode differ from one tick on, where an agent does the same in both.

Two draws from one distribution say how well the best prediction of one of them can do. On average it is no worse than
the other draw. Nor is it ever more than half-way better: if d is a distance, d(X, Y) is at most d(X, m) + d(m, Y), so
no answer m misses X by less than half of what Y does. This holds for the share of wrong tiles and for absolute errors
of vitals. It also holds for what a cosine lacks to 1: if the mean of the unit vectors has length r, two draws lack
1 - r^2, and the best answer 1 - r.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from activation_store.records import Records
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo
from analysis.lives import lives_of
from analysis.recorded.sequences import SequenceBatch
from analysis.sparse.scores import Units
from analysis.statistics.resampling import Estimate
from analysis.world_model.held_out import life_numbers
from analysis.world_model.model import WorldModel
from analysis.world_model.open_loop import (
    HIGHER_IS_BETTER,
    Differences,
    compared,
    cosine,
    head_log_probabilities,
    joined,
    open_loop,
    policy_kl,
    scene_errors,
)
from analysis.world_model.outcomes import concatenated
from analysis.world_model.scene import vital_columns
from analysis.world_model.windows import CONTEXT, Windows, as_windows
from common.user_error import UserError

_BEST = {"tiles": 1.0, "vitals": 0.0, "memory": 1.0}
"""Measures for which there is such a bound, with their values if nothing is wrong."""


@dataclass(frozen=True)
class OtherDice:
    """How far two real courses from one state differ in one measure at one horizon, with 95% intervals."""

    measure: str
    horizon: int  # ticks after the last one that both courses share
    other: Estimate  # of the course with other dice, against the course as it was
    # bound: what no prediction without knowledge of the dice exceeds on average, half-way from `other` to no
    # difference; NaN for measures without such a bound
    bound: float
    model: float  # model, copied, ruled: of the world model, of copying the last tick and of the rules, in these ticks
    copied: float
    ruled: float
    # closed: share of the way from the rules to `bound` that the model goes, which is the least share of the way to
    # the best possible prediction; NaN without a bound
    closed: Estimate
    # better: how much better the model is than the other course; above 0 is better, whichever way the measure points
    better: Estimate
    ticks: int
    unit: str  # what is resampled: episode or life


def measure_other_dice(
    model: WorldModel, courses: Iterable[tuple[Records, Records]], seed: int, report: Callable[[int], None]
) -> list[OtherDice]:
    """Compare pairs of courses, and the model's predictions and the copy with the first of each.

    Args:
        courses: of one episode each: records of the same agents, from `CONTEXT` ticks before the courses part.

    Raises:
        UserError: no life lasts a tick longer in both courses of any pair.
    """
    parts = list[tuple[Differences, ...]]()
    for number, (real, other) in enumerate(courses):
        windows, others = (course_windows(side, model.policy, model.info) for side in (real, other))
        if ticks := list(differences(model.policy, model.info, windows, others)):
            between = concatenated(ticks)
            parts.append((between, *_predicted(model, windows, between, seed + number)))
        report(number + 1)
    if not parts:
        raise UserError("no life goes on in both courses of any branch: ask for more of them")
    between, predicted, copied, ruled = (concatenated(columns) for columns in zip(*parts, strict=True))
    return _rows(between, predicted, copied, ruled, seed)


def course_windows(records: Records, policy: RecurrentPolicy, info: CheckpointInfo) -> Windows:
    """Turn the records of some agents in consecutive ticks of one episode into a window for each, in order of lives."""
    lives = lives_of(records)
    return as_windows(
        SequenceBatch(records.take(lives.order), lives.lengths, np.zeros(len(lives), np.int64)), policy, info
    )


@torch.no_grad()
def differences(
    policy: RecurrentPolicy, info: CheckpointInfo, windows: Windows, others: Windows
) -> Iterator[Differences]:
    """Compare two courses of the same lives, and yield the differences of each tick that a life reaches in both.

    Args:
        others: the other one, of the same lives in the same order.
    """
    layout, vitals = info.layout, vital_columns(info.layout)
    for tick in range(CONTEXT, min(windows.ticks, others.ticks)):
        (there,) = ((windows.lengths > tick) & (others.lengths > tick)).nonzero(as_tuple=True)
        if not len(there):
            return
        real, other = (side.scene.take(side.starts[there] + tick) for side in (windows, others))
        memory, other_memory = (side.memory(tick, there) for side in (windows, others))
        own, others_own = (head_log_probabilities(policy, layout, state, real) for state in (memory, other_memory))
        yield {
            "horizon": np.full(len(there), tick - CONTEXT + 1), "life": life_numbers(windows, there),
            "episode": windows.identity[there, 0].numpy(),
            **scene_errors(other.soft(layout.materials), real, vitals),
            "reward": (windows.reward - others.reward)[there, tick - 1].square().numpy(),
            "memory": cosine(other_memory.cell[-1], memory), **policy_kl(own, others_own),
        }  # fmt: skip


def _predicted(model: WorldModel, windows: Windows, between: Differences, seed: int) -> Iterator[Differences]:
    """Yield the errors of the model, of the copy and of the rules at the same ticks of the same lives."""
    errors = joined(list(open_loop(model, windows, seed)))
    mine = errors.model
    ticks = 1 + int(max(mine["horizon"].max(), between["horizon"].max()))
    same = np.isin(mine["life"] * ticks + mine["horizon"], between["life"] * ticks + between["horizon"])
    for side in (mine, errors.rivals["copy"], errors.rivals["rules"]):
        yield {name: array[same] for name, array in side.items()}


def _rows(
    between: Differences, model: Differences, copied: Differences, ruled: Differences, seed: int
) -> list[OtherDice]:
    rows = []
    for horizon in np.unique(between["horizon"]).tolist():
        chosen = between["horizon"] == horizon
        units = Units.of(between["life"][chosen], between["episode"][chosen], seed)
        for name in HIGHER_IS_BETTER:
            mine, other, copy, rules = (side[name][chosen].astype(float) for side in (model, between, copied, ruled))
            predicted, drawn, better = compared(units, name, mine, other)
            copying, ruling = (compared(units, name, mine, rival)[1].value for rival in (copy, rules))
            bound, closed = float("nan"), Estimate(float("nan"))
            if name in _BEST:
                bound = (drawn.value + _BEST[name]) / 2
                sign = 1 if HIGHER_IS_BETTER[name] else -1
                way = sign * ((other + _BEST[name]) / 2 - rules)
                closed = units.mean(sign * (mine - rules), way) if way.sum() > 0 else closed
            ticks = int(chosen.sum())
            rows.append(
                OtherDice(
                    name, horizon, drawn, bound, predicted.value, copying, ruling, closed, better, ticks, units.name
                )
            )
    return rows
