"""Play groups of episodes in processes of this machine."""

import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from common.user_error import UserError
from reinforcement_learning.memory_use import tidy_memory
from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.jobs import GroupPlayer, Job, PackedContest, Result
from reinforcement_learning.processes import interrupts_held_back, name_temporary_folder


def play_in_processes(
    packed: PackedContest, wanted: Sequence[Group], job: Job[Result], processes: int
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
            workers.append(context.Process(target=_work, args=(theirs, packed, job), daemon=True))
            with interrupts_held_back():
                workers[-1].start()
            theirs.close()  # only the worker holds it now, so that its death is noticed
            playing[ours] = waiting.popleft()
            ours.send(playing[ours])
        while playing:
            for connection in wait(list(playing)):
                assert isinstance(connection, Connection)
                message = _heard_from(connection)
                tidy_memory()
                if isinstance(message, _Result):
                    yield playing[connection], message.content
                elif waiting:
                    playing[connection] = waiting.popleft()
                    connection.send(playing[connection])
                else:
                    del playing[connection]
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


@dataclass(frozen=True)
class _Result:
    """A result of a job."""

    content: Any


@dataclass(frozen=True)
class _Done:
    """A job is done or has failed: `error` says why, in one line if the user can fix it."""

    error: str | None = None
    for_user: bool = False


def _heard_from(connection: Connection) -> _Result | _Done:
    """Return a worker's next message, or raise its error."""
    try:
        message = connection.recv()
    except (EOFError, ConnectionResetError):
        raise UserError(
            "a worker process was killed, usually because memory ran out: finished episodes are kept; repeat the "
            "command with fewer --num-envs"
        ) from None
    if isinstance(message, _Done) and message.error is not None:
        raise UserError(message.error) if message.for_user else RuntimeError(f"in a worker process:\n{message.error}")
    return message


def _work(connection: Connection, packed: PackedContest, job: Job) -> None:
    """Run the job for each group received."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    player = GroupPlayer(packed, job)
    while True:
        try:
            group = connection.recv()
        except EOFError:  # nothing is left to play
            return
        try:
            for result in player.play(group):
                connection.send(_Result(result))
            connection.send(_Done())
        except UserError as error:
            connection.send(_Done(str(error), for_user=True))
        except Exception:  # the parent raises it with this traceback, which would be lost if the worker just ended
            connection.send(_Done(traceback.format_exc()))
