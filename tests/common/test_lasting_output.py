"""Work goes on when its output is lost: a reader that ends, a closed terminal, a full disk, characters out of reach."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command import ROOT, environment, python

BEGUN = "begun\n"
WORK = """
import sys, time
from pathlib import Path
from rich.console import Console
from common import command_line
from common.files import write_text
from common.progress_view import progress, step

def main():
    print("begun", flush=True)
    if "wait" in sys.argv:
        sys.stdin.read()
    for line in range(5000):
        print("Zürich", "\\ud800", line)
    print("Zürich", file=sys.stderr)
    with progress("working", "records") as report:
        report(1, 2)
    with step(Console(), "Zürich"):
        time.sleep(0.3)
    command_line.print_table(["Zürich"], [["ü"]])
    sys.stdout.flush()
    if "file" in sys.argv:
        write_text(Path(sys.argv[-1]), "done")

command_line.run(main)
"""


def begin(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    variables = {**environment(), "PYTHONPATH": str(ROOT), **options.pop("variables", {})}
    command = [sys.executable, "-c", WORK, *map(str, arguments)]
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_reader_that_ends_does_not_end_the_work(tmp_path: Path, buffered: str) -> None:
    """As with `| head -1`, whether Python buffers what is printed or not."""
    with begin("wait", "file", tmp_path / "result", stdout=subprocess.PIPE,
               variables={"PYTHONUNBUFFERED": buffered}) as process:  # fmt: skip
        assert process.stdout and process.stdout.readline() == BEGUN.encode()
        process.stdout.close()
        _, errors = process.communicate()
    assert (process.returncode, (tmp_path / "result").read_text()) == (0, "done")
    assert errors.decode() == "Zürich\n"


def test_a_closed_terminal_does_not_end_the_work(tmp_path: Path) -> None:
    """Hanging up is ignored, as after `disown`; the live views must bear it too."""
    terminal, end = pty.openpty()
    with begin("wait", "file", tmp_path / "result", stdout=end, start_new_session=True,
               variables={"TERM": "xterm"}) as process:  # fmt: skip
        os.close(end)
        assert os.read(terminal, 100).split() == [b"begun"]
        os.close(terminal)
        process.communicate()
    assert (process.returncode, (tmp_path / "result").read_text()) == (0, "done")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(("arguments", "code"), [(("file", "result"), 0), ((), 1)])
def test_a_full_disk_of_the_log_is_told_and_does_not_end_the_work(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    """What only prints has then not done its work."""
    with Path("/dev/full").open("wb") as full, begin(*arguments, stdout=full, cwd=tmp_path) as process:
        _, errors = process.communicate()
    assert process.returncode == code
    assert errors.decode().splitlines()[1:] == ["error: what was printed could not be written: No space left on device"]
    assert [path.name for path in tmp_path.iterdir()] == list(arguments[1:])


def test_characters_that_cannot_be_encoded_are_escaped(tmp_path: Path) -> None:
    with begin("file", tmp_path / "result", stdout=subprocess.PIPE,
               variables={"PYTHONIOENCODING": "ascii"}) as process:  # fmt: skip
        output, errors = process.communicate()
    assert (process.returncode, (tmp_path / "result").read_text()) == (0, "done")
    assert output.splitlines()[1] == rb"Z\xfcrich \ud800 0" and errors == b"Z\\xfcrich\n"


def test_closed_descriptors_do_not_become_those_of_results(tmp_path: Path) -> None:
    """As with `>&-`: what is printed must not land in the file of results."""
    command = f'exec "{sys.executable}" -c "$WORK" file result >&-'
    variables = {**environment(), "PYTHONPATH": str(ROOT), "WORK": WORK}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=variables, check=False)
    assert (done.returncode, (tmp_path / "result").read_text()) == (0, "done")


def test_a_broken_pipe_of_the_work_itself_is_no_success() -> None:
    code = "from common import command_line\ndef main():\n    raise BrokenPipeError('worker')\ncommand_line.run(main)"
    assert "worker" in python("-c", code, code=1).stderr
