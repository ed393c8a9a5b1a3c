"""Play groups of episodes in several processes, here or on a Ray cluster, and pass on their results as they arrive.

The machines of a cluster share no files: policies' weights, encoded tasks and each group's maps travel to the workers,
and results travel back. What a lost worker was playing is played again by another one.
"""

import multiprocessing
import signal
import socket
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from nmmo.task.task_spec import TaskSpec

from common.ray_cluster import START_SECONDS, connect, cores, no_worker
from common.user_error import UserError
from reinforcement_learning.game.maps import read_maps, write_maps
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.play.contest import (
    Contest,
    Group,
    Job,
    PlayedAgain,
    Result,
    group_player,
    maps_of_group,
)
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.processes import interrupts_held_back, name_temporary_folder, tidy_memory, usable_cores

_STOP_SECONDS = 5
_MOST_LOSSES = 3  # of workers that played one group, or took one place in the crew, in a row
_SECONDS_TOGETHER = 0.25
_END = object()


def processes_of(workers: Workers) -> int:
    """Return the number of processes; connects to the Ray cluster if they run on one.

    Raises:
        UserError: Ray is not installed, no cluster answers, or it has too few cores.
    """
    wanted = workers.processes
    if workers.ray_address is None:
        return wanted or usable_cores()
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
    play = play_in_processes if workers.ray_address is None else play_on_ray
    return play(contest, specs, wanted, job, processes)


def play_in_processes(
    contest: Contest, specs: Sequence[TaskSpec], wanted: Sequence[Group], job: Job[Result], processes: int
) -> Iterator[tuple[Group, Result]]:
    """Do what `play_groups` describes, in so many processes of this machine (UserError: also if one was killed)."""
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
    play = group_player(contest, specs, job)
    while True:
        try:
            group = connection.recv()
        except EOFError:  # nothing is left to play
            return
        try:
            for result in play(group):
                connection.send([result])
            connection.send([])
        except UserError as error:
            connection.send(UserError(str(error)))
        except Exception:  # the parent raises it with this traceback, which would be lost if the worker just ended
            connection.send(RuntimeError(f"in a worker process:\n{traceback.format_exc()}"))


def play_on_ray(
    contest: Contest, specs: Sequence[TaskSpec], wanted: Sequence[Group], job: Job[Result], processes: int
) -> Iterator[tuple[Group, Result | PlayedAgain]]:
    """Do what `play_groups` describes, in so many workers of the cluster that this process is connected to.

    Raises:
        UserError: as raised by the job; or no worker starts, or workers are lost again and again.
    """
    crew, waiting, losses = _Crew(contest, specs, job, processes), deque(wanted), Counter[Group | int]()
    try:
        while waiting or crew.is_playing:
            while waiting and crew.idle:
                crew.give(waiting.popleft())
            worker, answer, lost = crew.next_answer()
            group = worker.group
            if lost:
                again = worker.place if group is None else group
                losses[again] += 1
                if losses[again] > _MOST_LOSSES:
                    raise UserError(f"{lost}, {losses[again]} times in a row: finished episodes are kept")
                if group is not None:
                    waiting.appendleft(group)
                    episodes = f"episodes {group.numbers[0]} to {group.numbers[-1]} of seed {group.seed}"
                    yield group, PlayedAgain(f"{lost}: {episodes} are played again by another worker")
                crew.hire(worker.place)
            elif group is not None:
                results, is_last = answer
                for result in results:
                    yield group, result
                if is_last:
                    crew.rest(worker)
                else:
                    crew.ask_for_more(worker)
            else:
                losses.pop(worker.place, None)
                crew.rest(replace(worker, machine=f" on {answer}"))
    finally:
        crew.close()


@dataclass(frozen=True)
class _Hired:
    """A worker as this process knows it."""

    actor: Any  # Ray's handle
    place: int  # its number in the crew; a replacement has the same
    machine: str = ""  # " on" and the machine's name, once it has started
    group: Group | None = None


class _Crew:
    """The workers, each of which is idle or asked for one thing at a time."""

    def __init__(self, contest: Contest, specs: Sequence[TaskSpec], job: Job, size: int):
        import ray

        self._maps, self._env = contest.maps, contest.env
        self._actor: Any = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(_Worker)
        self._task = ray.put((contest, specs, job))
        self._pending: dict[Any, _Hired] = {}
        self.idle: list[_Hired] = []
        for place in range(size):
            self.hire(place)

    @property
    def is_playing(self) -> bool:
        return any(worker.group for worker in self._pending.values())

    def hire(self, place: int) -> None:
        """Start a worker; Ray makes it wait until a core is free."""
        worker = _Hired(self._actor.remote(), place)
        self._pending[worker.actor.start.remote(self._task)] = worker

    def give(self, group: Group) -> None:
        worker = replace(self.idle.pop(), group=group)
        files = read_maps(self._maps, maps_of_group(self._env, group))
        self._pending[worker.actor.play.remote(group, files)] = worker

    def ask_for_more(self, worker: _Hired) -> None:
        self._pending[worker.actor.more.remote()] = worker

    def rest(self, worker: _Hired) -> None:
        self.idle.append(replace(worker, group=None))

    def next_answer(self) -> tuple[_Hired, Any, str]:
        """Wait for a worker's answer; where it will give none, say why in a sentence without its full stop.

        Raises:
            UserError: as raised by the job; or none has an answer, because none has started.
        """
        import ray

        seconds = None if self.is_playing else START_SECONDS
        ready, _ = ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        if not ready:
            raise no_worker()
        worker = self._pending.pop(ready[0])
        try:
            return worker, ray.get(ready[0]), ""
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            ray.kill(worker.actor)  # its result may be lost while it lives on
            lost = (
                f"a Ray worker{worker.machine} ended ({type(error).__name__}: it was killed, ran out of memory, lost "
                "its machine, or cannot import this project there)"
            )
            return worker, None, lost

    def close(self) -> None:
        """End the workers; those that can still answer remove their files first."""
        import ray

        busy = [worker for worker in self._pending.values() if worker.group]
        stopping = [worker.actor.stop.remote() for worker in (*self.idle, *busy)]
        if stopping:
            ray.wait(stopping, num_returns=len(stopping), timeout=_STOP_SECONDS)
        for worker in (*self.idle, *self._pending.values()):
            ray.kill(worker.actor)
        self.idle, self._pending = [], {}


class _Worker:
    """Plays in a separate process, perhaps on another machine."""

    def start(self, task: tuple[Contest, Sequence[TaskSpec], Job]) -> str:
        """Prepare to play; return the name of the machine."""
        # Not in __init__: Ray reports errors there as a dead worker.
        torch.set_num_threads(1)
        contest, specs, job = task
        self._folder = tempfile.TemporaryDirectory(prefix="maps_")
        self._maps = Path(self._folder.name)
        self._play = group_player(replace(contest, maps=self._maps), specs, job)
        return socket.gethostname()

    def play(self, group: Group, maps: dict[str, bytes]) -> tuple[list[Any], bool]:
        write_maps(self._maps, maps)
        self._rest = iter(self._play(group))
        self._next = next(self._rest, _END)
        return self.more()

    def more(self) -> tuple[list[Any], bool]:
        """Return the next results, those of a fraction of a second, and whether they are the last of the group.

        Looks one result ahead, so that the last results are known to be the last: a worker lost after them would have
        its group played again, although all of it has been told.
        """
        until, results = time.monotonic() + _SECONDS_TOGETHER, []
        while self._next is not _END:
            results.append(self._next)
            self._next = next(self._rest, _END)
            if time.monotonic() > until:
                break
        return results, self._next is _END

    def stop(self) -> None:
        self._folder.cleanup()
