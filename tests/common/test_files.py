"""Files appear whole or not at all, also where a library opens them itself."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from common.files import (
    append_bytes,
    atomic_file,
    atomic_path,
    make_folder,
    read_bytes,
    read_json,
    read_lines,
    sha256,
    sums_hold,
    visible,
    write_bytes,
    write_json,
    write_sums,
    write_text,
)
from tests.command import ROOT, assert_refuses


def test_a_file_appears_only_at_the_end_and_what_is_still_being_written_is_left(tmp_path: Path) -> None:
    target = tmp_path / "new" / "film.gif"
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"whole")
        assert not target.exists() and temporary.parent == target.parent
    assert target.read_bytes() == b"whole" and [path.name for path in target.parent.iterdir()] == ["film.gif"]
    assert stat.S_IMODE(target.stat().st_mode) & 0o600 == 0o600 and target.stat().st_mode & 0o111 == 0
    with atomic_file(target) as first:
        first.write(b"first")
        write_bytes(target, b"second")
        assert target.read_bytes() == b"second"
    assert target.read_bytes() == b"first" and [path.name for path in target.parent.iterdir()] == ["film.gif"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "film.gif"
    target.write_bytes(b"old")
    for opened in (atomic_path, atomic_file):
        with pytest.raises(error), opened(target) as half:
            half.write_bytes(b"half") if isinstance(half, Path) else half.write(b"half")
            raise error
        assert target.read_bytes() == b"old" and [path.name for path in tmp_path.iterdir()] == ["film.gif"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [(None, "is not a folder"), ("nowhere", "is a link to nowhere, which is not there"),
     ("maps", "is a link to maps, which is not there"), ("file", "is a link to file, which is no folder")],
)  # fmt: skip
def test_what_stands_where_a_folder_should_be_is_named(tmp_path: Path, target: str | None, reason: str) -> None:
    """Of a link that leads nowhere, or to itself, the system says only that the file exists."""
    (tmp_path / "file").touch()
    place = tmp_path / "maps" if target else tmp_path / "file"
    if target:
        place.symlink_to(target)
    assert f"{place} {reason}" in assert_refuses("cannot be made", make_folder, place)
    if target == "nowhere":
        for act in (make_folder, lambda inside: write_bytes(inside / "file", b"")):
            assert f"{place} {reason}" in assert_refuses(str(place / "inner"), act, place / "inner")
    assert_refuses("cannot be written", write_bytes, tmp_path / "file" / "film.gif", b"")


def kill_in(code: str, folder: Path) -> None:
    """Run code in a process that is killed at its end."""
    head = "import os, signal, sys\nfrom pathlib import Path\nfrom common.files import *\nfolder = Path(sys.argv[1])\n"
    done = subprocess.run([sys.executable, "-c", head + code, folder], cwd=ROOT, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes_the_file(tmp_path: Path) -> None:
    kill_in(
        "with atomic_path(folder / 'film.gif'), atomic_path(folder / 'film.gif.b'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)",
        tmp_path,
    )
    assert len(list(tmp_path.glob(".*.partial"))) == 2
    write_bytes(tmp_path / "film.gif", b"whole")
    (other,) = tmp_path.glob(".*.partial")
    assert other.name.startswith(".film.gif.b.") and (tmp_path / "film.gif").read_bytes() == b"whole"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_plain_file_is_neither_read_nor_written(tmp_path: Path, kind: str) -> None:
    path = {"pipe": tmp_path / "pipe", "device": Path("/dev/null"), "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    for act in (read_bytes, read_lines, sha256, read_json, lambda path: append_bytes(path, b"x")):
        assert_refuses([str(path), "a directory" if kind == "folder" else "plain file"], act, path)
    assert_refuses("is not a valid path", read_bytes, Path("a\0b"))


def test_appending(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert read_lines(path) == []
    append_bytes(path, b"a\n")
    append_bytes(path, b"b\n", sync=True)
    assert read_lines(path) == [b"a\n", b"b\n"]
    append_bytes(path, b"c\n", begin=True)
    assert path.read_bytes() == b"c\n"


def test_hidden_files_are_passed_over(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "._a.txt", ".hidden/c.txt", "d/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in visible(tmp_path, "**/*.txt")] == ["a.txt", "b.txt", "e.txt"]
    inside = tmp_path / ".hidden"
    assert [path.name for path in visible(inside, "*.txt")] == ["c.txt"]


def test_hashes_hold_until_a_byte_changes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    assert not sums_hold(tmp_path, ["a"])
    write_sums(tmp_path, ["a"])
    assert sums_hold(tmp_path, ["a"]) and not sums_hold(tmp_path, ["a", "b"])
    (tmp_path / "a").write_bytes(b"2")
    assert not sums_hold(tmp_path, ["a"])


def test_names_that_are_no_text_are_written_with_escapes(tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9")
    write_json(tmp_path / "a.json", {odd: [odd, 1]})
    assert read_json(tmp_path / "a.json") == {r"caf\xe9": [r"caf\xe9", 1]}
    write_text(tmp_path / "a.txt", odd)
    assert (tmp_path / "a.txt").read_bytes() == rb"caf\udce9"
