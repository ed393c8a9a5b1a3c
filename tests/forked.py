"""Run programs in processes that have the large libraries from the start, which saves seconds each.

A server imports the libraries once for each process of tests. For each program it forks a process with its own session,
folder, environment and files, in which this project is not yet imported. All these processes hash strings alike, and
what a library reads from the environment as it is imported is the server's. Tests of imports, of starting up or of the
interpreter itself need `tests.command.run`.
"""

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.command import environment

_SECONDS = 600
"""After so many, all processes of a program's session are killed."""


class Ended(NamedTuple):
    """How a program ended: its exit code, or the signal that ended it with a minus, and its standard error."""

    code: int
    printed: str


def run_forked(program: str, arguments: Sequence[object], folder: Path, files: dict[int, int]) -> Ended:
    """Run a program until it has ended and nobody holds its standard error open; its standard output is dropped.

    Args:
        program: Python code that is executed in the new process.
        arguments: its `sys.argv`.
        folder: its working folder.
        files: descriptors of this process that it gets, by the numbers which they have there; they are closed here.
    """
    server, (reading, writing) = _server(), os.pipe()
    with Path(os.devnull).open("r+b", buffering=0) as null, os.fdopen(reading, "rb") as printed:
        given = {0: null.fileno(), 1: null.fileno(), 2: writing, **files}
        request = {
            "program": program, "arguments": [str(part) for part in arguments], "folder": str(folder),
            "environment": environment(), "files": list(given),
        }  # fmt: skip
        socket.send_fds(server, [json.dumps(request).encode()], list(given.values()))
        for descriptor in (writing, *files.values()):
            os.close(descriptor)
        killer = threading.Timer(_SECONDS, os.killpg, (_answer(server), signal.SIGKILL))
        killer.start()
        try:
            text = printed.read().decode(errors="replace")
            return Ended(os.waitstatus_to_exitcode(_answer(server)), text)
        finally:
            killer.cancel()


def _answer(server: socket.socket) -> int:
    return int(server.recv(100))


@functools.cache
def _server() -> socket.socket:
    """Start this process's server, which ends when this process does."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # which keeps messages apart
    with its:
        process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("forking_server.py"), str(its.fileno())],
            env=environment(), pass_fds=[its.fileno()], start_new_session=True,
        )  # fmt: skip
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours
