"""What plays a group of episodes, and what it tells; shared by the processes of this machine and by those of Ray."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nmmo.task.task_spec import TaskSpec

from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.policy_pool import PolicyPool

Result = TypeVar("Result")
Job = Callable[[PolicyPool, Group], Iterable[Result]]


@dataclass(frozen=True)
class PlayedAgain:
    """A group of episodes starts over, because its worker was lost: what the group has told so far does not count."""

    reason: str  # one line for the user


class GroupPlayer:
    """Runs a job for one group of episodes after the other, with one pool per size of group."""

    def __init__(self, contest: Contest, specs: Sequence[TaskSpec], job: Job):
        self._contest = contest
        self._specs = specs
        self._job = job
        self._pools: dict[int, PolicyPool] = {}

    def play(self, group: Group) -> Iterable:
        """Return the results of the job for a group (UserError: an entrant does not fit the world)."""
        worlds = len(group.rounds[0])
        if worlds not in self._pools:
            self._pools[worlds] = self._contest.pool(worlds, self._specs)
        return self._job(self._pools[worlds], group)
