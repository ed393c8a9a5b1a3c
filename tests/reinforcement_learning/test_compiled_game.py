"""The game runs compiled where it can be compiled, otherwise as plain Python; both are equal to the original."""

import errno
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from common.files import SUMS_FILE, write_sums
from reinforcement_learning import compiled_game
from reinforcement_learning.compiled_game import SWITCH, NotCompiledError
from reinforcement_learning.game.fast_game import combat, ground, state
from tests.command import python

WHICH = "from reinforcement_learning.game.fast_game import state; print(state.__file__)"
EQUAL = "tests/reinforcement_learning/game/test_fast_game.py::test_a_whole_episode_is_equal_byte_by_byte"
HAS_COMPILER = shutil.which(os.environ.get("CC") or sysconfig.get_config_var("CC").split()[0]) is not None
MODULE = "short" + sysconfig.get_config_var("EXT_SUFFIX")
BROKEN = "cdef class Nothing:\n    cdef public no_such_type there\n"


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Compile a short module instead of the game, in a folder of its own."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "short.py").write_text("def double(number):\n    return 2 * number\n")
    (sources / "short.pxd").write_text("cpdef int double(int number)\n")
    monkeypatch.setattr(compiled_game, "_SOURCES", sources)
    tmp_path.chmod(0o700)
    return tmp_path / "cache"


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler")
@pytest.mark.skipif(os.environ.get(SWITCH) == "0", reason="switched off")
def test_the_game_that_tests_play_is_compiled() -> None:
    """So `test_fast_game.py` compares compiled code with the original."""
    for module in (combat, ground, state):
        assert module.__file__.endswith(sysconfig.get_config_var("EXT_SUFFIX"))


@pytest.mark.slow
def test_plain_python_is_equal_byte_by_byte_too() -> None:
    assert "1 passed" in python("-m", "pytest", "-q", "-n", "0", EQUAL, **{SWITCH: "0"}).stdout
    assert python("-c", WHICH, **{SWITCH: "0"}).stdout.endswith("state.py\n")


def test_without_a_compiler_one_line_is_printed_and_plain_python_runs(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    ran = python("-c", WHICH, CC="no-such-compiler", XDG_CACHE_HOME=str(tmp_path))
    assert ran.stdout.endswith("state.py\n")
    assert ran.stderr == "the game runs as plain Python, which is slower: there is no C compiler (no-such-compiler)\n"


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler")
def test_modules_are_compiled_once_and_loaded(short: Path) -> None:
    folder = compiled_game._ensure(short, retry=False)
    (module,) = folder.glob("*.so")
    made = module.stat().st_mtime_ns
    assert compiled_game._ensure(short, retry=True) == folder
    assert module.stat().st_mtime_ns == made
    loaded = python("-c", "import short; print(short.double(21), short.__file__)", PYTHONPATH=str(folder))
    assert loaded.stdout == f"42 {module}\n"


@pytest.mark.parametrize("changed", ["nmmo", "python", "cython", "source", "types"])
def test_another_version_is_another_folder(short: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    before = compiled_game._key()
    assert compiled_game._key() == before
    if changed == "python":
        monkeypatch.setattr(sys, "version", "3.12.99 (main)")
    elif changed in ("nmmo", "cython"):
        known = compiled_game.version
        monkeypatch.setattr(compiled_game, "version", lambda name: "9.9" if name == changed else known(name))
    else:
        path = compiled_game._SOURCES / ("short.py" if changed == "source" else "short.pxd")
        path.write_text(path.read_text() + "\n")
    assert compiled_game._key() != before


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler")
def test_a_failure_is_kept_and_tried_again_only_on_request(short: Path) -> None:
    (compiled_game._SOURCES / "short.pxd").write_text(BROKEN)
    times = []
    for retry in (False, False, True):
        with pytest.raises(NotCompiledError, match="compiling it failed") as refused:
            compiled_game._ensure(short, retry)
        (output,) = short.glob("*/failed.txt")
        times.append(output.stat().st_mtime_ns)
    assert times[0] == times[1] < times[2]
    assert str(output) in str(refused.value)
    assert "no_such_type" in output.read_text()


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler")
def test_ctrl_c_ends_it_even_if_compilers_still_write(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*command: object, **options: object) -> None:
        monkeypatch.setattr(os, "rmdir", still_written_to)
        raise KeyboardInterrupt

    def still_written_to(*place: object, **options: object) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled_game._ensure(short, retry=False)
    assert not [path for path in short.iterdir() if not path.name.startswith(".") and path.name != "lock"]


@pytest.fixture
def compiled_by_copying(short: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Make a compiled module out of nothing, since compiling takes seconds; the list grows with each time."""
    times: list[Path] = []

    def compiled(folder: Path) -> None:
        times.append(folder)
        folder.mkdir(mode=0o700)
        (folder / MODULE).touch(mode=0o600)
        (folder / MODULE).write_bytes(bytes(range(256)) * 64)
        write_sums(folder, [MODULE])

    monkeypatch.setattr(compiled_game, "_compile", compiled)
    return times


@pytest.mark.parametrize("writable", ["cache", "folder", "module"])
@pytest.mark.usefixtures("compiled_by_copying")
def test_what_others_can_write_to_is_not_loaded(short: Path, writable: str) -> None:
    folder = compiled_game._ensure(short, retry=False)
    place = {"cache": short, "folder": folder, "module": folder / MODULE}[writable]
    place.chmod(place.stat().st_mode | 0o020)
    with pytest.raises(NotCompiledError, match=f"other users can write to {place}"):
        compiled_game._ensure(short, retry=False)


def zero_a_page(module: Path) -> None:
    with module.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(4096))


DAMAGE = {
    "cut": lambda module: os.truncate(module, 5000),
    "a zeroed page": zero_a_page,
    "missing": lambda module: module.unlink(),
    "a pipe": lambda module: (module.unlink(), os.mkfifo(module, 0o600)),
    "another module": lambda module: shutil.copy(module, module.with_name(f"more{module.name}")),
    "hashes cut": lambda module: os.truncate(module.parent / SUMS_FILE, 10),
    "a file": lambda module: (shutil.rmtree(module.parent), module.parent.touch()),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_module_is_compiled_again(short: Path, compiled_by_copying: list[Path], damage: Callable) -> None:
    folder = compiled_game._ensure(short, retry=False)
    content = (folder / MODULE).read_bytes()
    damage(folder / MODULE)
    assert compiled_game._ensure(short, retry=False) == folder
    assert compiled_by_copying == [folder, folder]
    assert (folder / MODULE).read_bytes() == content
    assert {path.name for path in folder.iterdir()} == {MODULE, SUMS_FILE}
    assert compiled_game._ensure(short, retry=False) == folder
    assert len(compiled_by_copying) == 2


def test_what_is_damaged_and_cannot_be_compiled_again_is_not_loaded(
    short: Path, compiled_by_copying: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = compiled_game._ensure(short, retry=False)
    os.truncate(folder / MODULE, 10)
    monkeypatch.undo()
    monkeypatch.setattr(compiled_game, "_SOURCES", short.parent / "sources")
    monkeypatch.setattr(compiled_game, "_cache", lambda: short)
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.delenv(SWITCH, raising=False)
    assert compiled_game.compiled_modules() == []
    damaged, plain = capsys.readouterr().err.splitlines()
    assert damaged == f"the compiled game in {folder} is damaged"
    assert plain.startswith("the game runs as plain Python, which is slower: there is no C compiler")
