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
from representation.sequences import SequenceBatch
from representation.sparse_autoencoder.scores import Units
from representation.world_model.held_out import life_numbers
from representation.world_model.model import WorldModel
from representation.world_model.open_loop import joined, open_loop
from representation.world_model.quality_results import OtherDice
from representation.world_model.scene import vital_columns
from representation.world_model.tick_errors import (
    HIGHER_IS_BETTER,
    compared,
    cosine,
    head_log_probabilities,
    policy_kl,
    scene_errors,
)
from representation.world_model.windows import CONTEXT, Windows, as_windows
from user_error import UserError

_BEST = {"tiles": 1.0, "vitals": 0.0, "memory": 1.0}
"""Measures for which there is such a bound, with their values if nothing is wrong."""


@dataclass(frozen=True, eq=False)
class Differences:
    """How the second course of some lives differs from the first, at each tick that both reach. P of them.

    Attributes:
        horizon: ticks after the last one that both share, from 1, (P,) int64.
        life: number of the life, (P,) int64.
        episode: (P,) int64.
        measures: as of `open_loop.Errors`.
    """

    horizon: np.ndarray
    life: np.ndarray
    episode: np.ndarray
    measures: dict[str, np.ndarray]

    @staticmethod
    def concatenate(parts: "list[Differences]") -> "Differences":
        """Join one or more parts."""
        horizon, life, episode = (
            np.concatenate([getattr(each, name) for each in parts]) for name in ("horizon", "life", "episode")
        )
        names = parts[0].measures
        return Differences(
            horizon, life, episode, {name: np.concatenate([each.measures[name] for each in parts]) for name in names}
        )

    def take(self, chosen: np.ndarray) -> "Differences":
        """Return some of them."""
        measures = {name: each[chosen] for name, each in self.measures.items()}
        return Differences(self.horizon[chosen], self.life[chosen], self.episode[chosen], measures)


def measure_other_dice(
    model: WorldModel, courses: Iterable[tuple[Records, Records]], seed: int, report: Callable[[int], None]
) -> list[OtherDice]:
    """Compare pairs of courses, and the model's predictions and the copy with the first of each.

    Args:
        model: to measure.
        courses: of one episode each: records of the same agents, from `CONTEXT` ticks before the courses part.
        seed: of the model's latent states and of resamples.
        report: called with the number of pairs done.

    Raises:
        UserError: no life lasts a tick longer in both courses of any pair.
    """
    parts = list[tuple[Differences, Differences, Differences]]()
    for number, (real, other) in enumerate(courses):
        windows, others = (course_windows(each, model.policy, model.info) for each in (real, other))
        if ticks := list(differences(model.policy, model.info, windows, others)):
            between = Differences.concatenate(ticks)
            parts.append((between, *_predicted(model, windows, between, seed + number)))
        report(number + 1)
    if not parts:
        raise UserError("no life goes on in both courses of any branch: ask for more of them")
    between, predicted, copied = (Differences.concatenate(list(each)) for each in zip(*parts, strict=True))
    return _rows(between, predicted, copied, seed)


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
        policy: that the agents play.
        info: of its checkpoint.
        windows: the first course, as it was recorded.
        others: the other one, of the same lives in the same order.
    """
    layout, vitals = info.layout, vital_columns(info.layout)
    for tick in range(CONTEXT, min(windows.ticks, others.ticks)):
        (there,) = ((windows.lengths > tick) & (others.lengths > tick)).nonzero(as_tuple=True)
        if not len(there):
            return
        real, other = (each.scene.take(each.starts[there] + tick) for each in (windows, others))
        memory, other_memory = (each.memory(tick, there) for each in (windows, others))
        own, others_own = (head_log_probabilities(policy, layout, each, real) for each in (memory, other_memory))
        measures = {
            **scene_errors(other.soft(layout.materials), real, vitals),
            "memory": cosine(other_memory.cell[-1], memory),
            "policy": policy_kl(own, others_own),
        }
        horizon = np.full(len(there), tick - CONTEXT + 1)
        yield Differences(horizon, life_numbers(windows, there), windows.identity[there, 0].numpy(), measures)


def _predicted(model: WorldModel, windows: Windows, between: Differences, seed: int) -> tuple[Differences, Differences]:
    """Return the errors of the model and of the copy at the same ticks of the same lives."""
    errors = joined(list(open_loop(model, windows, seed)))
    ticks = 1 + int(max(errors.horizon.max(), between.horizon.max()))
    same = np.isin(errors.life * ticks + errors.horizon, between.life * ticks + between.horizon)
    sides = (errors.model, errors.copied)
    model_errors, copied = (Differences(errors.horizon, errors.life, errors.episode, each).take(same) for each in sides)
    return model_errors, copied


def _rows(between: Differences, model: Differences, copied: Differences, seed: int) -> list[OtherDice]:
    rows = []
    for horizon in np.unique(between.horizon).tolist():
        chosen = between.horizon == horizon
        other, mine, copy = (each.take(chosen) for each in (between, model, copied))
        units = Units.of(other.life, other.episode, seed)
        for name, higher in HIGHER_IS_BETTER.items():
            sides = [each.measures[name].astype(float) for each in (mine, other, copy)]
            predicted, drawn, better = compared(units, sides[0], sides[1])
            _, copying, _ = compared(units, sides[0], sides[2])
            sign = 1 if higher else -1
            low, high = sorted((sign * better.low, sign * better.high))
            bound = (drawn.value + _BEST[name]) / 2 if name in _BEST else float("nan")
            rows.append(
                OtherDice(name, horizon, drawn.value, drawn.low, drawn.high, bound, predicted.value, copying.value,
                          sign * better.value, low, high, int(chosen.sum()), units.name)
            )  # fmt: skip
    return rows
