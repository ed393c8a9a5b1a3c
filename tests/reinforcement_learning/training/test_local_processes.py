"""`train.py --processes 2`: one run in two processes, which start, learn, fail and end together."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from agent_zoo.data_parallel import join_processes
from agent_zoo.torchrun import processes_on_this_machine
from reinforcement_learning import processes
from reinforcement_learning.processes import must_start, run_together, share_of_work, usable_cores
from reinforcement_learning.run_settings import check_training
from reinforcement_learning.settings import RolloutSettings, Settings, TrainSettings
from tests.command import ROOT, assert_refused, assert_refuses, printed_until, python, run_here, start, torchrun
from tests.test_train import ONCE, WORLD, folders, metrics_of

LEARNING = (*WORLD, *ONCE, "--train.update-epochs", "1", "--train.total-agent-steps", "2048")
SHARED = (*LEARNING, "--train.batch-size", "1024", "--train.minibatch-rows", "32", "--rollout.num-envs", "4")
HALVED = (*LEARNING, "--train.batch-size", "512", "--train.minibatch-rows", "16", "--rollout.num-envs", "2")


def together(script: str) -> int:
    """Run a Python script in two processes."""
    return run_together([sys.executable, "-c", script], size=2)


def test_each_process_has_its_part_of_worlds_batch_and_minibatch() -> None:
    settings = Settings(
        train=TrainSettings(processes=4, batch_size=1024, minibatch_rows=32, total_agent_steps=1024, bptt_horizon=8),
        rollout=RolloutSettings(num_envs=8),
    )
    check_training(settings)
    own = share_of_work(settings)
    assert (own.train.batch_size, own.train.minibatch_rows, own.rollout.num_envs) == (256, 8, 2)
    assert own.train.total_agent_steps == 1024, "agent-steps count all processes"
    assert share_of_work(replace(settings, train=replace(settings.train, processes=1))).train.batch_size == 1024


def test_only_the_first_process_starts_others(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Settings(train=TrainSettings(processes=2))
    monkeypatch.setattr(processes, "usable_cores", lambda: 1)
    assert_refuses("--processes 2 needs as many cores, and this process may use 1", must_start, two)
    monkeypatch.setattr(processes, "usable_cores", lambda: 2)
    assert must_start(two) and not must_start(Settings())
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not must_start(two) and not must_start(Settings())
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert_refuses("torchrun started 3 processes: leave out --processes 2, or pass 3", must_start, two)


@pytest.mark.parametrize("text", ["abc", "", "0", "-1", "2.0", "9" * 5000, "\u0662"])
def test_what_is_no_number_of_processes_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", text)
    assert_refuses("WORLD_SIZE is", must_start, Settings())
    monkeypatch.setenv("LOCAL_WORLD_SIZE", text)
    assert_refuses("LOCAL_WORLD_SIZE is", processes_on_this_machine)


@pytest.mark.parametrize("missing", ["RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_a_stray_world_size_is_refused(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in {"RANK", "MASTER_ADDR", "MASTER_PORT"} - {missing}:
        monkeypatch.setenv(name, "0")
    monkeypatch.delenv(missing, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for act in (lambda: must_start(Settings()), lambda: join_processes(torch.device("cpu"))):
        assert_refuses(f"WORLD_SIZE is 2, but {missing} is not set", act)


def test_processes_know_their_number_and_share_the_cores(capfd: pytest.CaptureFixture[str]) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")
    code = together(f"import os; os.write(1, ' '.join(os.environ[name] for name in {names}).encode() + b'\\n')")
    threads = os.environ.get("OMP_NUM_THREADS", max(1, usable_cores() // 2))
    assert code == 0
    assert sorted(capfd.readouterr().out.splitlines()) == [f"0 0 2 2 {threads}", f"1 1 2 2 {threads}"]


def test_what_processes_say_to_each_other_cannot_be_reached_from_other_machines(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    code = together("""if True:
        import os, psutil, torch
        from agent_zoo.data_parallel import ALONE, join_processes
        processes = join_processes(torch.device("cpu"))
        assert processes.concatenate(torch.tensor([processes.rank])).tolist() == [0, 1]
        at = {c.laddr.ip for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN}
        os.write(1, f"{processes.rank} {' '.join(at)}\\n".encode())
        processes.leave()""")
    shown = capfd.readouterr()
    assert code == 0, shown.err
    assert sorted(shown.out.splitlines()) == ["0 127.0.0.1", "1 127.0.0.1"]


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ("error: no such task", "error: no such task", "error: no such task\n"),
        ("error: disk full", "error: another process of this run ended", "error: disk full\n"),
        ("error: another process of this run ended", "error: disk full", "error: disk full\n"),
        ("interrupted", "interrupted", "interrupted\n"),
        ("a warning", "a warning", "a warning\na warning\n"),
    ],
)
def test_an_error_is_shown_once_and_the_reason_alone(
    capfd: pytest.CaptureFixture[str], first: str, second: str, shown: str
) -> None:
    code = together(
        f"import os, sys; print(({first!r}, {second!r})[int(os.environ['RANK'])], file=sys.stderr); exit(2)"
    )
    assert code == 2
    assert capfd.readouterr().err == shown


def test_a_process_that_waits_for_one_that_failed_is_ended(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_SECONDS_TO_END", 1)
    start = time.monotonic()
    code = together("import os, time; time.sleep(300) if os.environ['RANK'] == '0' else exit(2)")
    assert time.monotonic() - start < 60
    assert code == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("outcome", "code"),
    [("pass", 0), ("raise UserError('no')", 2), ("raise KeyboardInterrupt", 130), ("sys.exit(143)", 143)],
)
def test_one_of_several_ends_with_its_exit_code_though_a_thread_runs_on(outcome: str, code: int) -> None:
    """Threads that connect the processes may outlive the training; what is registered for the end still runs."""
    script = f"""
import atexit, sys, threading, time
from common import command_line
from agent_zoo.data_parallel import join_processes
from agent_zoo.torchrun import processes_on_this_machine
from common.user_error import UserError

def main():
    atexit.register(print, "registered")
    threading.Thread(target=time.sleep, args=(600,)).start()
    {outcome}

command_line.run(main)
"""
    assert python("-c", script, code=code, timeout=60, WORLD_SIZE="2").stdout == "registered\n"


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
def test_a_run_equals_that_of_torchrun_with_half_of_the_work_each(tmp_path: Path, maps: Path) -> None:
    where = folders(tmp_path, maps.parent)
    result = python("train.py", *SHARED, "-n", "shared", "--processes", "2", *where)
    assert result.stdout.count("trained policy") == 1 and result.stderr == ""
    torchrun("train.py", *HALVED, "-n", "halves", *where)
    shared, expected = (metrics_of(tmp_path / "runs" / name) for name in ("shared", "halves"))
    assert len(shared) == 2 and shared == expected
    weights, expected_weights = (
        load_file(tmp_path / "policies" / f"{name}.safetensors") for name in ("shared", "halves")
    )
    assert all((weights[name] == expected_weights[name]).all() for name in expected_weights)

    python("train.py", "--resume", tmp_path / "runs" / "shared", "--no-track", "--train.total-agent-steps", "3072")
    assert len(metrics_of(tmp_path / "runs" / "shared")) == 3
    assert_refused(
        run_here("train.py", "--resume", tmp_path / "runs" / "shared", "--no-track", "--processes", "1"),
        "train.processes was 2 and cannot become 1",
    )


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
def test_processes_with_a_world_each_on_ray_need_a_core_each_and_learn_the_same(tmp_path: Path, maps: Path) -> None:
    pytest.importorskip("ray")
    short = (*HALVED, "--train.total-agent-steps", "512", "--processes", "2", *folders(tmp_path, maps.parent))
    for vectorization in ("serial", "ray"):
        python("train.py", *short, "-n", vectorization, "--vectorization", vectorization)
    plain, on_ray = (metrics_of(tmp_path / "runs" / name) for name in ("serial", "ray"))
    assert len(plain) == 1 and plain == on_ray, "worlds on Ray play otherwise"


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_all_processes_end_with_the_first(tmp_path: Path, maps: Path, number: signal.Signals) -> None:
    command = (*SHARED, "--train.total-agent-steps", "10_000_000", "-n", "stopped", "--processes", "2")
    with start("train.py", *command, *folders(tmp_path, maps.parent)) as process:
        output = printed_until(process, "agent-steps")
        children = psutil.Process(process.pid).children()
        assert len(children) == 2
        process.send_signal(number)
        output += process.stdout.read()  # until all have ended
    assert psutil.wait_procs(children, timeout=10)[1] == []
    if number is signal.SIGKILL:
        return
    assert process.returncode == 128 + number, output
    assert output.count("stopped early") == 1 and "error" not in output
    assert (tmp_path / "policies" / "stopped.safetensors").exists()
