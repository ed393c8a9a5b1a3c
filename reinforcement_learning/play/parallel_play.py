"""Play groups of episodes in several processes, here or on a Ray cluster, and pass on their results as they arrive."""

import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait

import torch
from nmmo.task.task_spec import TaskSpec

from common.user_error import UserError
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.play.contest import WORLDS_TOGETHER, Contest, Group, GroupPlayer, Job, PlayedAgain, Result
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.processes import interrupts_held_back, name_temporary_folder, tidy_memory, usable_cores


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
    from common.ray_cluster import connect, cores

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
    processes = min(processes_of(workers), len(wanted))
    specs = offered_tasks(contest.task, contest.env)  # encoded once, not in each process
    if workers.ray_address is None:
        return play_in_processes(contest, specs, wanted, job, processes)
    from reinforcement_learning.play.ray_play import play_on_ray

    return play_on_ray(contest, specs, wanted, job, processes)


def play_in_processes(
    contest: Contest, specs: Sequence[TaskSpec], wanted: Sequence[Group], job: Job[Result], processes: int
) -> Iterator[tuple[Group, Result]]:
    """Do what `play_groups` describes, in so many processes of this machine.

    Raises:
        UserError: as raised by the job; or a process was killed.
    """
    name_temporary_folder()
    resource_tracker.ensure_running()  # as it starts, it lets through what is held back below
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    waiting, playing, workers = deque(wanted), dict[Connection, Group](), []
    try:
        for _ in range(processes):
            ours, theirs = context.Pipe()
            workers.append(context.Process(target=_work, args=(theirs, contest, specs, job), daemon=True))
            with interrupts_held_back():
                workers[-1].start()
            theirs.close()  # only the worker holds it now, so that its death is noticed
            playing[ours] = waiting.popleft()
            ours.send(playing[ours])
        while playing:
            for connection in wait(list(playing)):
                assert isinstance(connection, Connection)
                results = _heard_from(connection)
                tidy_memory()
                if results:
                    yield playing[connection], results[0]
                elif waiting:
                    playing[connection] = waiting.popleft()
                    connection.send(playing[connection])
                else:
                    del playing[connection]
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _heard_from(connection: Connection) -> list:
    """Return one result of the job, or none once it is done; raise what the worker sent instead."""
    try:
        message = connection.recv()
    except (EOFError, ConnectionResetError):
        raise UserError(
            "a worker process was killed, usually because memory ran out: finished episodes are kept; repeat the "
            "command with fewer --num-envs"
        ) from None
    if isinstance(message, Exception):
        raise message
    return message


def _work(connection: Connection, contest: Contest, specs: Sequence[TaskSpec], job: Job) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    player = GroupPlayer(contest, specs, job)
    while True:
        try:
            group = connection.recv()
        except EOFError:  # nothing is left to play
            return
        try:
            for result in player.play(group):
                connection.send([result])
            connection.send([])
        except UserError as error:
            connection.send(UserError(str(error)))
        except Exception:  # the parent raises it with this traceback, which would be lost if the worker just ended
            connection.send(RuntimeError(f"in a worker process:\n{traceback.format_exc()}"))
