"""Several policies in one world: which agents each plays, and how episodes are played.

Results depend only on the world's settings, the policies, the seed and the numbers of the episodes played in parallel:
seats, tasks, map, game and actions have separate random streams, and earlier episodes have no influence. So the same
episodes can be replayed anywhere in any order. Parallel episodes affect each other at most by rounding, since their
random numbers are independent.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pufferlib.vector
import torch
from nmmo.task.task_spec import TaskSpec

from reinforcement_learning.game.environment import (
    EpisodeStart,
    Kind,
    make_shared_world,
    observation_layout,
    serial_worlds,
)
from reinforcement_learning.game.life import Life
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.game.vectorization import first_episodes
from reinforcement_learning.play.entrants import Entrant, check_fits
from reinforcement_learning.play.stepper import (
    RANDOM_ACTIONS,
    Arrival,
    Decision,
    Moment,
    Stopwatch,
    action_noise,
    decide,
    receive,
    remember,
)
from reinforcement_learning.run_settings import Protocol
from reinforcement_learning.settings import EnvironmentSettings, RewardSettings, TaskSettings

START_KIT = Kind("neurips23_start_kit", RewardSettings(heal=0, explore=0))
"""Whose restrictions all agents obey by the original protocol; the reward is the task's alone."""


@dataclass(frozen=True)
class EpisodeLives:
    """The lives of one episode."""

    number: int
    lives: tuple[tuple[Life, ...], ...]  # of each entrant, in the entrants' order


@dataclass(frozen=True)
class EntrantActions:
    """The actions of one entrant's agents in a tick."""

    entrant: int  # its index among the entrants
    decision: Decision  # its policy's outputs for its acting slots
    action: torch.Tensor  # chosen in each of them, (P, heads) int64


def seats(seed: int, number: int, agents: int, entrants: int) -> np.ndarray:
    """Draw which entrant plays each agent of an episode, in shares as equal as possible, (agents,) int64.

    Any remainder rotates through the entrants from episode to episode.
    """
    (stream,) = np.random.SeedSequence([seed, number]).spawn(1)
    random = np.random.default_rng(stream)
    return random.permutation((np.arange(agents) + number) % entrants)


class OneEpisodeWorlds(pufferlib.vector.Serial):
    """Worlds in this process that stop once their episode is over, instead of starting another one."""

    def send(self, actions: np.ndarray) -> None:
        """Play one tick in every world whose episode is not over."""
        pufferlib.vector.send_precheck(self, actions)
        by_world = np.split(actions, np.cumsum(self.agents_per_env)[:-1])
        # One entry per world, to distinguish lives of the same agent in different worlds.
        self.infos = [
            {} if world.done else world.step(chosen)[-1] for world, chosen in zip(self.envs, by_world, strict=True)
        ]


class PolicyPool:
    """Plays episodes in which several policies control agents of one world, each with its own memory.

    Several episodes are played in parallel, each in its own world, so that a policy decides for all its agents in one
    batch.

    Attributes:
        throw: number of the throw of the agents' dice, as in `action_noise`; 0 from the start of each episode.
    """

    throw = 0

    def __init__(
        self, entrants: Sequence[Entrant], env: EnvironmentSettings, task: TaskSettings, maps: Path,
        device: torch.device, worlds: int, specs: Sequence[TaskSpec] | None = None, random_actions: float = 0,
        protocol: Protocol = "toolkit",
    ):  # fmt: skip
        """Build the worlds.

        Args:
            entrants: at least one, at most as many as there are agents.
            worlds: number of episodes to play in parallel.
            specs: the result of `offered_tasks` for these settings, if already computed.

        Raises:
            UserError: an entrant does not fit the world; the message names what differs.
        """
        self.entrants = entrants
        self.device = device
        self.random_actions = random_actions
        self.protocol = protocol
        self.kind_of = [START_KIT if protocol == "original" else entrant.kind for entrant in entrants]
        self.kinds = list(dict.fromkeys(self.kind_of))
        specs = offered_tasks(task, env) if specs is None else specs
        self.tasks = [spec.name for spec in specs]
        self.shared = [make_shared_world(self.kinds, env, task, maps, specs) for _ in range(worlds)]
        self.layout = observation_layout(self.shared[0].world)
        for entrant in entrants:
            check_fits(entrant, self.layout)
        made = [functools.partial(getattr, shared, "world") for shared in self.shared]
        self.worlds = serial_worlds(made, OneEpisodeWorlds)
        self.agents = self.worlds.agents_per_env[0]
        self.slots = self.worlds.agents_per_batch
        self.policies = [entrant.policy.to(device) for entrant in entrants]
        self.stopwatch = Stopwatch()
        self.arrival: Arrival

    def play(self, seed: int, numbers: Sequence[int], first: bool = True) -> list[EpisodeLives]:
        """Play episodes of a seed to their end; arguments as `start`."""
        self.start(seed, numbers, first)
        while not self.is_over:
            self.step()
        return self.finished()

    def start(self, seed: int, numbers: Sequence[int], first: bool = True) -> None:
        """Assign agents to the entrants and start every world's episode.

        Args:
            numbers: of the episodes in it, from 0, one per world.
            first: False if, by the original protocol, memories go on from the episodes played before.
        """
        self.numbers = numbers
        fixed = self.protocol == "original"  # an agent's memory goes on, so its policy must stay
        by_world = [seats(seed, 0 if fixed else number, self.agents, len(self.entrants)) for number in numbers]
        self.entrant_of = np.concatenate(by_world)  # (slots,)
        kind_of_entrant = [self.kinds.index(kind) for kind in self.kind_of]
        (episode,) = first_episodes(seed, 1)
        self.first_seed, self.ticks, self.throw = episode.first_seed, 0, 0
        for shared, number, seated in zip(self.shared, numbers, by_world, strict=True):
            shared.rewards.kind_of = {
                agent: kind_of_entrant[entrant] for agent, entrant in zip(shared.agents, seated, strict=True)
            }
            shared.world.start = EpisodeStart(self.first_seed, number)
        if first:
            self.memories = [policy.initial_state(self.slots) for policy in self.policies]
        self.lives: list[list[list[Life]]] = [[[] for _ in self.entrants] for _ in numbers]  # by world and entrant
        with self.stopwatch.time("environment"):
            self.worlds.async_reset()
            self.arrival = receive(self.worlds)
        given = [shared.world.game.agent_task_map[agent][0] for shared in self.shared for agent in shared.agents]
        self.task_of = np.array([self.tasks.index(task.spec_name) for task in given])  # (slots,)

    @property
    def is_over(self) -> bool:
        """Whether all episodes are over."""
        return not self.arrival.acting.any()

    def step(self) -> None:
        """Play one tick in all worlds."""
        self.advance(list(self.decide()))

    def decide(self) -> Iterator[EntrantActions]:
        """Yield the actions of every entrant with living agents, in the entrants' order."""
        noise = self.action_noise()
        for entrant, (policy, memory) in enumerate(zip(self.policies, self.memories, strict=True)):
            slots = np.flatnonzero(self.arrival.acting & (self.entrant_of == entrant))
            if len(slots):
                own = self.entrants[entrant].own_tasks
                tasks = None if own is None else own[self.task_of[slots]]  # (P, size)
                decision = decide(policy, memory, self.arrival, slots, self.layout, self.stopwatch, tasks)
                chosen = decision.sample(noise)
                if self.random_actions:
                    chosen = self._with_random_actions(decision, chosen)
                yield EntrantActions(entrant, decision, chosen)

    def _with_random_actions(self, decision: Decision, chosen: torch.Tensor) -> torch.Tensor:
        """Let some agents choose each legal option of each head equally often, (P, heads) int64.

        The numbers behind these acts are a stream of their own, so policies draw the same with and without them.
        """
        heads = chosen.shape[1]
        numbers = action_noise(self._moments(), self.agents, 1 + heads, RANDOM_ACTIONS, self.throw)[decision.present]
        drawn, options = (torch.from_numpy(column).to(chosen.device) for column in np.split(numbers, [1], axis=1))
        return torch.where(drawn < self.random_actions, decision.distribution.uniform().sample(options), chosen)

    def action_noise(self) -> np.ndarray:
        """Return the random numbers of this tick's actions, (slots, heads) float64; fixed until the tick is played."""
        return action_noise(self._moments(), self.agents, len(self.layout.heads), throw=self.throw)

    def _moments(self) -> list[Moment]:
        return [Moment(self.first_seed, number, self.ticks) for number in self.numbers]

    def advance(self, choices: Sequence[EntrantActions]) -> None:
        """Play one tick with these actions."""
        actions = np.zeros((self.slots, len(self.layout.heads)), dtype=np.int64)
        for choice in choices:
            remember(self.memories[choice.entrant], choice.decision, keep=self.protocol == "original")
            actions += choice.decision.over_slots(choice.action)
        with self.stopwatch.time("environment"):
            self.worlds.send(actions)
            self.ticks += 1
            self.arrival = receive(self.worlds)
        for world, info in enumerate(self.worlds.infos):
            for life in info.get("lives", ()):
                slot = world * self.agents + self.shared[world].agents.index(life.agent_id)
                self.lives[world][self.entrant_of[slot]].append(life)

    def finished(self) -> list[EpisodeLives]:
        """Return the lives of the episodes started last; they must be over."""
        return [
            EpisodeLives(number, tuple(map(tuple, lives)))
            for number, lives in zip(self.numbers, self.lives, strict=True)
        ]

    def close(self) -> None:
        """Close the worlds."""
        self.worlds.close()
