"""What a killed process leaves in the folder for temporary files, the next one removes."""

import os
import tempfile
from pathlib import Path

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


def test_only_a_killed_process_leaves_its_folder_and_only_for_a_while() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        here = Path(folder)
        kept = {here / f"nmmo-{os.getpid()}-mine", here / "pymp-other"}
        for path in kept:
            path.mkdir()
        play("dies", here, -9)
        assert len([*here.iterdir()]) == 3
        play("ends", here)
        assert set(here.iterdir()) == kept


def test_a_long_name_of_that_folder_does_no_harm(tmp_path: Path) -> None:
    """Sockets cannot have one."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    play("ends", long)
