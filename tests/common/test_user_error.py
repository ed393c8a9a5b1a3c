"""Messages may quote damaged files: what is shown is one line that a terminal does not obey."""

import os
import sys
from pathlib import Path

import pytest

from common import command_line
from common.files import read_json
from common.user_error import LONGEST_MESSAGE, UserError, printable
from tests.command import assert_refuses

HOSTILE = "a\nb\r\x1b[31mred\x07\u202e\x00\ud800é 'x'"


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert str(UserError(HOSTILE)) == r"a\nb\r\x1b[31mred\x07\u202e\x00\ud800é 'x'"
    assert str(UserError(str(UserError(HOSTILE)))) == str(UserError(HOSTILE)), "a quoted message is escaped once"


def test_long_messages_keep_their_start_and_what_to_do() -> None:
    message = str(UserError("file.json: " + "\n" * 10_000 + ": copy it again"))
    assert len(message) == LONGEST_MESSAGE
    assert message.startswith(r"file.json: \n") and message.endswith(r"\n: copy it again") and " [...] " in message


def test_scripts_print_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise UserError(HOSTILE)

    with pytest.raises(SystemExit) as ended:
        command_line.run(main)
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and shown == f"error: {UserError(HOSTILE)}\n" and "\x1b" not in shown


def test_tables_show_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    command_line.print_table(("policy",), [(HOSTILE,)])
    assert capsys.readouterr().out.splitlines() == ["policy", printable(HOSTILE)]


@pytest.mark.skipif(sys.platform != "linux", reason="needs named pipes")
def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert_refuses(r"pipe\.json is not a plain file", read_json, tmp_path / "pipe.json")
