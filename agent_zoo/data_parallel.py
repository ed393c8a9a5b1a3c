"""One training run in several processes, each with its own part of the data and its device, all with the same weights.

`torchrun` starts the processes and passes each its rank in environment variables. A run in one process uses
`ALONE`, whose methods change nothing.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
import torch
import torch.distributed
from torch import nn

from agent_zoo.torchrun import MEETING_SOCKET, check_started_together, number_of_processes, number_on_this_machine
from common.user_error import UserError


def pick_device(name: str) -> torch.device:
    """Return the device of that name; `auto` uses a GPU if there is one.

    Each of several processes of a run on a machine gets its own GPU.

    Raises:
        UserError: a GPU was requested but there is none, or there are fewer GPUs than processes.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda was requested, but torch finds no GPU: use auto or cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    number, gpus = number_on_this_machine(), torch.cuda.device_count()
    if number is not None and number >= gpus:
        raise UserError(f"process {number} of this machine finds {gpus} GPUs: start at most {gpus} processes")
    return torch.device("cuda") if number is None else torch.device("cuda", number)


TIMEOUT = timedelta(minutes=30)
_PATIENCE = 20.0
"""Seconds after which a process says that it waits for others, which may never come."""
Record = TypeVar("Record")


class Processes:
    """The processes of a run that is alone: one, which has nobody to talk to. `ProcessGroup` is one of several.

    Attributes:
        rank: number of this process, from 0.
        size: processes of the run.
        leads: whether this process writes files and reports.
    """

    rank = 0
    size = 1
    leads = True

    def same_weights(self, policy: nn.Module) -> None:
        """Give all processes the leader's weights, in place."""

    def average(self, parameters: Sequence[torch.Tensor], scalars: Sequence[torch.Tensor], weight: int) -> None:
        """Replace gradients and scalars by their weighted means over all processes, in place."""

    def concatenate(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows of all processes, by rank; each may have a different number of rows, including none."""
        return rows

    def total(self, number: int) -> int:
        """Return the sum over all processes."""
        return int(self.concatenate(torch.tensor([number])).sum())

    def largest(self, number: int) -> int:
        """Return the maximum over all processes."""
        return int(self.concatenate(torch.tensor([number])).max())

    def leave(self) -> None:
        """Wait until all processes are done: `torchrun` would end the others when the first one stops."""


class ProcessGroup(Processes):
    """One of several processes, which communicate through `gloo` for CPU tensors and `nccl` for GPU tensors.

    All must call the same methods in the same order. Every method raises a `UserError` if another process has ended,
    or has not answered for `TIMEOUT`.
    """

    def __init__(self, device: torch.device):
        """Connect to the other processes.

        Raises:
            UserError: they cannot be reached, or environment variables of `torchrun` are missing.
        """
        if device.type == "cuda":
            torch.cuda.set_device(device)
        try:
            torch.distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT, **_meeting_place()
            )
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"the processes of this run cannot connect ({_first_line(error)}): start them with torchrun, see "
                "docs/scaling.md"
            ) from None
        self.rank = torch.distributed.get_rank()
        self.size = torch.distributed.get_world_size()
        self.leads = self.rank == 0

    def same_weights(self, policy: nn.Module) -> None:
        """See `Processes.same_weights`."""
        with _others():
            for tensor in policy.state_dict().values():
                torch.distributed.broadcast(tensor, src=0)

    @torch.no_grad()
    def average(self, parameters: Sequence[torch.Tensor], scalars: Sequence[torch.Tensor], weight: int) -> None:
        """See `Processes.average`."""
        gradients = []
        for parameter in parameters:
            if parameter.grad is None:  # another process may have used parameters that this one did not
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        tensors = [*gradients, *scalars]
        flat = torch.cat([*(tensor.flatten() for tensor in tensors), gradients[0].new_ones(1)]) * weight
        with _others():
            torch.distributed.all_reduce(flat)
        means = (flat[:-1] / flat[-1]).split([tensor.numel() for tensor in tensors])
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.copy_(mean.view_as(tensor))

    def concatenate(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Processes.concatenate`."""
        own = rows.cpu()
        counts = torch.zeros(self.size, dtype=torch.int64)
        with _others():
            torch.distributed.all_gather(list(counts.split(1)), torch.tensor([len(own)]))
            padded = own.new_zeros((int(counts.max()), *own.shape[1:]))
            padded[: len(own)] = own
            everyones = [torch.empty_like(padded) for _ in range(self.size)]
            torch.distributed.all_gather(everyones, padded)
        joined = [part[:count] for part, count in zip(everyones, counts.tolist(), strict=True)]
        return torch.cat(joined).to(rows.device)

    def leave(self) -> None:
        """See `Processes.leave`."""
        self.total(0)
        torch.distributed.destroy_process_group()


ALONE = Processes()


def join_processes(device: torch.device) -> Processes:
    """Connect to the other processes of this run, if any; afterwards only the leader's output is shown.

    Raises:
        UserError: as `ProcessGroup`.
    """
    if number_of_processes() == 1:
        return ALONE
    check_started_together()
    waiting = threading.Timer(_PATIENCE, _say_that_it_waits)
    waiting.daemon = True
    waiting.start()
    try:
        processes = ProcessGroup(device)
    finally:
        waiting.cancel()
    if not processes.leads:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 (stays open to the end)
    return processes


def _meeting_place() -> dict[str, Any]:
    """Return where processes that `--processes` started meet; where those of `torchrun` do is in the environment."""
    if MEETING_SOCKET not in os.environ:
        return {}
    rank, size = int(os.environ["RANK"]), number_of_processes()
    listening = int(os.environ[MEETING_SOCKET]) if rank == 0 else None  # PyTorch's own would listen on all interfaces
    store = torch.distributed.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0, TIMEOUT, master_listen_fd=listening
    )
    return {"store": store, "rank": rank, "world_size": size}


def _say_that_it_waits() -> None:
    print(
        f"waiting for the other processes of this run (WORLD_SIZE is {number_of_processes()}, at "
        f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}); unset WORLD_SIZE to run alone",
        file=sys.stderr,
    )


def leaders_text(text: str, processes: Processes) -> str:
    """Return the text that the leader passed."""
    return _concatenate_bytes(text.encode() if processes.leads else b"", processes).decode()


def join_records(kind: type[Record], records: list[Record], processes: Processes) -> list[Record]:
    """Return the records of all processes, by rank; they are data classes that can be converted to and from JSON."""
    if processes.size == 1:
        return records
    option = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    lines = b"".join(orjson.dumps(record, option=option) for record in records)
    return [kind(**orjson.loads(line)) for line in _concatenate_bytes(lines, processes).splitlines()]


def _concatenate_bytes(own: bytes, processes: Processes) -> bytes:
    rows = torch.from_numpy(np.frombuffer(own, dtype=np.uint8).copy())
    return processes.concatenate(rows).numpy().tobytes()


@contextlib.contextmanager
def _others() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise UserError(
            f"another process of this run ended or does not answer ({_first_line(error)}): see its message, if any"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].split(". ")[0]  # Gloo adds advice and wishes
