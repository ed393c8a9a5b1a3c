"""Started by `tests/forked.py`: imports large libraries, then forks a process for each program that it is sent."""

import fcntl
import importlib
import json
import os
import signal
import socket
import sys

LIBRARIES = (
    "torch", "torch._dynamo", "scipy.stats", "sklearn.cluster", "umap", "nmmo", "matplotlib.pyplot",
    "safetensors.torch", "tyro", "rich.live", "pydantic", "yaml", "orjson",
)  # fmt: skip
"""What commands take long to import. No module of this project, which each process must import anew, is among them."""
LONGEST_PROGRAM = 1 << 20
MOST_FILES = 8
ABOVE_ALL_FILES = 100


def next_program(tests: socket.socket) -> str:
    """Return a program in the process that was forked for it; in the server itself, this function never returns.

    The tests are sent the number of the process, and then how it ended.
    """
    while True:
        content, received, _, _ = socket.recv_fds(tests, LONGEST_PROGRAM, MOST_FILES)
        if not content:  # the tests have ended
            sys.exit()
        request = json.loads(content)
        process = os.fork()
        if process == 0:
            tests.close()
            become(request, received)
            return request["program"]
        for descriptor in received:
            os.close(descriptor)
        tests.send(str(process).encode())
        tests.send(str(os.waitpid(process, 0)[1]).encode())


def become(request: dict, received: list[int]) -> None:
    """Make this process like one that was started with the arguments, folder, environment and files of a request."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    apart = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, ABOVE_ALL_FILES) for descriptor in received]
    for descriptor in received:
        os.close(descriptor)
    for descriptor, number in zip(apart, request["files"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[0] = ""
    sys.argv = request["arguments"]


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    program = next_program(socket.socket(fileno=int(sys.argv[1])))
    exec(compile(program, "<program>", "exec"), {"__name__": "started"})
