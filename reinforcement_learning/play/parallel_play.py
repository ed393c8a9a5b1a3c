"""Play groups of episodes in several processes, here or on a Ray cluster, and pass on their results as they arrive."""

from collections.abc import Iterator, Sequence

from common.user_error import UserError
from reinforcement_learning.play.contest import WORLDS_TOGETHER, Contest, Group
from reinforcement_learning.play.jobs import Job, PackedContest, PlayedAgain, Result
from reinforcement_learning.play.local_play import play_in_processes
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.processes import usable_cores


def processes_of(workers: Workers) -> int:
    """Return the number of processes; connects to the Ray cluster if they run on one.

    Raises:
        UserError: Ray is not installed, no cluster answers, or it has too few cores.
    """
    wanted = workers.processes
    if workers.worlds:
        wanted = max(1, workers.worlds // WORLDS_TOGETHER)
    if workers.ray_address is None:
        return wanted or usable_cores()
    from reinforcement_learning.ray_cluster import connect, cores

    connect(workers.ray_address)
    if cores() < max(1, wanted):
        raise UserError(
            f"the Ray cluster has too few cores ({cores()}) for {max(1, wanted)} worker processes with four worlds "
            "each: ask for fewer, or leave the number out to use every core"
        )
    return wanted or cores()


def play_groups(
    contest: Contest, wanted: Sequence[Group], job: Job[Result], workers: Workers
) -> Iterator[tuple[Group, Result | PlayedAgain]]:
    """Run a job for each group of episodes in several processes, and yield its results, in order within a group.

    Each process computes with one thread, so that results do not depend on the number of processes. A process waits
    until its result is taken, so memory stays constant; closing the iterator ends the processes.

    On Ray, a group whose worker is lost is played again by another one: `PlayedAgain` follows what it has told so far,
    and then all of its results.

    Args:
        job: a module-level function, called for each group.

    Raises:
        UserError: as raised by the job and by `processes_of`; or a process was killed, on Ray repeatedly.
    """
    processes, packed = min(processes_of(workers), len(wanted)), PackedContest.of(contest)
    if workers.ray_address is None:
        return play_in_processes(packed, wanted, job, processes)
    from reinforcement_learning.play.ray_play import play_on_ray

    return play_on_ray(packed, wanted, job, processes)
