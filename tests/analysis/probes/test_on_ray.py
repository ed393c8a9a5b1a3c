"""Probes that are fitted on a Ray cluster are those of one process, also if a machine is lost."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from analysis.probes.dataset import ProbeData
from analysis.probes.probing import Probed, Task
from analysis.statistics.resampling import folds_of
from common.user_error import UserError
from tests.command import assert_refused, assert_refuses, python, run_here, start
from tests.planted_probes import planted_lives
from tests.recorded_probes import shared_probe_dump

ray = pytest.importorskip("ray")
from analysis.probes.probing import do_on_ray  # noqa: E402
from tests.local_cluster import ONE_CORE, Cluster, head_node, processes_on  # noqa: E402

ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # as a job on Ray has; sums of more threads have other last bits
OPTIONS = ("--targets", "self_food,is_moving", "--given", "tick", "--inputs", "lstm_hidden,encoder_output,observation")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head node with one core."""
    yield from head_node()


@pytest.fixture(scope="module")
def dump(small_world, task, maps, tmp_path_factory) -> Path:
    return shared_probe_dump(tmp_path_factory, small_world, task, maps)


@pytest.mark.slow
def test_results_are_the_same_although_a_machine_was_lost(cluster: Cluster, dump: Path, tmp_path: Path) -> None:
    command = ("train_probes.py", dump, *OPTIONS, "--output-dir", tmp_path)
    python(*command, "--name", "here", **ONE_THREAD)
    node = cluster.add_node(**ONE_CORE)
    end = time.monotonic() + 120
    with start(*command, "--name", "there", "--ray-address", cluster.address) as on_ray:
        while not any("_do" in " ".join(process.cmdline()) for process in processes_on(node)):
            assert on_ray.poll() is None and time.monotonic() < end, "the machine fits no probes"
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)
        output, _ = on_ray.communicate(timeout=300)
    assert on_ray.returncode == 0, output
    assert "another one fits its probes" in output
    for name in ("probes.json", "probe_scores.tsv", "probe_increments_given.tsv"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes(), name


def test_what_a_job_refuses_is_passed_on(cluster: Cluster) -> None:
    lives, world = planted_lives(4)
    nothing, some = np.zeros((len(world), 0)), np.random.default_rng(0).random((len(world), 1))
    inputs = {"observation": some.astype(np.float32)}
    data = ProbeData(inputs, {}, {}, some, nothing, world, world, lives, by_map=True, networks={})
    task = Task(data, folds_of(world), np.array([False]), np.array([True]), seed=0)

    def refuse(given: Task) -> Probed:
        raise UserError(f"inputs {', '.join(given.data.inputs)} cannot be fitted")

    ray.init(cluster.address, log_to_driver=False, ignore_reinit_error=True)
    try:
        assert_refuses("inputs observation cannot be fitted", do_on_ray, task, [refuse], lambda share: None)
    finally:
        ray.shutdown()


@pytest.mark.parametrize(
    ("address", "part"), [("there", "--ray-address is there"), ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1")]
)
def test_where_no_cluster_is_nothing_is_made(dump: Path, tmp_path: Path, address: str, part: str) -> None:
    ray.shutdown()  # a process that has a cluster already never asks the one at the address
    assert_refused(run_here("train_probes.py", dump, "--ray-address", address, "--output-dir", tmp_path), part)
    assert not list(tmp_path.iterdir())
