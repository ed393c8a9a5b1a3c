"""What a killed process leaves in the folder for temporary files, the next one removes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.command import ROOT, environment

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


def play(how: str, temporary: Path) -> int:
    """Let a process start another one and end; returns its exit code."""
    own = {**environment(), "TMPDIR": str(temporary)}
    ended = subprocess.run(
        [sys.executable, "-c", PLAY, how], cwd=ROOT, env=own, check=False, capture_output=True, text=True
    )
    assert not ended.stderr
    return ended.returncode


def test_only_a_killed_process_leaves_its_folder_and_only_for_a_while() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        here = Path(folder)
        kept = {here / f"nmmo-{os.getpid()}-mine", here / "pymp-other"}
        for path in kept:
            path.mkdir()
        assert play("dies", here) == -9 and len([*here.iterdir()]) == 3
        assert play("ends", here) == 0 and set(here.iterdir()) == kept


def test_a_long_name_of_that_folder_does_no_harm(tmp_path: Path) -> None:
    """Sockets cannot have one."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    assert play("ends", long) == 0
