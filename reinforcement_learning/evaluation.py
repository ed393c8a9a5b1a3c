"""Plays the episodes of an evaluation in parallel processes, each of which plays a few at a time."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load, save

from reinforcement_learning.checkpoint import CheckpointInfo, build_policy
from reinforcement_learning.entrants import Entrant
from reinforcement_learning.policy_pool import EpisodeLives, PolicyPool
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from user_error import UserError

WORLDS_TOGETHER = 4  # part of what decides the numbers: rounding depends on who is decided for together


@dataclass(frozen=True)
class Contest:
    """Who plays, in which world.

    Attributes:
        entrants: who share each world.
        env: settings of the world.
        task: what agents are asked to do.
        maps: a finished folder from `ensure_maps`.
        device: where the networks run.
    """

    entrants: tuple[Entrant, ...]
    env: EnvironmentSettings
    task: TaskSettings
    maps: Path
    device: torch.device


@dataclass(frozen=True)
class Group:
    """Episodes of one seed that are played side by side."""

    seed: int
    numbers: tuple[int, ...]


def groups(seed: int, episodes: int) -> list[Group]:
    """Return which episodes are played side by side: always the same ones, whoever plays them and when."""
    firsts = range(0, episodes, WORLDS_TOGETHER)
    return [Group(seed, tuple(range(first, min(first + WORLDS_TOGETHER, episodes)))) for first in firsts]


def play_groups(
    contest: Contest, wanted: Sequence[Group], processes: int
) -> Iterator[tuple[Group, list[EpisodeLives]]]:
    """Play groups of episodes, each in one of several processes, and yield them as they are finished.

    Whoever stops iterating ends the processes.

    Raises:
        UserError: an entrant does not fit the world, or a process was ended from outside.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    parcels = [_Parcel.of(entrant) for entrant in contest.entrants]
    rest = (contest.env, contest.task, contest.maps, contest.device)
    pool = ProcessPoolExecutor(min(processes, len(wanted)), context, _prepare, (parcels, *rest))
    try:
        playing = {pool.submit(_play, group): group for group in wanted}
        for played in as_completed(playing):
            yield playing.pop(played), played.result()
    except BrokenProcessPool:
        raise UserError(
            "a process that played was ended from outside, which usually means that memory ran out: the episodes "
            "played so far are kept; run the same command again, with fewer --num-envs"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


@dataclass(frozen=True)
class _Parcel:
    """An entrant on its way to another process: tensors as such would travel as open files, too many of them."""

    name: str
    info: CheckpointInfo
    sha256: str | None
    weights: bytes

    @staticmethod
    def of(entrant: Entrant) -> "_Parcel":
        return _Parcel(entrant.name, entrant.info, entrant.sha256, save(entrant.policy.state_dict()))

    def unpack(self) -> Entrant:
        policy = build_policy(self.info)
        policy.load_state_dict(load(self.weights))
        return Entrant(self.name, policy.eval(), self.info, self.sha256)


class _Worker:
    """What a process plays with: one contest, with a pool for each size of group that comes along."""

    def __init__(self, contest: Contest):
        self.contest = contest
        self._pools: dict[int, PolicyPool] = {}

    def play(self, group: Group) -> list[EpisodeLives]:
        worlds, contest = len(group.numbers), self.contest
        if worlds not in self._pools:
            self._pools[worlds] = PolicyPool(
                contest.entrants, contest.env, contest.task, contest.maps, contest.device, worlds
            )
        return self._pools[worlds].play(group.seed, group.numbers)


_worker: _Worker


def _prepare(
    parcels: Sequence[_Parcel], env: EnvironmentSettings, task: TaskSettings, maps: Path, device: torch.device
) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _worker = _Worker(Contest(tuple(parcel.unpack() for parcel in parcels), env, task, maps, device))


def _play(group: Group) -> list[EpisodeLives]:
    return _worker.play(group)
