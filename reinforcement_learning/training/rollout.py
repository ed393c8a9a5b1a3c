"""The data that learning needs from played ticks, for living agents only; slots as in `stepper`.

Worlds may be in several groups, which take turns: while the policy decides for one, the workers of another play. Each
group is recorded separately, so the rollout does not depend on how long any process takes.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.distribution import log_probability
from agent_zoo.observation import PackedObservation
from reinforcement_learning.game.life import Life
from reinforcement_learning.play.stepper import Arrival, Decision, Stepper


@dataclass(frozen=True)
class Rollout:
    """Decisions of living agents, grouped in segments of consecutive ticks of one life. M decisions, S segments."""

    observation: PackedObservation  # M observations: one group of worlds after the other, each in the order of play
    action: torch.Tensor  # (M, heads) int64
    log_probability: torch.Tensor  # of the options taken, summed over heads (those that count), (M,) float32
    value: torch.Tensor  # (M,) float32
    advantage: torch.Tensor  # (M,) float32
    order: torch.Tensor  # decisions sorted by segment, then tick, (M,) int64
    lengths: torch.Tensor  # ticks of each segment, (S,) int64
    state: MemoryState  # memory before each segment's first tick
    lives: list[Life]
    spaced: torch.Tensor | None = None
    """Which decisions to take so that those of an agent are some ticks apart, (M,) bool; None if not asked for."""

    def __len__(self) -> int:
        return len(self.action)

    def to(self, device: torch.device) -> "Rollout":
        """Return the rollout with all that the network learns from on another device; the segments stay on the CPU."""
        needed = ("observation", "action", "log_probability", "value", "advantage", "state")
        return replace(self, **{name: getattr(self, name).to(device) for name in needed})


@dataclass(frozen=True)
class RolloutCollector:
    """Plays until enough decisions are made, then returns them as one `Rollout`."""

    steppers: Sequence[Stepper]  # each steps one group of worlds; all have the same policy
    horizon: int  # maximum length of a segment, in ticks
    gamma: float
    gae_lambda: float
    spacing: int = 0  # ticks between the decisions of an agent that are `spaced`; 0 if they are not needed
    ignore_idle_heads: bool = False

    def collect(self, decisions: int, on_tick: Callable[[int], None]) -> Rollout:
        """Play until at least `decisions` decisions are made.

        Args:
            decisions: agent-steps to collect; the last tick is completed in every world.
            on_tick: called with the agent-steps so far after each tick; may raise to stop.
        """
        tapes = [_Tape(stepper, self.horizon, self.spacing, self.ignore_idle_heads) for stepper in self.steppers]
        made = 0
        with _threads_for_each_of(len(tapes)):
            while made < decisions:
                for tape in tapes:
                    tape.end_tick()
                    made += tape.begin_tick()
                on_tick(made)
            for tape in tapes:
                tape.end_tick()
            parts = [tape.finish(self.gamma, self.gae_lambda) for tape in tapes]
        return _joined(parts)


@contextlib.contextmanager
def _threads_for_each_of(groups: int) -> Iterator[None]:
    """Let torch use one group's share of its threads: the workers of the other groups need the other cores.

    Worlds in this process need none, but the last bits of torch's results depend on its threads.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // groups))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _joined(parts: Sequence[Rollout]) -> Rollout:
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *(len(part) for part in parts[:-1])])
    spaced = [part.spaced for part in parts if part.spaced is not None]
    return Rollout(
        observation=PackedObservation.concatenate([part.observation for part in parts]),
        action=torch.cat([part.action for part in parts]),
        log_probability=torch.cat([part.log_probability for part in parts]),
        value=torch.cat([part.value for part in parts]),
        advantage=torch.cat([part.advantage for part in parts]),
        order=torch.cat([part.order + int(first) for first, part in zip(before, parts, strict=True)]),
        lengths=torch.cat([part.lengths for part in parts]),
        state=MemoryState.concatenate([part.state for part in parts]),
        lives=[life for part in parts for life in part.lives],
        spaced=torch.cat(spaced) if spaced else None,
    )


class _Tape:
    """Plays one group of worlds, and records its rollout; other groups can have their turn within a tick."""

    def __init__(self, stepper: Stepper, horizon: int, spacing: int, ignore_idle_heads: bool):
        self.stepper, self.horizon, self.spacing, self.ignore_idle_heads = stepper, horizon, spacing, ignore_idle_heads
        self._begun: tuple[Decision, np.ndarray, torch.Tensor, torch.Tensor] | None = None
        self._segments = 0
        self._segment = np.full(stepper.slots, -1)  # each slot's current segment
        self._length = np.zeros(stepper.slots, dtype=np.int64)  # ticks in each slot's current segment
        self._was_acting = np.zeros(stepper.slots, dtype=bool)
        self._observations: list[PackedObservation] = []
        self._actions: list[torch.Tensor] = []
        self._log_probabilities: list[torch.Tensor] = []
        self._states: list[MemoryState] = []
        self._segment_of: list[np.ndarray] = []
        self._value: list[np.ndarray] = []
        self._reward: list[np.ndarray] = []
        self._acting: list[np.ndarray] = []
        self._lives: list[Life] = []
        self._spaced: list[np.ndarray] = []

    def begin_tick(self) -> int:
        decision = self.stepper.decide()
        with self.stepper.stopwatch.time("inference"):
            chosen = decision.sample(self.stepper.action_noise())  # (P, heads)
            chosen_log_probability = log_probability(decision.distribution, chosen, self.ignore_idle_heads)  # (P,)
        actions = decision.over_slots(chosen)
        self.stepper.begin(decision, actions)
        self._begun = (decision, actions, chosen.cpu(), chosen_log_probability.cpu())
        return int(decision.acting.sum())

    def end_tick(self) -> None:
        """Wait for the tick that was begun, if any, and record it."""
        if self._begun is None:
            return
        decision, actions, chosen, chosen_log_probability = self._begun
        self._begun = None
        self.stepper.end(actions)
        with self.stepper.stopwatch.time("copying"):
            self._record(decision, chosen, chosen_log_probability, self.stepper.arrival)

    def _record(self, decision: Decision, action: torch.Tensor, log_probability: torch.Tensor, after: Arrival) -> None:
        acting_among_present = torch.from_numpy(np.flatnonzero(decision.acting[decision.present]))
        starts = decision.acting & (~self._was_acting | (self._length == self.horizon))
        slots = np.flatnonzero(starts)
        self._segment[slots] = self._segments + np.arange(len(slots))
        self._length[slots] = 0
        self._segments += len(slots)
        self._states.append(decision.state.take(torch.from_numpy(np.flatnonzero(starts[decision.present]))))
        acting = np.flatnonzero(decision.acting)
        self._length[acting] += 1
        self._segment_of.append(self._segment[acting])
        self._was_acting = decision.acting
        self._observations.append(decision.observation.take(acting_among_present))
        self._actions.append(action[acting_among_present])
        self._log_probabilities.append(log_probability[acting_among_present])
        self._value.append(_over_slots(decision))
        if self.spacing:  # each slot has its turn, so that every tick has some
            self._spaced.append((acting + len(self._acting)) % self.spacing == 0)
        self._acting.append(decision.acting)
        self._reward.append(after.reward)
        self._lives.extend(after.lives)

    def finish(self, gamma: float, gae_lambda: float) -> Rollout:
        last = self.stepper.decide()
        acting = np.stack(self._acting)  # (T, slots)
        value = np.stack([*self._value, _over_slots(last)])  # (T + 1, slots)
        still_acting = np.concatenate([acting, last.acting[None]])
        advantage = generalized_advantages(np.stack(self._reward), value, still_acting, gamma, gae_lambda)
        segment_of = torch.from_numpy(np.concatenate(self._segment_of))
        return Rollout(
            observation=PackedObservation.concatenate(self._observations),
            action=torch.cat(self._actions),
            log_probability=torch.cat(self._log_probabilities),
            value=torch.from_numpy(value[:-1][acting]),
            advantage=torch.from_numpy(advantage[acting]),
            order=torch.argsort(segment_of, stable=True),
            lengths=torch.bincount(segment_of),
            state=MemoryState.concatenate(self._states),
            lives=self._lives,
            spaced=torch.from_numpy(np.concatenate(self._spaced)) if self.spacing else None,
        )


def _over_slots(decision: Decision) -> np.ndarray:
    """Return the values of all slots, 0 where no agent is present, (slots,) float32."""
    value = np.zeros(len(decision.acting), dtype=np.float32)
    value[decision.present] = decision.value
    return value


def generalized_advantages(
    reward: np.ndarray, value: np.ndarray, acting: np.ndarray, gamma: float, gae_lambda: float
) -> np.ndarray:
    """Estimate advantages (Schulman et al. 2016, equations 11 and 16) for N slots over T ticks.

    A slot holds an acting agent or none. An agent that dies at tick t + 1 has value 0 there and is not acting. An agent
    whose episode is cut off is not acting either, but has the value of its last observation, so its future rewards are
    bootstrapped rather than counted as 0.

    Args:
        reward: for the action at each tick, (T, N) float32.
        value: the critic's estimate, 0 where no agent lives, (T + 1, N) float32.
        acting: whether an agent chose an action at this tick, (T + 1, N) bool.
        gamma: discount per tick.
        gae_lambda: 0 gives one-step temporal differences, 1 full returns.

    Returns:
        (T, N) float32; meaningless where no agent was acting.
    """
    advantage = np.zeros_like(reward)
    following = np.zeros_like(reward[0])
    for tick in reversed(range(len(reward))):
        difference = reward[tick] + gamma * value[tick + 1] - value[tick]
        following = difference + gamma * gae_lambda * acting[tick + 1] * following
        advantage[tick] = following
    return advantage
