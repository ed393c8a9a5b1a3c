"""What a killed process leaves in the folder for temporary files, the next one removes; freed memory stays."""

import ctypes
import json
import os
import tempfile
from pathlib import Path

import pytest

from tests.command import python

PLAY = """
import multiprocessing, os, sys
from multiprocessing.connection import Listener
from reinforcement_learning.processes import name_temporary_folder
name_temporary_folder()
worker = multiprocessing.get_context("forkserver").Process(target=print)
worker.start()
worker.join()
listener = Listener(family="AF_UNIX")  # in the folder until the process has ended
if sys.argv[1] == "dies":
    os.kill(os.getpid(), 9)
"""


def play(how: str, temporary: Path, code: int = 0) -> None:
    """Let a process start another one and end with this exit code."""
    assert not python("-c", PLAY, how, code=code, TMPDIR=str(temporary)).stderr


def test_only_a_killed_process_leaves_its_folder_for_a_while_however_long_its_name(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        here = Path(folder)
        kept = {here / f"nmmo-{os.getpid()}-mine", here / "pymp-other"}
        for path in kept:
            path.mkdir()
        play("dies", here, -9)
        assert len([*here.iterdir()]) == 3
        play("ends", here)
        assert set(here.iterdir()) == kept
    # Sockets cannot have one.
    long = tmp_path / ("x" * 100)
    long.mkdir()
    play("ends", long)


FAULTS = """
import ctypes, json, resource, sys
from reinforcement_learning.processes import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else None
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes, libc.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
size = int(sys.argv[2])
def minibatch():
    blocks = [libc.malloc(size) for _ in range(6)]
    for block in blocks:
        libc.memset(block, 1, size)
    for block in blocks:
        libc.free(block)
for _ in range(5):
    minibatch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    minibatch()
print(json.dumps([kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]))
"""


def page_faults(how: str, block: int) -> tuple[bool | None, int]:
    kept, faults = json.loads(python("-c", FAULTS, how, block).stdout)
    return kept, faults


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
@pytest.mark.parametrize("mebibytes", [20, 40])  # glibc treats blocks of more than 32 MiB in another way
def test_freed_memory_is_used_again_without_fresh_pages(mebibytes: int) -> None:
    kept, faults = page_faults("keep", mebibytes * 2**20)
    _, as_usual = page_faults("as usual", mebibytes * 2**20)
    assert kept is True
    assert as_usual > 100_000, "each minibatch has 30,720 pages of 4 KiB, or twice as many"
    assert faults < 10_000
