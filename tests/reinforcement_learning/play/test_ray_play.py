"""Episodes played on a Ray cluster give the same results as in one process, even if a machine is lost meanwhile."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from activation_store.reader import read_metadata
from common.user_error import UserError
from reinforcement_learning.play import evaluation, extraction, parallel_play
from reinforcement_learning.play.contest import Contest, Group, PlayedAgain, groups
from reinforcement_learning.play.extraction import RecordingPlan, extract
from reinforcement_learning.play.parallel_play import play_groups, processes_of
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.workers import Workers
from tests.command import assert_refused, assert_refuses, run_here, run_well
from tests.tiny_policies import tiny_contest, world_options

ray = pytest.importorskip("ray")
from tests.local_cluster import ONE_CORE, Cluster, head_node, processes_on  # noqa: E402

PLAN = RecordingPlan(16, None, seed=4, layers=("action_decoder", "lstm_cell"), fields=("Market",), format="parquet")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head node with one core."""
    yield from head_node()


class SecondNode:
    """A second node with one core, killed while it plays."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.node = cluster.add_node(**ONE_CORE)
        self.again: list[Group] = []

    def play_groups(self, *arguments) -> Iterator[tuple[Group, object]]:
        """Do what `play_groups` does; at the first result during which the node plays, kill it."""
        for group, output in play_groups(*arguments):
            if self.node is not None and self._plays():
                self.kill()
            if isinstance(output, PlayedAgain):
                self.again.append(group)
            yield group, output

    def _plays(self) -> bool:
        return any(
            re.search(r"_Worker\.(play|more)", " ".join(process.cmdline())) for process in processes_on(self.node)
        )

    def kill(self) -> None:
        if self.node is not None:
            self.cluster.remove_node(self.node, allow_graceful=False)
            self.node = None


@pytest.fixture
def second_node(cluster: Cluster) -> Iterator[SecondNode]:
    node = SecondNode(cluster)
    yield node
    node.kill()
    ray.shutdown()


def on_ray(cluster: Cluster, processes: int = 0) -> Workers:
    return Workers(processes, ray_address=cluster.address)


@pytest.fixture
def contest(small_world, task, maps) -> Contest:
    return tiny_contest(small_world, task, maps, hidden_size=32)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--vectorization", "ray", "--ray-address", "127.0.0.1:1"), ("no Ray cluster answers at 127.0.0.1:1",)),
        (("--vectorization", "ray", "--ray-address", "there"), ("--ray-address is there", "local, auto or HOST:PORT")),
        (("--ray-address", "auto"), ("add --vectorization ray",)),
        (("--vectorization", "ray", "--device", "cuda"), ("plays on CPUs",)),
    ],
)
def test_where_no_cluster_is_nothing_is_made(three_policies: Path, tmp_path: Path, options, parts) -> None:
    ray.shutdown()  # a process that has a cluster already never asks the one at the address
    policies = shutil.copytree(three_policies, tmp_path / "policies")
    before = sorted(tmp_path.rglob("*"))
    assert_refused(run_here("evaluate.py", policies, "pvp", *options, "--env.maps-dir", tmp_path / "maps"), *parts)
    folders = ("--policies-dir", policies, "--maps-dir", tmp_path / "maps", "-o", tmp_path / "dumps")
    assert_refused(run_here("extract_activations.py", "pve", "-p", "kit", *folders, *options), *parts)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_dump_is_the_same_although_a_machine_was_lost(
    cluster, second_node, contest, tmp_path: Path, monkeypatch, capsys
) -> None:
    extract(contest, PLAN, [tmp_path / "one process"], Workers(1), lambda *_: None)
    monkeypatch.setattr(extraction, "play_groups", second_node.play_groups)
    extract(contest, PLAN, [tmp_path / "on ray"], on_ray(cluster), lambda *_: None)
    assert len(second_node.again) == 1
    assert "are played again by another worker" in capsys.readouterr().err
    once, again = (read_metadata(tmp_path / name) for name in ("one process", "on ray"))
    assert len(once.files) == 16 and once.files == again.files and once.episodes == again.episodes


@pytest.mark.slow
def test_an_evaluation_is_the_same_although_a_machine_was_lost(
    cluster, second_node, three_policies: Path, small_world, tmp_path: Path, monkeypatch
) -> None:
    here, there = (shutil.copytree(three_policies, tmp_path / name) for name in ("here", "there"))
    options = ("pve", "-p", "kit", "-n", 18, *world_options(small_world))
    run_well("evaluate.py", here, *options, "--num-envs", 1)
    monkeypatch.setattr(evaluation, "play_groups", second_node.play_groups)
    played = run_well(
        "evaluate.py", there, *options, "--vectorization", "ray", "--ray-address", cluster.address, "--num-envs", 8
    )
    assert len(second_node.again) == 1 and "are played again by another worker" in played.stderr
    assert (there / "eval_pve_1.json").read_bytes() == (here / "eval_pve_1.json").read_bytes()


def where_the_maps_are(pool: PolicyPool, group: Group) -> Iterator[str]:
    pool.play(group.seed, group.numbers)
    yield pool.shared[0].world.game.config.PATH_MAPS


@pytest.mark.slow
def test_workers_get_the_maps_from_here_and_remove_them(cluster, contest) -> None:
    ((_, folder),) = play_groups(contest, groups(1, 4), where_the_maps_are, on_ray(cluster))
    assert isinstance(folder, str) and Path(folder) != contest.maps.resolve() and not Path(folder).exists()


def refuse(pool: PolicyPool, group: Group) -> Iterator[str]:
    yield "something"
    raise UserError("the job's own words")


def die(pool: PolicyPool, group: Group) -> Iterator[str]:
    yield "something"
    os._exit(1)


@pytest.mark.slow
@pytest.mark.parametrize(("job", "words"), [(refuse, "the job's own words"), (die, "ended .*2 times in a row")])
def test_what_goes_wrong_in_every_worker_is_one_line(cluster, contest, job, words: str, monkeypatch) -> None:
    monkeypatch.setattr(parallel_play, "_MOST_LOSSES", 1)  # each worker takes half a minute to start
    assert_refuses(words, list, play_groups(contest, groups(1, 4), job, on_ray(cluster)))


@pytest.mark.slow
def test_more_workers_than_cores_are_refused(cluster) -> None:
    """A node that was just lost may still count."""
    assert_refuses(r"too few cores \(\d\) for 9 worker processes", processes_of, on_ray(cluster, 9))
