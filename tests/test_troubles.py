"""What happens to computers: Ctrl-C twice, hardly any shared memory, clocks that jump, names that are no text."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.files import PARTIAL_SUFFIX
from reinforcement_learning.processes import interrupts_held_back
from tests.command import ROOT, assert_refused, environment, run_here, run_well, start
from tests.fuzz import Bench
from tests.test_kills import WRITERS
from tests.test_train import ONE_UPDATE, folders

SMALL_SHM = 'mount -t tmpfs -o size=300k tmpfs /dev/shm && exec "$@"'
CAN_MOUNT = not subprocess.run(
    ["unshare", "-m", "sh", "-c", SMALL_SHM, "sh", "true"], capture_output=True, check=False
).returncode if shutil.which("unshare") else False  # fmt: skip
JUMPS = (0, 1e6, -1e6, 3e8, -3e8)
"""Seconds by which a clock that is set forwards and back is wrong, at one look at it after the other."""
RESULTS = (".npy", ".parquet", ".safetensors")
"""Files that hold what a command found, and nothing of when it did so."""


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.3])
@pytest.mark.parametrize("name", ["analyze", "extract", "sparse", "train"])
def test_ctrl_c_twice_ends_at_once_and_in_order(name: str, gap: float, bench: Bench, tmp_path: Path) -> None:
    """The second one comes while the first is being obeyed."""
    with start(*WRITERS[name].command(bench, tmp_path / "run")) as process:
        assert process.stdout
        before = process.stdout.readline()
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(gap)
        printed = before + process.stdout.read()
    assert process.returncode in (130, -signal.SIGINT) and "Traceback" not in printed, printed
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(PARTIAL_SUFFIX)]


@pytest.mark.slow
@pytest.mark.skipif(not CAN_MOUNT, reason="needs the right to mount")
def test_training_needs_no_room_in_shared_memory(bench: Bench, tmp_path: Path) -> None:
    """As in containers; worlds in processes of their own exchange observations in memory that is mapped."""
    options = (*ONE_UPDATE, "--rollout.vectorization", "multiprocessing", *folders(tmp_path))
    command = [sys.executable, "train.py", "-n", "tiny", *map(str, options)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", SMALL_SHM, "sh", *command],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "policies" / "tiny.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["analyze", "extract", "train"])
def test_clocks_that_jump_change_nothing(name: str, bench: Bench, tmp_path: Path, monkeypatch) -> None:
    command, found, real_time = WRITERS[name].command(bench, tmp_path / "run"), [], time.time
    for jumps in ((0,), JUMPS):
        wrong = itertools.cycle(jumps)
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda wrong=wrong: real_time() + next(wrong))
            patch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
            run_well(*command)
        results = (path for path in (tmp_path / "run").rglob("*") if path.suffix in RESULTS)
        found.append({path.relative_to(tmp_path): path.read_bytes() for path in results})
        shutil.rmtree(tmp_path / "run")
    assert found[0] and found[0] == found[1]


@pytest.mark.parametrize("script", ["extract_activations.py", "evaluate.py"])
def test_a_policy_whose_name_is_no_text_is_refused_before_it_plays(
    script: str, three_policies: Path, tmp_path: Path
) -> None:
    """Each record would hold the name, which JSON and Parquet cannot."""
    name = os.fsdecode(b"caf\xe9")
    shutil.copy(three_policies / "kit.safetensors", tmp_path / f"{name}.safetensors")
    where = ("pve", "--policies-dir", tmp_path, "-o", tmp_path / "dumps") if "extract" in script else (tmp_path, "pve")
    assert_refused(run_here(script, *where, "-p", name), r"caf\udce9.safetensors cannot name a policy", "not UTF-8")
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.safetensors"]


def test_ctrl_c_waits_until_a_process_has_started_which_never_sees_it() -> None:
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    started: list[str] = []
    blocked = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_held_back():
            os.kill(os.getpid(), signal.SIGINT)
            started.append(subprocess.check_output([sys.executable, "-c", blocked], text=True).strip())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert started == ["True"] and signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.signal(signal.SIGINT, usual)
