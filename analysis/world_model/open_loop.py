"""Predict recorded windows without seeing them, and measure errors tick by tick: beside baselines, and real courses.

The model is given the recorded actions, so that its errors are its own and not those of other dice. Its rivals are
given more, the moves that the agent really made: `copy` shifts the last scene by them and keeps the last memory;
`rules` plays by the game's public rules, and the policy reads what they say.

What a model predicts is the mean over several courses of its latent states, drawn from the prior. The course of the
most probable states is itself an unlikely one: what happens now and then, such as a meal, never happens in it. Of
vitals it is the median of their distribution over all courses, which has the smallest mean error.

Two real courses of an episode, from one tick on, in which an agent does the same, say how well the best prediction of
one of them can do. On average it is no worse than the other course. Nor is it ever more than half-way better: if d is a
distance, d(X, Y) is at most d(X, m) + d(m, Y), so no answer m misses X by less than half of what Y does. This holds for
the share of wrong tiles and for absolute errors of vitals. It also holds for what a cosine lacks to 1: if the mean of
the unit vectors has length r, two draws lack 1 - r^2, and the best answer 1 - r.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import log

import numpy as np
import torch
from torch.nn import functional

from activation_store.records import Records
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo
from agent_zoo.memory import MemoryState
from agent_zoo.observation import ObservationLayout
from agent_zoo.soft_path import log_legality, soft_tick
from analysis.lives import lives_of
from analysis.recorded.sequences import SequenceBatch
from analysis.sparse.scores import Estimate, Units
from analysis.world_model.held_out import life_numbers
from analysis.world_model.imagination import MOVE_HEAD, STYLE_HEAD, informed_start
from analysis.world_model.model import WorldModel
from analysis.world_model.network import WorldState, drawn, median
from analysis.world_model.outcomes import concatenated
from analysis.world_model.policy_interface import imagined_view
from analysis.world_model.scene import (
    MOVES,
    Scene,
    SoftScene,
    displacement,
    edged,
    legal_heads,
    likeliest,
    shift,
    vital_columns,
)
from analysis.world_model.windows import CONTEXT, FIRST_END, Windows, as_windows
from common.user_error import UserError

POLICY_HEADS = (MOVE_HEAD, STYLE_HEAD)
"""Heads whose probabilities are compared; the options of others are rows, which simulated views do not share."""
HIGHER_IS_BETTER = {
    "tiles": True, "entities": True, "vitals": False, "inventory": True, "reward": False, "memory": True,
    "policy": False, **dict.fromkeys(POLICY_HEADS, False),
}  # fmt: skip
"""What is measured: share of tiles that are right, F1 of entities, mean error of health, food and water in points,
share of inventory slots that are right, squared error of the reward, cosine of the policy's cell state with the
recorded one, KL of the recorded policy from the imagined one in nats, and that of each head."""


Differences = dict[str, np.ndarray]
"""How one course of some lives differs from the recorded one, at each of P ticks: each measure, (P,), or of entities
(P, 3), right, found and real; and `horizon` (ticks after the last one that both share), `life` and `episode`, (P,)
int64."""


def scene_errors(predicted: SoftScene, real: Scene, vitals: list[int]) -> dict[str, np.ndarray]:
    """Return the errors of what is seen: of tiles, vitals and items (P,), of entities (P, 3): right, found and real.

    Args:
        vitals: places of health, food and water among the own columns.
    """
    right = (predicted.material.argmax(dim=1) == real.material).float().mean(dim=1)
    there, wanted = likeliest(predicted.kinds.flatten(1)), real.kinds.flatten(1) > 0
    counts = [mask.sum(dim=1).float() for mask in (there & wanted, there, wanted)]
    vital = 100 * (predicted.own[:, vitals] - real.own[:, vitals]).abs().mean(dim=1)
    slots = (predicted.item_type.argmax(dim=2) == real.item_type).float().mean(dim=1)
    errors = {"tiles": right, "entities": torch.stack(counts, dim=1), "vitals": vital, "inventory": slots}
    return {name: error.numpy() for name, error in errors.items()}


def cosine(predicted: torch.Tensor, real: MemoryState) -> np.ndarray:
    """Return the cosines of cell states, (P, units), with those of a memory, (P,)."""
    return functional.cosine_similarity(predicted, real.cell[-1], dim=1).numpy()


def head_log_probabilities(
    policy: RecurrentPolicy, layout: ObservationLayout, memory: MemoryState, real: Scene
) -> dict[str, torch.Tensor]:
    """Log-probabilities of `POLICY_HEADS` after a memory, with the real legality."""
    heads = legal_heads(layout)
    read, decoder = policy.read(memory.hidden[-1]), policy.policy.action_decoder
    pairs = zip(heads, real.legal.split([head.size for head in heads], dim=1), strict=True)
    return {
        head.name: (decoder.own_scores(head, read) + log_legality(legal)).log_softmax(dim=1)
        for head, legal in pairs
        if head.name in POLICY_HEADS
    }


def policy_kl(wanted: Mapping[str, torch.Tensor], predicted: Mapping[str, torch.Tensor]) -> Differences:
    """Return the KL of one policy's log-probabilities, by head, from another's, and the sum over heads, (P,) each."""
    parts = {
        name: (log_probability.exp() * (log_probability - predicted[name]).clamp(-1e3, 1e3)).sum(dim=1)
        for name, log_probability in wanted.items()
    }
    parts["policy"] = torch.stack(list(parts.values())).sum(dim=0)
    return {name: part.numpy() for name, part in parts.items()}


def compared(units: Units, name: str, mine: np.ndarray, other: np.ndarray) -> tuple[Estimate, Estimate, Estimate]:
    """Return estimates of one side's measure, of another's, and of how much better the first is.

    Args:
        name: of the measure, which says in which direction it is better.
        mine: of one side, (P,), or counts, (P, 3), which become F1.
    """
    if mine.ndim == 1:
        return units.mean(mine), units.mean(other), _better(units.mean(mine - other), name)
    first, second = (units.mean(2 * sums[:, 0], np.maximum(sums[:, 1] + sums[:, 2], 1e-9)) for sums in (mine, other))
    # The difference of two ratios, linear around their values, so that it can be resampled as a mean.
    scale = [float((sums[:, 1] + sums[:, 2]).mean()) for sums in (mine, other)]
    influence = [
        one.value + (2 * sums[:, 0] - one.value * (sums[:, 1] + sums[:, 2])) / max(size, 1e-9)
        for one, sums, size in zip((first, second), (mine, other), scale, strict=True)
    ]
    return first, second, _better(units.mean(influence[0] - influence[1]), name)


def _better(difference: Estimate, name: str) -> Estimate:
    if HIGHER_IS_BETTER[name]:
        return difference
    return replace(difference, value=-difference.value, low=-difference.high, high=-difference.low)


RIVALS = ("copy", "rules")
COURSES = 8
"""Courses of latent states that a prediction is the mean of."""


@dataclass(frozen=True, eq=False)
class Errors:
    """The errors of predicted ticks; those of a tick that no life has reached are of its end alone."""

    model: Differences
    rivals: dict[str, Differences]  # by name of `RIVALS`
    # ended: probability that the life had ended before this tick, and whether it had, (E, 2); of all lives that were
    # alive a tick before, from `FIRST_END` on
    ended: np.ndarray
    # confidence: probability of the most probable material of a tile, and whether it was right, by tenths of the
    # probability: number of tiles, sum of probabilities, number right, (10, 3)
    confidence: np.ndarray


@torch.no_grad()
def open_loop(model: WorldModel, windows: Windows, seed: int) -> Iterator[Errors]:
    """Yield the errors of each tick of a batch of windows.

    Of the rivals, `copied` is the last scene seen, shifted by the agent's moves, `ruled` what the rules say, and
    `ruled_memory` that of the policy after it has read this.
    """
    network, generator, rules = model.network, torch.Generator().manual_seed(seed), model.network.rules
    own_heads = partial(head_log_probabilities, model.policy, model.layout)
    start = informed_start(model, windows, None)
    frozen_memory = windows.memory(CONTEXT - 1)
    courses = torch.arange(len(windows)).repeat_interleave(COURSES)  # window of each course; a window's stand together
    state, scene, memory = start.state.take(courses), start.scene.take(courses), frozen_memory.take(courses)
    left, copied, ruled, ruled_memory = torch.arange(len(windows)), start.scene, start.scene, frozen_memory
    for tick in range(CONTEXT, windows.ticks + 1):
        going = windows.going(left, tick)
        if not len(going):
            return
        chosen = _courses_of(going)
        left, copied, ruled, ruled_memory = left[going], copied.take(going), ruled.take(going), ruled_memory.take(going)
        state, scene, memory = state.take(chosen), scene.take(chosen), memory.take(chosen)
        there = windows.lengths[left] > tick
        action = windows.action[left, tick - 1].repeat_interleave(COURSES, dim=0)
        hidden = network.step(state, action)
        state = WorldState(hidden, drawn(network.prior_logits(hidden), generator))
        prediction = network.decode(state, scene, action, decided=True)
        end = prediction.end.sigmoid().unflatten(0, (-1, COURSES)).mean(dim=1)
        asked = len(left) if tick >= FIRST_END else 0
        ended = torch.stack([end, windows.ends[left, tick - 1]], dim=1)[:asked].numpy()
        (seen,) = there.nonzero(as_tuple=True)
        chosen = _courses_of(seen)
        left, copied, ruled, ruled_memory = left[seen], copied.take(seen), ruled.take(seen), ruled_memory.take(seen)
        state, prediction, memory = state.take(chosen), prediction.take(chosen), memory.take(chosen)
        scene, vitals = prediction.scene, median(_mean(prediction.vitals.softmax(dim=2)))
        mean, deviation = model.stats.reward
        foreseen = mean + deviation * _mean(prediction.reward)
        if not len(seen):
            yield Errors({}, {}, ended, np.zeros((10, 3)))
            return
        moved = displacement(windows.where[left, tick - 1], windows.where[left, tick])
        copied = _shifted(copied, moved, network.shape.side)
        body = network.vitals if network.sees_body else []
        ruled = rules.next_scene(ruled, moved, body, network.position)
        shown = partial(
            imagined_view, kind_means=model.stats.kind_means, layout=model.layout, decided=True, rules=rules
        )  # fmt: skip
        seen_by_rules = shown(model.drifted(ruled), around=windows.around.take(left))
        ruled_memory = soft_tick(model.policy, seen_by_rules.observation, ruled_memory)[1]
        expected = model.weighed(scene)
        view = shown(expected, around=windows.around.take(left.repeat_interleave(COURSES)))
        choices, memory = soft_tick(model.policy, view.observation, memory)
        real_memory, (_, real) = windows.memory(tick, left), windows.at(tick)
        predicted = _mean_scene(expected)
        predicted = replace(predicted, own=predicted.own.index_copy(1, torch.tensor(network.vitals), vitals))
        policy = {name: _mixed(choices.log_probabilities[name]) for name in POLICY_HEADS}
        wanted = own_heads(real_memory, real)
        side = partial(_side, windows, left, tick, real, real_memory, wanted, network.vitals)
        kept = {
            "copy": (copied, windows.reward[left, CONTEXT - 2], frozen_memory.take(left)),
            "rules": (model.drifted(ruled), mean.expand(len(left)), ruled_memory),
        }
        others = {
            name: side(shown, reward, own.cell[-1], own_heads(own, real)) for name, (shown, reward, own) in kept.items()
        }
        mine = side(predicted, foreseen, _mean(memory.cell[-1]), policy)
        yield Errors(mine, others, ended, _confidence(predicted, real))


def _side(
    windows: Windows, there: torch.Tensor, tick: int, real: Scene, memory: MemoryState,
    wanted: Mapping[str, torch.Tensor], vitals: list[int], shown: SoftScene, reward: torch.Tensor, cell: torch.Tensor,
    decided: Mapping[str, torch.Tensor],
) -> Differences:  # fmt: skip
    """Return how scenes, rewards, cell states and decisions of one side differ from those of some windows in a tick."""
    return {
        "horizon": np.full(len(there), tick - CONTEXT + 1), "life": life_numbers(windows, there),
        "episode": windows.identity[there, 0].numpy(), **scene_errors(shown, real, vitals),
        "memory": cosine(cell, memory), "reward": (reward - windows.reward[there, tick - 1]).square().numpy(),
        **policy_kl(wanted, decided),
    }  # fmt: skip


def _courses_of(windows: torch.Tensor) -> torch.Tensor:
    """Return the numbers of all courses of some windows, (W,) to (W * COURSES,)."""
    return (windows.unsqueeze(1) * COURSES + torch.arange(COURSES)).flatten()


def _mean(courses: torch.Tensor) -> torch.Tensor:
    """Return the mean over the courses of each window, (P * COURSES, ...) to (P, ...)."""
    return courses.unflatten(0, (-1, COURSES)).mean(dim=1)


def _mixed(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the mean probabilities over courses, (P * COURSES, options) to (P, options)."""
    return log_probabilities.unflatten(0, (-1, COURSES)).logsumexp(dim=1) - log(COURSES)


def _mean_scene(scene: SoftScene) -> SoftScene:
    """Return mean probabilities and numbers over the courses of each window."""
    same = ("terrain", "seen", "since")  # as in the first course
    return SoftScene(
        **{name: array[::COURSES] if name in same else _mean(array) for name, array in vars(scene).items()}
    )


def joined(parts: list[Errors]) -> Errors:
    """Concatenate errors, some of which are of ticks that lives have reached."""
    reached = [part for part in parts if part.model]
    rivals = {name: concatenated(part.rivals[name] for part in reached) for name in RIVALS}
    ended = np.concatenate([part.ended for part in parts])
    confidence = np.sum([part.confidence for part in parts], axis=0)
    return Errors(concatenated(part.model for part in reached), rivals, ended, confidence)


def _shifted(scene: SoftScene, moved: torch.Tensor, side: int) -> SoftScene:
    """Shift a scene by the agent's own moves; tiles that come into view get the nearest material."""
    one_hot = functional.one_hot(moved, len(MOVES)).float()
    planes = scene.planes().unflatten(2, (side, side))
    materials = scene.material.shape[1]
    material = shift(planes[:, :materials], one_hot, edged(planes[:, :materials])).flatten(2)
    rest = shift(planes[:, materials:], one_hot).flatten(2)
    return replace(scene, material=material, kinds=rest[:, :-2], health=rest[:, -2], target=rest[:, -1])


def _confidence(predicted: SoftScene, real: Scene) -> np.ndarray:
    probability, material = predicted.material.max(dim=1)  # (P, V) each
    right = (material == real.material).double()
    tenth = (probability * 10).long().clamp(0, 9).flatten()
    sums = [
        torch.zeros(10, dtype=torch.float64).index_add(0, tenth, numbers.double().flatten())
        for numbers in (torch.ones_like(probability), probability, right)
    ]
    return torch.stack(sums, dim=1).numpy()


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
    return _dice_rows(between, predicted, copied, ruled, seed)


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
        shown, paid = other.soft(layout.materials), others.reward[there, tick - 1]
        yield _side(
            windows, there, tick, real, memory, own, vitals, shown, paid, other_memory.cell[-1], others_own
        )  # fmt: skip


def _predicted(model: WorldModel, windows: Windows, between: Differences, seed: int) -> Iterator[Differences]:
    """Yield the errors of the model, of the copy and of the rules at the same ticks of the same lives."""
    errors = joined(list(open_loop(model, windows, seed)))
    mine = errors.model
    ticks = 1 + int(max(mine["horizon"].max(), between["horizon"].max()))
    same = np.isin(mine["life"] * ticks + mine["horizon"], between["life"] * ticks + between["horizon"])
    for side in (mine, errors.rivals["copy"], errors.rivals["rules"]):
        yield {name: array[same] for name, array in side.items()}


def _dice_rows(
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
