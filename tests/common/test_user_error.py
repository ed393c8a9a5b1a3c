"""Messages may quote damaged files: what is shown is one line that a terminal does not obey."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from common import command_line
from common.user_error import LONGEST_MESSAGE, TOO_LITTLE_MEMORY, UserError, printable

HOSTILE = "a\nb\r\x1b[31mred\x07\u202e\x00\ud800é 'x'"


def test_what_a_terminal_would_obey_is_written_out_and_long_messages_keep_start_and_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert str(UserError(HOSTILE)) == r"a\nb\r\x1b[31mred\x07\u202e\x00\ud800é 'x'"
    assert str(UserError(str(UserError(HOSTILE)))) == str(UserError(HOSTILE)), "a quoted message is escaped once"
    command_line.print_table(("policy",), [(HOSTILE,)])
    assert capsys.readouterr().out.splitlines() == ["policy", printable(HOSTILE)]
    message = str(UserError("file.json: " + "\n" * 10_000 + ": copy it again"))
    assert len(message) == LONGEST_MESSAGE
    assert message.startswith(r"file.json: \n") and message.endswith(r"\n: copy it again") and " [...] " in message


def failing(error: Exception) -> Callable[[], None]:
    def main() -> None:
        raise error

    return main


NO_PATH = Path("folder") / "fi\nle"


@pytest.mark.parametrize(
    ("main", "message"),
    [
        (failing(UserError(HOSTILE)), str(UserError(HOSTILE))),
        *(
            (
                failing(OSError(number, os.strerror(number), NO_PATH)),
                rf"folder/fi\nle cannot be used: {os.strerror(number)}",
            )
            for number in (errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP)
        ),
        (lambda: print(np.empty(1 << 50)), TOO_LITTLE_MEMORY),
        (failing(RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")), TOO_LITTLE_MEMORY),
    ],
    ids=["hostile", "no access", "too long", "links in a circle", "memory", "memory of torch"],
)
def test_scripts_print_one_line(main: Callable[[], None], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.run(main)
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and shown == f"error: {message}\n" and "\x1b" not in shown


def test_other_failures_of_the_system_keep_their_traceback() -> None:
    with pytest.raises(FileNotFoundError):
        command_line.run(failing(FileNotFoundError(errno.ENOENT, "missing", "own file")))
