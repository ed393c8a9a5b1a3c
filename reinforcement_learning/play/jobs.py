"""A job to run for each group of episodes, and all that another process or machine needs to run it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from nmmo.task.task_spec import TaskSpec
from safetensors.torch import load, save

from agent_zoo.checkpoint import CheckpointInfo, build_policy
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.policy_pool import PolicyPool

Result = TypeVar("Result")
Job = Callable[[PolicyPool, Group], Iterable[Result]]


@dataclass(frozen=True)
class PlayedAgain:
    """A group of episodes starts over, because its worker was lost: what the group has told so far does not count."""

    reason: str  # one line for the user


@dataclass(frozen=True)
class PackedContest:
    """A contest for transfer to another process; its tasks are encoded once, before the transfer."""

    bare: Contest  # the contest without its entrants
    parcels: "tuple[_Parcel, ...]"
    specs: Sequence[TaskSpec]  # of the tasks, with their embeddings

    @staticmethod
    def of(contest: Contest) -> "PackedContest":
        """Pack a contest."""
        parcels = tuple(map(_Parcel.of, contest.entrants))
        return PackedContest(replace(contest, entrants=()), parcels, offered_tasks(contest.task, contest.env))

    def unpack(self) -> Contest:
        """Return the contest, with policies that are ready to run."""
        return replace(self.bare, entrants=tuple(parcel.unpack() for parcel in self.parcels))


@dataclass(frozen=True)
class _Parcel:
    """An entrant for transfer to another process: sent directly, its tensors would use too many open files."""

    name: str
    info: CheckpointInfo
    sha256: str | None
    weights: bytes
    shadow_networks: "tuple[_Parcel, ...]"
    own_tasks: np.ndarray | None

    @staticmethod
    def of(entrant: Entrant) -> "_Parcel":
        shadow_networks = tuple(map(_Parcel.of, entrant.shadow_networks))
        weights = save(entrant.policy.state_dict())
        return _Parcel(entrant.name, entrant.info, entrant.sha256, weights, shadow_networks, entrant.own_tasks)

    def unpack(self) -> Entrant:
        policy = build_policy(self.info)
        policy.load_state_dict(load(self.weights))
        shadow_networks = tuple(parcel.unpack() for parcel in self.shadow_networks)
        return Entrant(self.name, policy.eval(), self.info, self.sha256, shadow_networks, self.own_tasks)


class GroupPlayer:
    """Runs a job for one group of episodes after the other, with one pool per size of group."""

    def __init__(self, packed: PackedContest, job: Job):
        self._contest = packed.unpack()
        self._specs = packed.specs
        self._job = job
        self._pools: dict[int, PolicyPool] = {}

    def play(self, group: Group) -> Iterable:
        """Return the results of the job for a group (UserError: an entrant does not fit the world)."""
        worlds = len(group.rounds[0])
        if worlds not in self._pools:
            self._pools[worlds] = self._contest.pool(worlds, self._specs)
        return self._job(self._pools[worlds], group)
