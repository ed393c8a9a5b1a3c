"""Would another embedding, with another seed or of other lives, or other lives alone, have given the same clusters?

A stability must exceed what Gaussians of the same covariance and autocorrelation as the recorded states reach.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations

import numpy as np

from analysis.lives import Lives
from analysis.statistics.inference import false_discovery
from common.user_error import UserError

_SMALLEST = 15
SEEDS = 3
EMBEDDED_ANEW = 3
"""Draws of lives that are embedded anew; an embedding takes far longer than a clustering."""
SEED_RECORDS = 5_000
FLOOR_SEEDS = 3
"""Embeddings of a Gaussian with different seeds. Their three pairs and the three of a run make a test at 5%: the chance
that all of three numbers exceed all of three others of the same kind is 1 in 20."""
BOOTSTRAPS = 10
BOOTSTRAP_RECORDS = 5_000
_COLUMNS = 16
"""Columns that are transformed at a time, so that their spectra take little memory."""


@dataclass(frozen=True)
class ClusterMethod:
    """How activations become clusters."""

    embed: Callable[..., np.ndarray]
    """From activations (B, units) and the keywords `seed`, and `run_records` where they are a sample of a run's
    records, to the points that are clustered, (B, dimensions)."""
    hdbscan: Callable[..., np.ndarray]
    """From points and a keyword `min_cluster_size` to labels, (B,): clusters from 0, largest first, negative for
    noise."""
    min_cluster_size: int
    seeded: bool = True  # whether the seed makes any difference to `embed`

    def cluster(self, points: np.ndarray, share: float = 1.0) -> np.ndarray:
        """Return labels of points that are a share, 0 to 1, of all the run's.

        The smallest cluster shrinks with the share, but not below 15 records or the run's own smallest: the same
        group has fewer records in a sample.
        """
        return self.hdbscan(points, min_cluster_size=self.of_sample(share).min_cluster_size)

    def of_sample(self, share: float) -> "ClusterMethod":
        """Return the method for a share of the run's records, as if these were all."""
        smallest = max(min(self.min_cluster_size, _SMALLEST), round(self.min_cluster_size * share))
        return replace(self, min_cluster_size=smallest)


@dataclass(frozen=True)
class StabilityFloor:
    """What a Gaussian of the same covariance and autocorrelation reaches, embedded and clustered in the same way."""

    over_seeds: tuple[float, ...] = ()
    """Adjusted Rand index of each two of `FLOOR_SEEDS` embeddings; empty where there is no seed."""
    over_lives: tuple[float, ...] = ()  # of the first of them with lives drawn with replacement, embedded anew
    over_bootstraps: tuple[float, ...] = ()  # of each with lives drawn with replacement in the same embedding


@dataclass(frozen=True)
class Stability:
    """Agreement with the run's labels as adjusted Rand indices: 1 is identical, 0 is chance; noise is one group."""

    over_seeds: tuple[float, ...]  # a sample of whole lives embedded and clustered with other seeds, one entry per seed
    seed_records: int  # records of that sample
    over_embeddings: tuple[float, ...]  # lives drawn with replacement, embedded and clustered again, one entry per draw
    over_bootstraps: tuple[float, ...] = ()
    """The run's embedding clustered again on lives drawn with replacement, one entry per draw."""
    reason: str = ""  # why there are none, else ""
    gaussian: StabilityFloor = field(default_factory=StabilityFloor)
    """The same of a Gaussian of the same covariance and autocorrelation; empty if it was not measured."""


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


def projection_stability(
    activations: np.ndarray, labels: np.ndarray, lives: Lives, method: ClusterMethod, seed: int
) -> Stability:
    """Embed and cluster lives anew, with other seeds and drawn with replacement, and compare with the run's labels.

    The run's own embedding is left to `bootstrap_stability`, and the Gaussian to `stability_floor`.
    A sample is of whole lives, `SEED_RECORDS` records at most; in a draw, a life drawn twice counts once. Fewer records
    than the run has make sparser clusters, which costs agreement as well. The adjusted Rand index (Hubert and Arabie
    1985) takes noise as one group. Activations, (B, units), and labels, (B,), are of all records of the run; the seeds
    tried come after the run's.
    """

    def agreement(records: np.ndarray, seed: int) -> float:
        points = method.embed(activations[records], seed=seed, run_records=len(activations))
        return _agreement(labels[records], method.cluster(points, len(records) / len(activations)))

    sample = whole_lives(lives, SEED_RECORDS, np.random.default_rng([seed, 7]))
    rng = np.random.default_rng([seed, 9])
    draws = [whole_lives(lives, SEED_RECORDS, rng, replace=True) for _ in range(EMBEDDED_ANEW)]
    seeds = [(seed + i) % 2**32 for i in range(1, SEEDS + 1)] if method.seeded else []
    reason = "" if method.seeded else "these clusters do not depend on a seed"
    try:
        over_seeds = tuple(agreement(sample, other_seed) for other_seed in seeds)
        over_lives = tuple(agreement(draw, seed) for draw in draws)
        return Stability(over_seeds, len(sample), over_lives, reason=reason)
    except UserError as error:
        return Stability((), len(sample), (), reason=str(error))


def exceeds(values: Sequence[float], floor: Sequence[float]) -> bool:
    """Tell whether all agreements are above all of those of a Gaussian; false where these were not measured.

    Of three seeds against three that is a test at 5%. Resamples of one clustering against those of one Gaussian are a
    comparison only: how much Gaussians differ among each other is not known.
    """
    return bool(floor) and min(values) > max(floor)


def stability_floor(activations: np.ndarray, lives: Lives, method: ClusterMethod, seed: int) -> StabilityFloor:
    """Measure how stable the clusters of states without structure are, on a Gaussian surrogate of a run's records.

    The surrogate's own clusters are those of whole lives, `SEED_RECORDS` records at most, so in larger runs less
    differs between its embeddings than between those of the run, and the floor is rather too high. Activations, (B,
    units), are of all records of the run.
    """
    rng = np.random.default_rng([seed, 11])
    sample = whole_lives(lives, SEED_RECORDS, rng)
    drawn = gaussian_surrogate(activations, lives, rng)[sample]
    own = lives.of_records(np.isin(np.arange(len(activations)), sample))
    method = method.of_sample(len(sample) / len(activations))
    embed = partial(method.embed, run_records=len(activations))
    try:
        planes = [embed(drawn, seed=(seed + i) % 2**32) for i in range(FLOOR_SEEDS if method.seeded else 1)]
        labels = [method.cluster(plane) for plane in planes]
        over_lives = []
        for _ in range(EMBEDDED_ANEW - method.seeded):  # the pairs of seeds make the test where there are any
            records = whole_lives(own, SEED_RECORDS, rng, replace=True)
            again = method.cluster(embed(drawn[records], seed=seed), len(records) / len(drawn))
            over_lives.append(_agreement(labels[0][records], again))
    except UserError:
        return StabilityFloor()
    bootstraps = [
        bootstrap_stability(plane, label, own, method, seed, BOOTSTRAPS // FLOOR_SEEDS + 1)[0]
        for plane, label in zip(planes, labels, strict=True)
    ]
    return StabilityFloor(
        tuple(_agreement(*pair) for pair in combinations(labels, 2)), tuple(over_lives), tuple(chain(*bootstraps))
    )


def bootstrap_stability(
    points: np.ndarray, labels: np.ndarray, lives: Lives, method: ClusterMethod, seed: int, draws: int = BOOTSTRAPS
) -> tuple[tuple[float, ...], np.ndarray]:
    """Draw lives with replacement, cluster their points of the run's own embedding anew, and compare the labels.

    A life drawn twice counts once: copies of a point would look dense. Of large dumps a draw takes at most
    `BOOTSTRAP_RECORDS` records. The overlap is the Jaccard index (Hennig 2007, "Cluster-wise assessment of cluster
    stability"): below 0.5 a cluster dissolves, above 0.75 it is there again.

    Returns:
        The adjusted Rand index of each draw; and of each of K clusters, the mean over the draws of the overlap with the
        most similar new cluster, (K,).
    """
    rng = np.random.default_rng([seed, 4])
    agreement, overlaps = [], []
    for _ in range(draws):
        records = whole_lives(lives, BOOTSTRAP_RECORDS, rng, replace=True)
        again = method.cluster(points[records], len(records) / len(points))
        agreement.append(_agreement(labels[records], again))
        overlaps.append(best_overlap(labels[records], again, labels.max() + 1))
    known = np.isfinite(overlaps)
    with np.errstate(invalid="ignore"):
        return tuple(agreement), np.where(known, overlaps, 0).sum(axis=0) / known.sum(axis=0)


def adjusted_rand(labels: np.ndarray, others: np.ndarray) -> float:
    """Return the adjusted Rand index of two clusterings (Hubert and Arabie 1985); noise counts as one group.

    The index is not defined where each is of one group only: it is 1 here for a cluster of everything found twice, 0
    where that is all noise the other time, and NaN where neither has a cluster.
    """
    from sklearn.metrics import adjusted_rand_score

    if np.ptp(labels) == np.ptp(others) == 0:
        clustered = int(labels[0] >= 0) + int(others[0] >= 0)
        return (float("nan"), 0.0, 1.0)[clustered]
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
    shares = overlap(labels, others, clusters)
    best = shares.max(axis=1) if shares.shape[1] else np.zeros(clusters)
    return np.where(np.isin(np.arange(clusters), labels), best, np.nan)


def gaussian_surrogate(values: np.ndarray, lives: Lives, rng: np.random.Generator) -> np.ndarray:
    """Draw states that have the covariance and the autocorrelation of recorded ones, and nothing else of them.

    The lives are laid end to end in random order, the Fourier phases of this series are replaced by random ones, the
    same for all units, and it is cut into lives again (Prichard and Theiler 1994, "Generating surrogate data for time
    series with several simultaneously measured variables"). Each state then is a sum over all recorded ones, so it is
    close to Gaussian. Means and covariances are kept exactly, and so are the auto- and cross-correlations of the series
    end to end. Those within lives fall short by the share of neighbours that belong to two lives: at a lag of h records
    about h in the mean length of a life. Values are (B, U) of any real type; drawn are (B, U) float32 if they are, else
    float64, in the same order.
    """
    place = np.empty(len(lives), np.int64)
    place[rng.permutation(len(lives))] = np.arange(len(lives))
    laid = lives.order[np.argsort(place[lives.index_in_order], kind="stable")]
    count = len(laid)
    angles = rng.uniform(0, 2 * np.pi, count // 2 + 1)
    angles[0] = 0.0  # the mean
    if count % 2 == 0:
        angles[-1] = 0.0  # the highest frequency of an even number of records has no phase
    turned = np.exp(1j * angles)
    drawn = np.empty(values.shape, np.float32 if values.dtype == np.float32 else np.float64)
    for start in range(0, values.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        series = np.ascontiguousarray(values[laid, columns].T, np.float64)  # (columns, B)
        drawn[laid, columns] = np.fft.irfft(np.fft.rfft(series) * turned, count).T
    return drawn


def above_floor(values: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Return q of each value against those of surrogates: how often nothing would have come out as high.

    p is the rank of a value among those of all surrogates (Bates et al. 2023, "Testing for outliers with conformal
    p-values"); q corrects for all values (Benjamini and Hochberg 1995). With K values and S surrogates of K each, a
    single value can have q <= 0.05 only if S is at least 20. Values are (K,), NaN for one that is unknown; the floor
    has the same numbers of surrogates, in any shape. q is (K,) in (0, 1]; NaN where the value is, or where there is no
    surrogate.
    """
    known = np.sort(floor[np.isfinite(floor)])
    if not len(known):
        return np.full(len(values), np.nan)
    as_high = len(known) - np.searchsorted(known, values, side="left")
    return false_discovery(np.where(np.isfinite(values), (1 + as_high) / (1 + len(known)), np.nan))
