"""YAML from anywhere is read quickly or refused in one line, whichever file it is and whatever it holds."""

import os
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest

from analysis.findings.study_file import read_study
from common.yaml_file import read_yaml
from reinforcement_learning.game.tasks import read_tasks
from reinforcement_learning.run_settings import load_settings
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.sweep import read_sweep
from tests.command import assert_refuses

SECONDS = 30
"""Far less than what these files took before, however busy the machine is."""

LINE = "[x, x, x, x, x, x, x, x, x]"
BOMB = f"a: &a {LINE}\n" + "".join(
    f"{name}: &{name} {LINE.replace('x', f'*{before}')}\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Half a kilobyte that stands for 9 to the power of 9 values."""

REFUSED = {
    "an alias bomb": (BOMB, "line 2: the alias *a"),
    "a list that holds itself": ("&a [*a]", "line 1: the alias *a"),
    "no such date": ("a: 1\nb: 2001-99-99", "line 2: '2001-99-99' is not a valid timestamp"),
    "no integer": ('!!int "abc"', "line 1: 'abc' is not a valid int"),
    "no boolean": ("!!bool abc", "'abc' is not a valid bool"),
    "an integer of many digits": ("a: " + "9" * 4301, "a number of 4,301 characters; at most 100"),
    "an integer of many sixties": ("a: 1" + ":1" * 100_000, "a number of 200,001 characters"),
    "deep brackets": ("[" * 5000, "nested deeper than 32 levels"),
    "deep settings": ("\n".join(" " * depth + "a:" for depth in range(100)), "line 32: nested deeper"),
    "no such character": ('"\\UFFFFFFFF"', "too large"),
    "half a character": ('a: "\\ud800"', r"line 1: '\ud800' is no character of a text"),
    "half a character as a key": ('"\\udfff": 1', "is no character of a text"),
    "the end of texts": ('a: "x\\0y"', r"line 1: '\x00' is no character of a text"),
    "a merge": ("a: 1\nb: {<<: {c: 1}}", "line 2: the key <<: nothing is merged"),
    "a date as a key": ("a: 1\nb: {2001-01-01: 1}", "line 2: the key datetime.date(2001, 1, 1) is neither text nor"),
    "bytes as a key": ("!!binary eA==: 1", "line 1: the key b'x' is neither text nor a number"),
    "a character that YAML forbids": ("a: \0", "special characters are not allowed"),
    "code": ("!!python/object/apply:os.system [true]", "could not determine a constructor"),
    "two documents": ("a: 1\n---\nb: 2", "another document"),
    "no end": ("a: [", "line 1"),
    "too many values": ("[" + "1," * 30_001 + "]", "more than 30,000 values"),
    "too many bytes": ("#" * (1 << 20) + "\n", "larger than 1 MiB"),
}


READERS = {
    "settings": lambda path: load_settings(path, "anyone"),
    "tasks": read_tasks,
    "sweep": lambda path: read_sweep(path, Settings()),
    "study": read_study,
}


def refusal(read: Callable[[Path], object], path: Path, text: str) -> str:
    path.write_text(text)
    start = process_time()
    message = assert_refuses([str(path)], read, path)
    assert process_time() - start < SECONDS
    return message


@pytest.mark.parametrize(("text", "part"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_read_is_refused_in_one_line_and_at_once(tmp_path: Path, text: str, part: str) -> None:
    assert part in refusal(lambda path: read_yaml(path, "--config"), tmp_path / "file.yaml", text)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_settings_tasks_and_sweeps_are_read_in_the_same_way(tmp_path: Path, read: Callable[[Path], object]) -> None:
    for case in ("an alias bomb", "no such date", "no integer", "an integer of many digits", "deep brackets"):
        text, part = REFUSED[case]
        assert part in refusal(read, tmp_path / "file.yaml", text)


def test_what_is_valid_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("a: {b: [1, 2.5, x], c: 3_000}\nd: &unused 1e-4\n")
    assert read_yaml(path, "--config") == {"a": {"b": [1, 2.5, "x"], "c": 3000}, "d": "1e-4"}
    path.write_text("")
    assert read_yaml(path, "--config") is None


def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), Path("/dev/tty")):
        message = assert_refuses([str(path), "--config"], read_yaml, path, "--config")
        assert "is not a plain file" in message or "cannot be read" in message
    for read in READERS.values():
        assert_refuses("is not a plain file", read, pipe)
