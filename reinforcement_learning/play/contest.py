"""Which policies play together in which world, which episodes are played side by side, what plays them, and replays."""

import functools
import lzma
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import orjson
import torch
from nmmo.render.replay_helper import FileReplayHelper
from nmmo.task.task_spec import TaskSpec

from agent_zoo.data_parallel import pick_device
from common.files import atomic_file
from common.progress_view import counted_progress
from common.user_error import UserError, one_line
from reinforcement_learning.game.environment import map_of_episode
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.tasks import check_tasks, offered_tasks
from reinforcement_learning.game.vectorization import first_episodes
from reinforcement_learning.play.entrants import Entrant, admit, load_entrants
from reinforcement_learning.play.policy_pool import EpisodeLives, PolicyPool
from reinforcement_learning.play.workers import WORLDS_TOGETHER
from reinforcement_learning.run_settings import Protocol, without_training_aids
from reinforcement_learning.settings import EnvironmentSettings, Settings, TaskSettings

ORIGINAL_WORLDS = 6
"""Worlds of the published evaluations, each of which played its share of the episodes in turn."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Contest:
    """Policies that share a world, and that world."""

    entrants: tuple[Entrant, ...]
    env: EnvironmentSettings
    task: TaskSettings
    maps: Path  # a finished folder from `ensure_maps`
    device: torch.device
    random_actions: float = 0  # probability that an agent acts at random in a tick, at random among its legal options
    protocol: Protocol = "toolkit"
    """Original: all agents obey the start kit's restrictions, seats are the same in all episodes of a seed, and
    memories are never cleared, as in the published evaluations."""
    most_ticks: int | None = None
    """Ticks after which episodes are cut off, before the world's horizon, which tasks are about; None: not before."""

    @property
    def played(self) -> EnvironmentSettings:
        """The world as it is played, in which episodes end where they are cut off."""
        return replace(self.env, horizon=min(self.env.horizon, self.most_ticks or self.env.horizon))

    @property
    def rules(self) -> dict[str, str]:
        """How the protocol is named in results; nothing for the toolkit's, as before there was another."""
        return {} if self.protocol == "toolkit" else {"protocol": self.protocol}

    def groups(self, seed: int, episodes: int) -> "list[Group]":
        """Return which episodes are played together; this depends only on seed, number of episodes and protocol."""
        if self.protocol == "toolkit":
            return groups(seed, episodes)
        return [
            Group(seed, tuple(range(world, episodes, ORIGINAL_WORLDS)), in_turn=True)
            for world in range(min(ORIGINAL_WORLDS, episodes))
        ]

    def pool(self, worlds: int, specs: Sequence[TaskSpec] | None = None) -> PolicyPool:
        """Build worlds to play in; `specs` as in `PolicyPool` (UserError: an entrant does not fit the world)."""
        specs = offered_tasks(self.task, self.env) if specs is None else specs
        world = (self.entrants, self.played, self.task, self.maps, self.device)
        return PolicyPool(*world, worlds, specs, self.random_actions, self.protocol)


@dataclass(frozen=True)
class Group:
    """Episodes of one seed that are played in parallel, or in turn in one world."""

    seed: int
    numbers: tuple[int, ...]
    in_turn: bool = field(default=False, kw_only=True)

    @property
    def rounds(self) -> list[tuple[int, ...]]:
        """The numbers of the episodes that are played in parallel, one round after the other."""
        return [(number,) for number in self.numbers] if self.in_turn else [self.numbers]


def maps_of(env: EnvironmentSettings, seeds: Iterable[int], episodes: int) -> set[int]:
    """Return the numbers of the maps used by the first `episodes` episodes of each seed."""
    return set().union(*(maps_of_group(env, Group(seed, tuple(range(episodes)))) for seed in seeds))


def make_maps(env: EnvironmentSettings, seeds: Iterable[int], episodes: int) -> Path:
    """Return the folder of the maps of these episodes, generating with progress those that are not there."""
    with counted_progress("generating maps", "maps") as progress:
        return ensure_maps(env, progress, maps_of(env, seeds, episodes))


def maps_of_group(env: EnvironmentSettings, group: Group) -> set[int]:
    """Return the numbers of the maps used by a group of episodes."""
    (first,) = first_episodes(group.seed, 1)
    return {map_of_episode(env, first.first_seed, number) for number in group.numbers}


def groups(seed: int, episodes: int) -> list[Group]:
    """Return which episodes are played in parallel; the groups depend only on seed and number of episodes."""
    firsts = range(0, episodes, WORLDS_TOGETHER)
    return [Group(seed, tuple(range(first, min(first + WORLDS_TOGETHER, episodes)))) for first in firsts]


Job = Callable[[PolicyPool, Group], Iterable[Result]]
"""Plays a group of episodes, and yields what it tells."""


@dataclass(frozen=True)
class PlayedAgain:
    """A group of episodes starts over, because its worker was lost: what the group has told so far does not count."""

    reason: str  # one line for the user


def group_player(contest: Contest, specs: Sequence[TaskSpec], job: Job) -> Callable[[Group], Iterable]:
    """Return what runs a job for one group of episodes after the other, with one pool per size of group.

    It gives the results of the job for a group (UserError: an entrant does not fit the world).
    """
    pool = functools.cache(lambda worlds: contest.pool(worlds, specs))
    return lambda group: job(pool(len(group.rounds[0])), group)


SUFFIX = ".replay.lzma"
_PRESET = 1  # a tenth of the time of the default, 6, for files that are a quarter larger


class ReplayWriter(FileReplayHelper):
    """Writes the same as Neural MMO's own helper, but tick by tick: that one keeps gigabytes until the end.

    The helper also pickles metadata, which no viewer needs; it is left out here.
    """

    def __init__(self, file: BinaryIO):
        super().__init__()
        self._file = file
        self._compressor = lzma.LZMACompressor(lzma.FORMAT_ALONE, preset=_PRESET)

    def reset(self) -> None:
        """Write the map and the current world; call this once, when an episode has started."""
        first = self._packet()  # sets the map
        self._write(b'{"map":' + _json(self.map) + b',"packets":[' + _json(first))

    def update(self) -> None:
        """Write one tick; the game calls this."""
        self._write(b"," + _json(self._packet()))

    def finish(self) -> None:
        """Write the end of the file."""
        self._write(b"]}")
        self._file.write(self._compressor.flush())

    def _write(self, content: bytes) -> None:
        self._file.write(self._compressor.compress(content))


def replay_path(folder: Path, seed: int, policy: str | None, task: str | None) -> Path:
    """Return the path of a replay, named after its content.

    Args:
        policy: that plays all agents; None if all policies of the folder play.
        task: given to every agent, as the user named it; None if tasks are drawn.

    Raises:
        UserError: it already exists.
    """
    parts = [f"seed_{seed}", *([policy] if policy else []), *([f"task_{task}"] if task else [])]
    path = folder / (re.sub(r"[^A-Za-z0-9._-]+", "-", "_".join(parts)) + SUFFIX)
    if path.exists():
        raise UserError(f"{path} already exists: move it away, or choose another --train.seed")
    return path


def record_replay(contest: Contest, seed: int, path: Path, on_tick: Callable[[int, int], None]) -> EpisodeLives:
    """Play the first episode of a seed and write its replay atomically.

    It is the same episode as in an extraction of one episode with the same seed, policies and world. Agents are named
    after their policy: `NAME_17` is agent 17, played by NAME.

    Args:
        on_tick: called after each tick with (ticks played, maximum number of ticks).

    Raises:
        UserError: an entrant does not fit the world, or the file cannot be written.
    """
    torch.set_num_threads(1)  # as in extraction: a larger batch would round differently
    pool = contest.pool(worlds=1)
    realm = pool.shared[0].world.game.realm
    try:
        with atomic_file(path) as file:
            pool.start(seed, [0])
            for agent, entrant in zip(pool.shared[0].agents, pool.entrant_of, strict=True):
                realm.players[agent].name = f"{pool.entrants[entrant].name}_{agent}"
            writer = ReplayWriter(file)
            realm.record_replay(writer)
            writer.reset()
            while not pool.is_over:
                pool.step()
                on_tick(realm.tick, contest.env.horizon)
            writer.finish()
        return pool.finished()[0]
    finally:
        pool.close()


def _json(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def replay_contest(folder: Path, name: str | None, settings: Settings) -> Contest:
    """Load the policies of a folder that fit the world, or the one with that name; name the others on standard error.

    Raises:
        UserError: there is no policy, or none fits, or the requested one does not fit.
    """
    device, env = pick_device(settings.train.device), without_training_aids(settings.env)
    entrants = load_entrants(folder, () if name is None else (name,))
    check_tasks(settings.task, env)
    maps = make_maps(env, [settings.train.seed], 1)
    admitted, tasks, left_out = admit(entrants, env, settings.task, maps, must_fit=bool(name))
    for reason in left_out:
        print(f"left out: {one_line(reason)}", file=sys.stderr)
    return Contest(admitted, env, tasks, maps, device)
