"""The data that learning needs from played ticks, for living agents only; slots as in `stepper`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from agent_zoo.idle_heads import log_probability
from agent_zoo.memory import MemoryState
from agent_zoo.observation import PackedObservation
from reinforcement_learning.game.life import Life
from reinforcement_learning.play.stepper import Arrival, Decision, Stepper
from reinforcement_learning.training.advantages import generalized_advantages


@dataclass(frozen=True)
class Rollout:
    """Decisions of living agents, grouped in segments of consecutive ticks of one life. M decisions, S segments.

    Attributes:
        observation: M observations, in the order of play.
        action: (M, heads) int64.
        log_probability: of the options taken, summed over heads (those that count), (M,) float32.
        value: (M,) float32.
        advantage: (M,) float32.
        order: decisions sorted by segment, then tick, (M,) int64.
        lengths: ticks of each segment, (S,) int64.
        state: memory before each segment's first tick.
        lives: lives that ended.
        spaced: which decisions to take so that those of an agent are some ticks apart, (M,) bool; None if not asked
            for.
    """

    observation: PackedObservation
    action: torch.Tensor
    log_probability: torch.Tensor
    value: torch.Tensor
    advantage: torch.Tensor
    order: torch.Tensor
    lengths: torch.Tensor
    state: MemoryState
    lives: list[Life]
    spaced: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.action)


class RolloutCollector:
    """Plays until enough decisions are made, then returns them as one `Rollout`."""

    def __init__(
        self, stepper: Stepper, horizon: int, gamma: float, gae_lambda: float, spacing: int = 0,
        ignore_idle_heads: bool = False,
    ):  # fmt: skip
        """Collect with the given stepper.

        Args:
            stepper: steps the worlds.
            horizon: maximum length of a segment, in ticks.
            gamma: discount per tick.
            gae_lambda: of generalised advantage estimation.
            spacing: ticks between the decisions of an agent that are `spaced`; 0 if they are not needed.
            ignore_idle_heads: leave choices that the game ignores out of the log-probability.
        """
        self.stepper = stepper
        self.horizon = horizon
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        self.spacing = spacing
        self.log_probability = partial(log_probability, ignore_idle=ignore_idle_heads)

    def collect(self, decisions: int, on_tick: Callable[[int], None]) -> Rollout:
        """Play until at least `decisions` decisions are made.

        Args:
            decisions: agent-steps to collect; the last tick is completed in every world.
            on_tick: called with the agent-steps so far after each tick; may raise to stop.
        """
        tape = _Tape(self.stepper.slots, self.horizon, self.spacing)
        while tape.decisions < decisions:
            decision = self.stepper.decide()
            with self.stepper.stopwatch.time("inference"):
                chosen = decision.sample(self.stepper.action_noise())  # (P, heads)
                chosen_log_probability = self.log_probability(decision.distribution, chosen)  # (P,)
            self.stepper.act(decision, decision.over_slots(chosen))
            with self.stepper.stopwatch.time("copying"):
                tape.record(decision, chosen.cpu(), chosen_log_probability.cpu(), self.stepper.arrival)
            on_tick(tape.decisions)
        return tape.finish(self.stepper.decide(), self.gamma, self.gae_lambda)


class _Tape:
    """The recording of one rollout so far."""

    def __init__(self, slots: int, horizon: int, spacing: int):
        self.horizon = horizon
        self.spacing = spacing
        self.decisions = 0
        self._segments = 0
        self._segment = np.full(slots, -1)  # each slot's current segment
        self._length = np.zeros(slots, dtype=np.int64)  # ticks in each slot's current segment
        self._was_acting = np.zeros(slots, dtype=bool)
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

    def record(self, decision: Decision, action: torch.Tensor, log_probability: torch.Tensor, after: Arrival) -> None:
        acting_among_present = torch.from_numpy(np.flatnonzero(decision.acting[decision.present]))
        self._start_segments(decision)
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
        self.decisions += len(acting)

    def finish(self, last: Decision, gamma: float, gae_lambda: float) -> Rollout:
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
            state=MemoryState(
                torch.cat([state.hidden for state in self._states], dim=1),
                torch.cat([state.cell for state in self._states], dim=1),
            ),
            lives=self._lives,
            spaced=torch.from_numpy(np.concatenate(self._spaced)) if self.spacing else None,
        )

    def _start_segments(self, decision: Decision) -> None:
        starts = decision.acting & (~self._was_acting | (self._length == self.horizon))
        slots = np.flatnonzero(starts)
        self._segment[slots] = self._segments + np.arange(len(slots))
        self._length[slots] = 0
        self._segments += len(slots)
        self._states.append(decision.state.take(torch.from_numpy(np.flatnonzero(starts[decision.present]))))


def _over_slots(decision: Decision) -> np.ndarray:
    """Return the values of all slots, 0 where no agent is present, (slots,) float32."""
    value = np.zeros(len(decision.acting), dtype=np.float32)
    value[decision.present] = decision.value
    return value
