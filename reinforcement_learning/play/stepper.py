"""Step vectorised worlds with recurrent policies.

A slot is one agent's place in one world. In each tick a slot is *present* if its agent is alive and has an observation,
and *acting* if it also chooses an action: at an episode's cut-off, agents are present but no longer act. A slot that is
not acting has its memory zeroed, so every life starts with an empty memory.

The actions in each world since its episode began are kept: with the episode's seed, they suffice to recreate it.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.distribution import ActionDistribution
from agent_zoo.observation import ObservationLayout, PackedObservation, pack
from agent_zoo.observation_masking import options_in_game
from reinforcement_learning.game.environment import EpisodeStart
from reinforcement_learning.game.life import Life


@dataclass(frozen=True)
class Moment:
    """One tick of one episode."""

    first_seed: int  # of the world's whole sequence of episodes
    number: int  # of the episode in that sequence, from 0
    tick: int  # of the episode, from 0


class EpisodeJournal:
    """Records the actions in each world since its current episode began."""

    def __init__(self, starts: Sequence[EpisodeStart]):
        self._starts = list(starts)
        self._actions = [list(start.actions) for start in starts]
        self._world = {start.first_seed: world for world, start in enumerate(starts)}

    def record(self, actions: np.ndarray, began: Sequence[EpisodeStart]) -> None:
        """Add one tick: the actions of all slots, (slots, heads), and episodes that began instead of playing them."""
        for world, taken in enumerate(np.split(actions.astype(np.int16), len(self._starts))):
            self._actions[world].append(taken)
        self.begin(began)

    def begin(self, began: Sequence[EpisodeStart]) -> None:
        """Take the episodes that begin, with the weights that their tasks were drawn with."""
        for episode in began:
            world = self._world[episode.first_seed]
            self._starts[world], self._actions[world] = episode, []

    def moments(self) -> list[Moment]:
        """Return the tick that each world plays next."""
        return [
            Moment(start.first_seed, start.number, tick=len(actions))
            for start, actions in zip(self._starts, self._actions, strict=True)
        ]

    def starts(self) -> list[EpisodeStart]:
        """Return for each world the start that takes it to its current state."""
        return [
            replace(start, actions=np.stack(actions)) if actions else start
            for start, actions in zip(self._starts, self._actions, strict=True)
        ]


ACTIONS, RANDOM_ACTIONS = 0, 1
"""Streams of numbers: behind the options that policies choose, and behind acts at random."""
_STREAMS = 2
LEARNER = 0


class Stopwatch:
    """Adds up the seconds spent in named phases."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def time(self, phase: str) -> Iterator[None]:
        """Count the block's duration towards `phase`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] += time.perf_counter() - start

    def lap(self) -> dict[str, float]:
        """Return the seconds of each phase since the last lap, and reset them."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds


@dataclass(frozen=True)
class Decision:
    """The policy's outputs for one tick of all worlds."""

    present: np.ndarray  # slots with an observation, in order, (P,) int64
    acting: np.ndarray  # which slots choose an action, (slots,) bool
    observation: PackedObservation  # of the present slots, after their policy's mask
    game_rows: torch.Tensor | None
    """Index in the game's own table of each entity row of the observation; None if the mask kept all rows."""
    state: MemoryState  # the memory of the present slots before the tick
    next_state: MemoryState  # the memory of the present slots after the tick
    distribution: ActionDistribution  # over the present slots' actions
    value: np.ndarray  # of the present slots, (P,) float32 on the CPU

    def sample(self, noise: np.ndarray) -> torch.Tensor:
        """Draw the present slots' actions from the random numbers of all slots: (slots, heads) -> (P, heads) int64."""
        return self.distribution.sample(torch.from_numpy(noise[self.present]).to(self.state.hidden.device))

    def over_slots(self, chosen: torch.Tensor) -> np.ndarray:
        """Translate the present slots' actions into the game's, and spread them over all slots.

        Args:
            chosen: among the options that the policy was shown, (P, heads) int64.

        Returns:
            The game's options, zeros in other slots, (slots, heads) int64.
        """
        chosen = chosen.cpu()
        if self.game_rows is not None:
            chosen = options_in_game(chosen, self.distribution.heads, self.observation.entity, self.game_rows)
        actions = np.zeros((len(self.acting), chosen.shape[1]), dtype=np.int64)
        actions[self.present] = chosen.numpy()
        return actions


@dataclass(frozen=True)
class Arrival:
    """The worlds' results of this tick, over all slots."""

    observations: np.ndarray  # the game's padded observations, (slots,) structured; overwritten by the next tick
    reward: np.ndarray  # of the last actions, (slots,) float32
    present: np.ndarray  # (slots,) bool
    acting: np.ndarray  # (slots,) bool
    lives: list[Life]
    episodes: list[EpisodeStart]


class Stepper:
    """Steps vectorised worlds with one policy, keeping each slot's memory.

    Others may play some seats: decisions, and the lives that arrive, are those of the policy's own seats.

    Attributes:
        kernel: for each seat in turn, 0 for the policy or the number of an opponent, repeated over the agents.
        opponents: number -> policy; without any, nobody else may have a seat.
    """

    def __init__(
        self, worlds: Any, policy: RecurrentPolicy, layout: ObservationLayout, stopwatch: Stopwatch,
        journal: EpisodeJournal,
    ):  # fmt: skip
        """Play with the given policy; the journal of these worlds starts with their first reset."""
        self.worlds = worlds
        self.journal = journal
        self.policy = policy
        self.layout = layout
        self.device = next(policy.parameters()).device
        self.slots = worlds.agents_per_batch
        self.stopwatch = stopwatch
        self.memory = policy.initial_state(self.slots)
        self.arrival: Arrival
        self.kernel: Sequence[int] = (LEARNER,)
        self.opponents: Mapping[int, RecurrentPolicy] = {}
        self._opponents_lives: dict[int, list[Life]] = {}

    @property
    def seats(self) -> np.ndarray:
        """Who plays each slot, (slots,) int64."""
        agents = self.slots // len(self.journal.moments())
        return np.resize(np.array(self.kernel), agents)[np.arange(self.slots) % agents]

    def reset(self) -> None:
        """Take every world to its start."""
        reset([self])

    def decide(self) -> Decision:
        """Run the policy on the worlds' observations without changing the memory."""
        return self._decided(LEARNER, self.policy)

    def _decided(self, number: int, policy: RecurrentPolicy) -> Decision:
        arrival = self.arrival
        if self.opponents:
            own = self.seats == number
            arrival = replace(arrival, present=arrival.present & own, acting=arrival.acting & own)
        return decide(policy, self.memory, arrival, np.flatnonzero(arrival.present), self.layout, self.stopwatch)

    def action_noise(self) -> np.ndarray:
        """Return the numbers behind this tick's actions, (slots, heads) float64; the same until the tick is played."""
        moments = self.journal.moments()
        return action_noise(moments, self.slots // len(moments), len(self.layout.heads))

    def begin(self, decision: Decision, actions: np.ndarray) -> None:
        """Add the opponents' actions, (slots, heads) int64, update all memories, and let the worlds begin a tick."""
        decisions, noise = [decision], self.action_noise() if self.opponents else None
        for number, policy in self.opponents.items():
            theirs = self._decided(number, policy)
            assert noise is not None
            actions += theirs.over_slots(theirs.sample(noise))
            decisions.append(theirs)
        for decided in decisions:
            self.memory.put(torch.from_numpy(decided.present).to(self.device), decided.next_state)
        self.memory.clear(torch.from_numpy(np.flatnonzero(~self.arrival.acting)).to(self.device))
        with self.stopwatch.time("environment"):
            self.worlds.send(actions)

    def end(self, actions: np.ndarray) -> None:
        """Wait for the end of the tick that began with these actions."""
        with self.stopwatch.time("environment"):
            self.arrival = receive(self.worlds)
        self.journal.record(actions, self.arrival.episodes)
        if self.opponents:
            by_seat: defaultdict[int, list[Life]] = defaultdict(list)
            for life in self.arrival.lives:
                by_seat[self.kernel[(life.agent_id - 1) % len(self.kernel)]].append(life)
            self.arrival = replace(self.arrival, lives=by_seat.pop(LEARNER, []))
            for number, lives in by_seat.items():
                self._opponents_lives.setdefault(number, []).extend(lives)

    def take_lives(self) -> dict[int, list[Life]]:
        """Return the opponents' lives, by number, that ended since the last call."""
        taken, self._opponents_lives = self._opponents_lives, {}
        return taken


def make_steppers(
    groups: Sequence[Any], policy: RecurrentPolicy, layout: ObservationLayout, stopwatch: Stopwatch,
    starts: Sequence[EpisodeStart],
) -> list[Stepper]:  # fmt: skip
    """Return a stepper for each group of worlds, given the starts of the worlds of all groups in order."""
    size = len(starts) // len(groups)
    journals = [EpisodeJournal(starts[first : first + size]) for first in range(0, len(starts), size)]
    return [
        Stepper(worlds, policy, layout, stopwatch, journal) for worlds, journal in zip(groups, journals, strict=True)
    ]


def reset(steppers: Sequence[Stepper]) -> None:
    """Take every world of all steppers to its start, all at the same time."""
    for stepper in steppers:
        stepper.memory = stepper.policy.initial_state(stepper.slots)
        with stepper.stopwatch.time("environment"):
            stepper.worlds.async_reset()
    for stepper in steppers:
        with stepper.stopwatch.time("environment"):
            stepper.arrival = receive(stepper.worlds)
        stepper.journal.begin(stepper.arrival.episodes)


def receive(worlds: Any) -> Arrival:
    """Wait for the results of PufferLib's vectorised worlds."""
    observations, reward, terminal, truncated, infos, _, mask = worlds.recv()
    dtype = worlds.emulated.emulated_observation_dtype
    present = mask.astype(bool) & ~terminal.astype(bool)
    return Arrival(
        observations=np.asarray(observations).view(dtype)[:, 0],
        reward=reward.copy(),
        present=present,
        acting=present & ~truncated.astype(bool),
        lives=[life for info in infos for life in info.get("lives", ())],
        episodes=[info["episode"] for info in infos if "episode" in info],
    )


@torch.no_grad()
def decide(
    policy: RecurrentPolicy, memory: MemoryState, arrival: Arrival, slots: np.ndarray, layout: ObservationLayout,
    stopwatch: Stopwatch, tasks: np.ndarray | None = None,
) -> Decision:  # fmt: skip
    """Run a policy on the observations of some slots without changing the memory.

    Args:
        slots: present ones, in order, (P,) int64.
        tasks: embeddings of these slots' tasks in place of the world's, (P, size) float16.
    """
    device = memory.hidden.device
    with stopwatch.time("copying"):
        seen = pack(arrival.observations[slots], layout)
        if tasks is not None:
            seen = replace(seen, task=torch.from_numpy(tasks))
        observation, game_rows = policy.mask.apply(seen, layout), policy.mask.game_rows(seen, layout)
    with stopwatch.time("inference"):
        state = memory.take(torch.from_numpy(slots).to(device))
        distribution, value, next_state = policy(observation.to(device), state)
    return Decision(slots, arrival.acting, observation, game_rows, state, next_state, distribution, value.cpu().numpy())


def remember(memory: MemoryState, decision: Decision, keep: bool = False) -> None:
    """Store the memory after a decision, and unless it is kept, clear that of all slots that are not acting."""
    device = memory.hidden.device
    memory.put(torch.from_numpy(decision.present).to(device), decision.next_state)
    if keep:
        return
    memory.clear(torch.from_numpy(np.flatnonzero(~decision.acting)).to(device))


def action_noise(
    moments: Sequence[Moment], agents: int, heads: int, stream: int = ACTIONS, throw: int = 0
) -> np.ndarray:
    """Draw the random numbers behind agents' choices: one for each agent and head of several worlds.

    They depend only on seed, episode, tick, agent and head, not on which others are alive, on their policies, or on
    parallel episodes. So a run and the same run with one agent changed are a paired experiment: all other agents use
    the same random numbers.

    A counter-based generator makes this possible: Philox4x64-10, which computes any part of its stream from a key and a
    counter without what comes before (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
    SC 2011, https://doi.org/10.1145/2063384.2063405).

    Args:
        agents: number in each world, dead or alive.
        heads: choices of each agent in a tick.
        stream: which of the independent streams of numbers.
        throw: number of the throw of all dice; each has streams of its own. Episodes are played with throw 0.

    Returns:
        Numbers in [0, 1), (worlds * agents, heads) float64, in the order of the worlds and of their agents.
    """
    drawn = []
    for moment in moments:
        # The lowest word counts blocks of four numbers within the table; the other words identify the table.
        counter = [0, moment.tick, moment.number, stream + _STREAMS * throw]
        # NumPy guarantees a stable stream for bit generators, but not for Generator.random.
        bits = np.random.Philox(key=moment.first_seed, counter=counter).random_raw(agents * heads)
        drawn.append((bits >> 11) * 2.0**-53)  # the 53 highest bits, the precision of a float64
    return np.concatenate(drawn).reshape(-1, heads)
