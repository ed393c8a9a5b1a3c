"""How many processes share the work of one run, as `torchrun` says in environment variables."""

import os

from common.user_error import UserError

MEETING_SOCKET = "NMMO_MEETING_SOCKET"
"""Environment variable with the descriptor of an open socket, at which the first process of `--processes` listens."""
_MORE = ("RANK", "MASTER_ADDR", "MASTER_PORT")


def number_of_processes() -> int:
    """Return the number of processes that `torchrun` started for this run on all machines; 1 without it.

    Raises:
        UserError: the variable holds no such number.
    """
    return _number("WORLD_SIZE", 1, 1)


def processes_on_this_machine() -> int:
    """Return the number of processes that `torchrun` started for this run on this machine; 1 without it.

    Raises:
        UserError: the variable holds no such number.
    """
    return _number("LOCAL_WORLD_SIZE", 1, 1)


def number_on_this_machine() -> int | None:
    """Return the number of this process among those of this machine, from 0; None without `torchrun`.

    Raises:
        UserError: the variable holds no such number.
    """
    return _number("LOCAL_RANK", 0, 0) if "LOCAL_RANK" in os.environ else None


def check_started_together() -> None:
    """Refuse a stray WORLD_SIZE, as some clusters set it: nobody would join this process.

    Raises:
        UserError: it says that there are other processes, and nothing says how to reach them.
    """
    size = number_of_processes()
    if size > 1 and (missing := [name for name in _MORE if not os.environ.get(name)]):
        raise UserError(
            f"WORLD_SIZE is {size}, but {missing[0]} is not set, so the other processes cannot be reached: start them "
            "with torchrun (see docs/scaling.md), or unset WORLD_SIZE to run alone"
        )


def _number(name: str, default: int, least: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 6 or int(text) < least:
        raise UserError(f"{name} is {text!r}: torchrun sets it to a number; unset it to run alone")
    return int(text)
