"""Would another seed, or other lives, have given the same clusters?"""

import signal
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from typing import Self

import numpy as np

from analysis.cluster_method import ClusterMethod
from analysis.lives import Lives
from user_error import UserError

SEEDS = 3
SEED_RECORDS = 5_000
BOOTSTRAPS = 10
BOOTSTRAP_RECORDS = 5_000


@dataclass(frozen=True)
class SeedStability:
    """Adjusted Rand indices of every two of several seeds, on a sample of so many records; or why there are none."""

    adjusted_rand: tuple[float, ...]
    records: int
    untold: str = ""


@dataclass(frozen=True)
class BootstrapStability:
    """Agreement of the run's clusters with those of lives drawn anew.

    Attributes:
        adjusted_rand: one for each draw.
        jaccard: of each of K clusters, the mean over the draws of the overlap with the most similar new cluster, (K,).
    """

    adjusted_rand: tuple[float, ...]
    jaccard: np.ndarray


def whole_lives(lives: Lives, most_records: int, rng: np.random.Generator, replace: bool = False) -> np.ndarray:
    """Draw whole lives in random order until no further one fits, and return their records, each once, (n,) sorted.

    Args:
        replace: draw as many lives as there are, with replacement; a life drawn twice counts once.
    """
    drawn = rng.integers(len(lives), size=len(lives)) if replace else rng.permutation(len(lives))
    _, first = np.unique(drawn, return_index=True)
    distinct = drawn[np.sort(first)]
    fits = np.cumsum(lives.lengths[distinct]) <= most_records
    fits[0] = True
    return np.flatnonzero(np.isin(lives.index, distinct[fits]))


def seed_stability(activations: np.ndarray, share: float, method: ClusterMethod, seeds: Sequence[int]) -> SeedStability:
    """Embed and cluster the same records with each seed, and compare every two of the clusterings.

    The adjusted Rand index (Hubert and Arabie 1985) takes noise as one group. Fewer records than the run has make
    sparser clusters: this tells how far the method repeats itself, not how far this one picture does.

    Args:
        activations: of a sample of whole lives, (n, units).
        share: of the run's records that they are.
    """
    labels = [method.cluster(method.embed(activations, seed=seed), share) for seed in seeds]
    pairs = tuple(_agreement(one, other) for one, other in combinations(labels, 2))
    return SeedStability(pairs, len(activations))


class SeedsBeside:
    """Tries other seeds in a process of its own, beside the main work; a context manager.

    A second core does it in the time that the main work takes anyway. Leaving the context stops the process.
    """

    def __init__(self, activations: np.ndarray, lives: Lives, method: ClusterMethod, seed: int) -> None:
        """Draw whole lives of at most `SEED_RECORDS` records, and prepare to cluster them with seeds after `seed`."""
        records = whole_lives(lives, SEED_RECORDS, np.random.default_rng([seed, 7]))
        share = len(records) / len(activations)
        self._work = activations[records], share, method, [(seed + i) % 2**32 for i in range(1, SEEDS + 1)]
        self._method = method
        self._stop = ExitStack()

    def __enter__(self) -> Self:
        if self._method.seeded:
            others = set(active_children())
            # Ctrl-C reaches both processes: the main one ends the other.
            ignore = signal.signal, (signal.SIGINT, signal.SIG_IGN)
            pool = ProcessPoolExecutor(1, get_context("spawn"), *ignore)
            self._stop.callback(pool.shutdown, wait=True, cancel_futures=True)
            self._pending = pool.submit(seed_stability, *self._work)
            self._stop.callback(self._end, set(active_children()) - others)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()

    def _end(self, workers: set[BaseProcess]) -> None:
        """Stop work that nobody waits for any more, so that the shutdown after it need not wait either."""
        if not self._pending.done():
            for worker in workers:
                worker.terminate()

    def result(self) -> SeedStability:
        """Wait for the seeds; say why there are none where a sample cannot be clustered, or the process was killed."""
        if not self._method.seeded:
            return SeedStability((), 0, "no seed plays a part in these clusters")
        try:
            return self._pending.result()
        except UserError as error:
            return SeedStability((), len(self._work[0]), str(error))
        except BrokenProcessPool:
            return SeedStability((), len(self._work[0]), "the process that tried other seeds was killed")


def bootstrap_stability(
    points: np.ndarray, labels: np.ndarray, lives: Lives, method: ClusterMethod, seed: int, draws: int = BOOTSTRAPS
) -> BootstrapStability:
    """Draw lives with replacement, cluster their points of the run's own embedding anew, and compare the labels.

    A life drawn twice counts once: copies of a point would look dense. Of large dumps a draw takes at most
    `BOOTSTRAP_RECORDS` records. The overlap is the Jaccard index (Hennig 2007, "Cluster-wise assessment of cluster
    stability"): below 0.5 a cluster dissolves, above 0.75 it is there again.

    Args:
        points: (B, dimensions).
        labels: the run's own, (B,); negative for noise.
    """
    rng = np.random.default_rng([seed, 4])
    agreement, overlaps = [], []
    for _ in range(draws):
        records = whole_lives(lives, BOOTSTRAP_RECORDS, rng, replace=True)
        again = method.cluster(points[records], len(records) / len(points))
        agreement.append(_agreement(labels[records], again))
        overlaps.append(best_overlap(labels[records], again, labels.max() + 1))
    return BootstrapStability(tuple(agreement), _mean_of_known(np.array(overlaps)))


def adjusted_rand(labels: np.ndarray, others: np.ndarray) -> float:
    """Return the adjusted Rand index of two clusterings (Hubert and Arabie 1985); noise counts as one group.

    The index is not defined where each is of one group only: it is 1 here for a cluster of everything found twice, 0
    where that is all noise the other time, and NaN where neither has a cluster.
    """
    from sklearn.metrics import adjusted_rand_score

    if np.ptp(labels) == np.ptp(others) == 0:
        found = int(labels[0] >= 0) + int(others[0] >= 0)
        return (float("nan"), 0.0, 1.0)[found]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes", category=UserWarning)
        return float(adjusted_rand_score(labels, others))


def _agreement(labels: np.ndarray, others: np.ndarray) -> float:
    """Return the adjusted Rand index; 0 where neither finds a cluster, since nothing of the run's is found again."""
    return float(np.nan_to_num(adjusted_rand(labels, others)))


def overlap(labels: np.ndarray, others: np.ndarray, clusters: int) -> np.ndarray:
    """Return the Jaccard index of every cluster with every other one, (clusters, others); NaN where both are empty."""
    other_clusters = max(int(others.max()) + 1, 0)
    both = np.zeros((clusters + 1, other_clusters + 1))
    np.add.at(both, (labels, others), 1)  # noise, -1, is the last row and column
    either = both.sum(axis=1, keepdims=True) + both.sum(axis=0, keepdims=True) - both
    with np.errstate(invalid="ignore"):
        return (both / either)[:clusters, :other_clusters]


def best_overlap(labels: np.ndarray, others: np.ndarray, clusters: int) -> np.ndarray:
    """Return each cluster's largest Jaccard index with another clustering, (clusters,); NaN where it has no record."""
    found = overlap(labels, others, clusters)
    best = found.max(axis=1) if found.shape[1] else np.zeros(clusters)
    return np.where(np.isin(np.arange(clusters), labels), best, np.nan)


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    """Return the mean over rows of what is not NaN, (rows, K) to (K,)."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.where(known, values, 0).sum(axis=0) / known.sum(axis=0)
