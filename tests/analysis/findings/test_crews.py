"""Stages run side by side on a Ray cluster; a lost machine costs nothing, and nothing goes on after the study ends."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from analysis.findings.crews import RayCrew
from analysis.findings.running import StudyPlan, StudyRun
from analysis.findings.study_file import Stage, Study
from tests.command import assert_refuses

ray = pytest.importorskip("ray")
from tests.local_cluster import ONE_CORE, Cluster, head_node, processes_on  # noqa: E402

WRITES = """
import os, pathlib, sys, time
here, other, waits = pathlib.Path(sys.argv[1]), sys.argv[2], "wait" in sys.argv and "--resume" not in sys.argv
here.mkdir(exist_ok=True)
(here / "pid").write_text(str(os.getpid()))
print("resumed" if "--resume" in sys.argv else "begun", flush=True)
end = time.monotonic() + 60
while not (here.parent / other / "pid").exists():
    assert time.monotonic() < end, "the other does not run beside it"
    time.sleep(0.05)
while waits and not (here / "go").exists():
    time.sleep(0.05)
(here / "x").write_text("x")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head node with one core, which ignores SIGINT as what a shell starts in its background does."""
    node = head_node()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    started = next(node)
    signal.signal(signal.SIGINT, before)
    yield started
    next(node, None)


@pytest.fixture
def second_node(cluster: Cluster) -> Iterator[list]:
    nodes = [cluster.add_node(**ONE_CORE)]
    cluster.wait_for_nodes()  # also until one that an earlier test removed is known to be gone
    yield nodes
    for node in nodes:
        cluster.remove_node(node, allow_graceful=False)
    ray.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "write.py").write_text(WRITES)
    return tmp_path


def stage(name: str, beside: str, *, waits: bool = False) -> Stage:
    """Return a stage that fails unless another one runs beside it; with `waits`, it ends once it has a file `go`."""
    return Stage(name, f"write.py {{here}} {beside}{' wait' * waits}", 1.0, resume="--resume")


BOTH_WAIT = Study((stage("one", "two", waits=True), stage("two", "one", waits=True)))


def crew(cluster: Cluster, folder: Path) -> RayCrew:
    return RayCrew(folder, cluster.address, 1)


def pid_in(folder: Path, name: str) -> int:
    path = folder / "results" / name / "pid"
    end = time.monotonic() + 120
    while not (path.exists() and path.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    return int(path.read_text())


def is_gone(pid: int) -> bool:
    end = time.monotonic() + 30
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_stages_run_side_by_side_and_after_those_that_they_need(cluster, second_node, folder: Path) -> None:
    last = Stage("last", "write.py {here} {one}/../one", 1.0)
    run = StudyRun(Study((last, stage("one", "two"), stage("two", "one"))), folder / "results", folder)
    done: list[str] = []

    def report(plan: StudyPlan, state: str, _: float) -> None:
        done.extend([plan.stage.name] * (state == "done"))

    history = run.run(run.plan(), report, crew(cluster, folder))
    assert sorted(done[:2]) == ["one", "two"] and done[2:] == ["last"] and len(history.stages) == 3
    assert [plan.action for plan in StudyRun(run.study, run.folder, folder).plan()] == ["skip"] * 3


@pytest.mark.slow
def test_a_lost_machine_ends_its_stage_which_is_continued_elsewhere(
    cluster, second_node, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = StudyRun(BOTH_WAIT, folder / "results", folder)
    lost: list[str] = []

    def report(plan: StudyPlan, state: str, _: float) -> None:
        if not lost and all((run.folder / name / "pid").exists() for name in ("one", "two")):
            pids = {name: pid_in(folder, name) for name in ("one", "two")}
            below = {process.pid for process in processes_on(second_node[0])}
            lost.extend(name for name, pid in pids.items() if pid in below)
            cluster.remove_node(second_node.pop(), allow_graceful=False)
            assert is_gone(pids[lost[0]]), "the stage goes on without its worker"
            (other,) = pids.keys() - set(lost)
            (run.folder / other / "go").touch()

    run.run(run.plan(), report, crew(cluster, folder))
    assert f"the stage {lost[0]} is continued by another" in capsys.readouterr().err
    for name in ("one", "two"):
        began = (run.folder / f"{name}.log").read_text().split()
        assert began[-1] == ("resumed" if name in lost else "begun")
        assert (run.folder / name / "x").exists()


@pytest.mark.slow
def test_an_interrupted_study_ends_its_stages(cluster, second_node, folder: Path) -> None:
    run = StudyRun(BOTH_WAIT, folder / "results", folder)

    def report(plan: StudyPlan, state: str, _: float) -> None:
        if all((run.folder / name / "pid").exists() for name in ("one", "two")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(run.plan(), report, crew(cluster, folder))
    for name in ("one", "two"):
        assert "KeyboardInterrupt" in (run.folder / f"{name}.log").read_text(), "it was not asked to end"
    assert all(is_gone(pid_in(folder, name)) for name in ("one", "two"))
    assert not (run.folder / "one" / "x").exists()


def test_what_cannot_be_is_refused(folder: Path) -> None:
    assert_refuses("--ray-address is there: must be local, auto or HOST:PORT", RayCrew, folder, "there", 2)
    assert_refuses("--stage-cores is 0: must be 1 or more", RayCrew, folder, "local", 0)
    ray.shutdown()
    assert_refuses("no Ray cluster answers at 127.0.0.1:1", RayCrew, folder, "127.0.0.1:1", 2)


@pytest.mark.slow
def test_more_cores_than_there_are_and_results_that_are_not_shared_are_refused(
    cluster, second_node, folder: Path
) -> None:
    message = "--stage-cores is 99: no machine of the Ray cluster has so many"
    assert_refuses(message, RayCrew, folder, cluster.address, 99)
    command = crew(cluster, folder).start(["write.py"], folder / "elsewhere" / "x.log", 0)

    def ended() -> None:
        while command.poll() is None:
            time.sleep(0.1)

    assert_refuses("put --results-dir on a file system that all machines", ended)
