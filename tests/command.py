"""Run the stage scripts as users do, and check what is refused."""

import contextlib
import csv
import fcntl
import importlib
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from common import command_line
from common.user_error import UserError

ROOT = Path(__file__).parents[1]
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(script: str, *arguments: object, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a stage script from the project's root, or a copy of it, and return its output and exit code."""
    return python(script, *arguments, folder=folder, code=None)


def run_here(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Do the same as `run` in this process, which saves starting Python and importing the libraries.

    Suitable for testing what a script prints, writes and refuses. Tests of its process, such as signals, imports or
    termination, need `run` or `start`.
    """
    main = importlib.import_module(script.removesuffix(".py").replace("/", ".")).main
    printed, warned = _Captured(), _Captured()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, *map(str, arguments)])
        patch.chdir(ROOT)
        for name in os.environ.keys() - environment().keys():
            patch.delenv(name)
        for name, value in environment().items():
            patch.setenv(name, value)
        interrupt = signal.getsignal(signal.SIGINT)
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(warned),
            pytest.raises(SystemExit) as ended,
        ):
            command_line.run(main)
        signal.signal(signal.SIGINT, interrupt)
    code = ended.value.code
    if code == command_line.EXIT_INTERRUPTED:
        raise KeyboardInterrupt  # an interrupt is meant for the tests, not for the running script
    return subprocess.CompletedProcess([script, *arguments], code, printed.getvalue(), warned.getvalue())


class _Captured(io.StringIO):
    """Text, of which tyro draws boxes as it does on a terminal."""

    encoding = "utf-8"


def run_well(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Do the same as `run_here`, and check that the script ended well."""
    done = run_here(script, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def python(
    *arguments: object, folder: Path = ROOT, code: int | None = 0, timeout: float = 900, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments of its own, check its exit code, and return its output.

    Args:
        variables: of the environment, beside those of the tests.
        code: None for any.
    """
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder, env=environment() | variables, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done


class Started(subprocess.Popen[str]):
    """A process in its own session, as a shell starts it, with its output in a pipe; a failing test ends it.

    Ctrl-C interrupts it even if the tests were started in the background of a shell, which ignores the signal there.
    """

    def __init__(self, *command: object):
        super().__init__(
            list(map(str, command)), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def __exit__(self, error: type[BaseException] | None, *more: Any) -> None:
        if error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        super().__exit__(error, *more)


def start(script: str, *arguments: object) -> Started:
    """Start a stage script."""
    return Started(sys.executable, script, *arguments)


def printed_until(process: subprocess.Popen[str], part: str) -> str:
    """Return what a process prints up to the end of the line that contains this part."""
    assert process.stdout
    lines = []
    while part not in (line := process.stdout.readline()):
        assert line, "".join(lines)
        lines.append(line)
    return "".join([*lines, line])


def torchrun(script: Path | str, *arguments: object) -> None:
    """Run a script in two processes that train together, and check that they end well."""
    result = subprocess.run(
        [*TORCHRUN, script, *map(str, arguments)], cwd=ROOT, env={**environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    return {**kept, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", "NETRC": os.devnull}


def assert_refused(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Check that a script ended with exit code 2 and one line that contains all `parts`."""
    assert result.returncode == 2, result.stdout + result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    for part in parts:
        assert part in lines[0]


def assert_refuses(
    message: str | Iterable[str], function: Callable[..., object], *arguments: object, **options: object
) -> str:
    """Check that a function refuses its arguments, and return its message.

    Args:
        message: a regular expression that the message must match, or any number of parts that it must contain.
        function: what is called with all further arguments.
    """
    with pytest.raises(UserError, match=message if isinstance(message, str) else None) as error:
        function(*arguments, **options)
    text = str(error.value)
    assert isinstance(message, str) or all(part in text for part in message), text
    return text


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table that a script wrote."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def run_on_terminal(columns: int, script: str, *arguments: object, interrupt_at: str | None = None) -> tuple[int, str]:
    """Run a stage script on its own terminal; return the exit code and everything sent to the terminal.

    Once `interrupt_at` has appeared, the script is interrupted as by Ctrl-C.
    """
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, script, *map(str, arguments)],
        cwd=ROOT, env={**kept, "TERM": "xterm-256color"}, stdin=end, stdout=end, stderr=end, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(end)
        sent = b""
        with contextlib.suppress(OSError):  # how Linux reports that the other end is closed
            while received := os.read(terminal, 1 << 16):
                sent += received
                if interrupt_at is not None and interrupt_at in sent.decode(errors="ignore"):
                    os.killpg(process.pid, signal.SIGINT)
                    interrupt_at = None
    os.close(terminal)
    return process.returncode, sent.decode()
