"""Play groups of episodes in several processes, and pass on their results as they arrive."""

import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch
from safetensors.torch import load, save

from agent_zoo.checkpoint import CheckpointInfo, build_policy
from reinforcement_learning.play.contest import WORLDS_TOGETHER, Contest, Group
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.processes import usable_cores
from user_error import UserError

Told = TypeVar("Told")
Job = Callable[[PolicyPool, Group], Iterable[Told]]


def processes_for(worlds: int) -> int:
    """Return how many processes it takes to run that many worlds; 0 worlds: one process for each core."""
    return max(1, worlds // WORLDS_TOGETHER) if worlds else usable_cores()


def play_groups(
    contest: Contest, wanted: Sequence[Group], job: Job[Told], processes: int
) -> Iterator[tuple[Group, Told]]:
    """Run a job for each group of episodes in several processes, and yield its results, in order within a group.

    Each process computes with one thread, so that results do not depend on the number of processes. A process waits
    until its result is taken, so memory stays constant; closing the iterator ends the processes.

    Args:
        contest: policies and world.
        wanted: groups to play.
        job: a module-level function, called for each group.
        processes: at most.

    Raises:
        UserError: as raised by the job; or a process was killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    bare, parcels = replace(contest, entrants=()), [_Parcel.of(entrant) for entrant in contest.entrants]
    waiting, playing, workers = deque(wanted), dict[Connection, Group](), []
    try:
        for _ in range(min(processes, len(wanted))):
            ours, theirs = context.Pipe()
            workers.append(context.Process(target=_work, args=(theirs, bare, parcels, job), daemon=True))
            workers[-1].start()
            theirs.close()  # only the worker holds it now, so that its death is noticed
            playing[ours] = waiting.popleft()
            ours.send(playing[ours])
        while playing:
            for connection in wait(list(playing)):
                assert isinstance(connection, Connection)
                message = _heard_from(connection)
                if isinstance(message, _Told):
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
class _Told:
    """A result of a job."""

    content: Any


@dataclass(frozen=True)
class _Done:
    """A job is done or has failed: `error` says why, in one line if the user can fix it."""

    error: str | None = None
    for_user: bool = False


@dataclass(frozen=True)
class _Parcel:
    """An entrant for transfer to another process: sent directly, its tensors would use too many open files."""

    name: str
    info: CheckpointInfo
    sha256: str | None
    weights: bytes
    shadow_networks: "tuple[_Parcel, ...]"

    @staticmethod
    def of(entrant: Entrant) -> "_Parcel":
        shadow_networks = tuple(map(_Parcel.of, entrant.shadow_networks))
        return _Parcel(entrant.name, entrant.info, entrant.sha256, save(entrant.policy.state_dict()), shadow_networks)

    def unpack(self) -> Entrant:
        policy = build_policy(self.info)
        policy.load_state_dict(load(self.weights))
        shadow_networks = tuple(parcel.unpack() for parcel in self.shadow_networks)
        return Entrant(self.name, policy.eval(), self.info, self.sha256, shadow_networks)


def _heard_from(connection: Connection) -> _Told | _Done:
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


def _work(connection: Connection, bare: Contest, parcels: Sequence[_Parcel], job: Job) -> None:
    """Run the job for each group received, with one pool per size of group."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    contest = replace(bare, entrants=tuple(parcel.unpack() for parcel in parcels))
    pools: dict[int, PolicyPool] = {}
    while True:
        try:
            group = connection.recv()
        except EOFError:  # nothing is left to play
            return
        try:
            worlds = len(group.numbers)
            pool = pools[worlds] = pools.get(worlds) or contest.pool(worlds)
            for told in job(pool, group):
                connection.send(_Told(told))
            connection.send(_Done())
        except UserError as error:
            connection.send(_Done(str(error), for_user=True))
        except Exception:  # the parent raises it with this traceback, which would be lost if the worker just ended
            connection.send(_Done(traceback.format_exc()))
