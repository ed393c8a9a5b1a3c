"""Clusters that are there are found again with other seeds and other lives; clusters of nothing are not."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from analysis.cluster_method import ClusterMethod
from analysis.clustering import hdbscan_labels
from analysis.stability import (
    SEEDS,
    SeedsBeside,
    adjusted_rand,
    best_overlap,
    bootstrap_stability,
    overlap,
    seed_stability,
    whole_lives,
)
from tests.planted_lives import make_lives

LENGTHS = [20] * 60


def project(activations: np.ndarray, seed: int) -> np.ndarray:
    """A random plane: what a seed does to clusters shows at once."""
    directions = np.random.default_rng(seed).normal(size=(activations.shape[1], 2))
    return activations @ directions


def fail(activations: np.ndarray, seed: int) -> np.ndarray:
    raise ValueError("cannot embed")


def end(activations: np.ndarray, seed: int) -> np.ndarray:
    """End as a process does that is killed for memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return activations


def lumps(separation: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = separation * np.array([[0, 0, 0], [1, 0, 1], [0, 1, 1]])
    return centres[rng.integers(0, 3, sum(LENGTHS))] + rng.normal(size=(sum(LENGTHS), 3))


METHOD = ClusterMethod(project, functools.partial(hdbscan_labels, min_samples=5), min_cluster_size=50)


def test_lives_are_drawn_whole_and_no_more_records_than_asked_for() -> None:
    lives = make_lives([5, 10, 20, 40], seed=1)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for most, replace in ((40, False), (1_000, True)):
            records = whole_lives(lives, most, rng, replace)
            counts = np.bincount(lives.index[records], minlength=4)
            assert ((counts == 0) | (counts == lives.lengths)).all() and 0 < len(records) <= max(most, 40)
            assert len(np.unique(records)) == len(records)


def test_clusters_that_are_there_are_found_again_in_other_lives() -> None:
    points = lumps(14.0)[:, :2]
    labels = METHOD.cluster(points)
    found = bootstrap_stability(points, labels, make_lives(LENGTHS), METHOD, 0)
    assert labels.max() == 2 and min(found.adjusted_rand) > 0.9 and (found.jaccard > 0.9).all()


def test_clusters_of_nothing_are_not_found_again() -> None:
    points = np.random.default_rng(0).random((1200, 2))
    loose = ClusterMethod(project, functools.partial(hdbscan_labels, min_samples=2), min_cluster_size=15)
    labels = loose.cluster(points)
    found = bootstrap_stability(points, labels, make_lives(LENGTHS), loose, 0)
    assert labels.max() > 2 and np.mean(found.adjusted_rand) < 0.5 and np.nanmean(found.jaccard) < 0.5


def nothing(points: np.ndarray, min_cluster_size: int) -> np.ndarray:
    return np.full(len(points), -1)


def test_finding_nothing_again_and_again_is_not_stable() -> None:
    noise, everything = np.full(9, -1), np.zeros(9, np.int64)
    assert np.isnan(adjusted_rand(noise, noise))
    assert adjusted_rand(noise, everything) == adjusted_rand(everything, noise) == 0
    assert adjusted_rand(everything, everything) == 1
    blind, points = ClusterMethod(project, nothing, 50), lumps(14.0)
    assert seed_stability(points, 1.0, blind, (1, 2, 3)).adjusted_rand == (0, 0, 0)
    found = bootstrap_stability(points[:, :2], np.zeros(len(points), np.int64), make_lives(LENGTHS), blind, 0)
    assert set(found.adjusted_rand) == {0} and found.jaccard.tolist() == [0]


def test_a_sample_looks_for_clusters_of_its_own_scale() -> None:
    asked = []

    def note(points: np.ndarray, min_cluster_size: int) -> np.ndarray:
        asked.append(min_cluster_size)
        return np.zeros(len(points), np.int64)

    for smallest in (200, 15, 4):
        method = ClusterMethod(project, note, smallest)
        for share in (1.0, 0.5, 0.01):
            method.cluster(np.zeros((3, 2)), share)
    assert asked == [200, 100, 15, 15, 15, 15, 4, 4, 4]


def test_seeds_are_tried_in_a_process_of_their_own() -> None:
    with SeedsBeside(lumps(6.0), make_lives(LENGTHS), METHOD, seed=1) as seeds:
        found = seeds.result()
    assert len(found.adjusted_rand) == SEEDS * (SEEDS - 1) // 2 and found.records == sum(LENGTHS)
    assert min(found.adjusted_rand) < 1.0  # planes differ, so what is found in them differs
    with pytest.raises(ValueError, match="cannot embed"):
        broken = ClusterMethod(fail, METHOD.hdbscan, 50)
        with SeedsBeside(lumps(1.0), make_lives(LENGTHS), broken, seed=1) as seeds:
            seeds.result()
    killed = ClusterMethod(end, METHOD.hdbscan, 50)
    with SeedsBeside(lumps(1.0), make_lives(LENGTHS), killed, seed=1) as seeds:
        assert seeds.result().untold == "the process that tried other seeds was killed"


LEAVING_EARLY = """
import sys, time
import numpy as np
from tests.analysis.test_stability import METHOD, LENGTHS, dawdle
from analysis.cluster_method import ClusterMethod
from analysis.stability import SeedsBeside
from tests.planted_lives import make_lives

if __name__ == "__main__":
    slow = ClusterMethod(dawdle, METHOD.hdbscan, 50)
    with SeedsBeside(np.zeros((sum(LENGTHS), 3)), make_lives(LENGTHS), slow, seed=1):
        time.sleep(float(sys.argv[1]))
        sys.exit(2)
"""


def dawdle(activations: np.ndarray, seed: int) -> np.ndarray:
    time.sleep(600)
    return activations


@pytest.mark.parametrize("after_seconds", ["0", "6"])
def test_leaving_early_waits_for_nothing_and_says_nothing(tmp_path: Path, after_seconds: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(LEAVING_EARLY)
    done = subprocess.run(
        [sys.executable, str(script), after_seconds], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_without_a_seed_there_is_nothing_to_try() -> None:
    fixed = ClusterMethod(fail, METHOD.hdbscan, 50, seeded=False)
    with SeedsBeside(lumps(1.0), make_lives(LENGTHS), fixed, seed=1) as seeds:
        assert seeds.result().untold == "no seed plays a part in these clusters"


def test_overlaps_of_clusters() -> None:
    labels, others = np.array([0, 0, 0, 1, 1, -1]), np.array([1, 1, 0, 0, 0, 0])
    np.testing.assert_allclose(overlap(labels, others, 2), [[1 / 6, 2 / 3], [2 / 4, 0]])
    np.testing.assert_allclose(best_overlap(labels, others, 3), [2 / 3, 1 / 2, np.nan])
    np.testing.assert_allclose(best_overlap(labels, np.full(6, -1), 2), [0, 0])
