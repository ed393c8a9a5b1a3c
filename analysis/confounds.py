"""Does a cluster mark a behaviour, or only a time of the game, a place on the map, a single life or a single agent?"""

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from activation_store.schema import TILE_COLUMNS, TILES_IN_VIEW, Records
from analysis.lives import Lives

LOW = 0.5
"""Evenness below this is flagged."""

CONFOUNDS = ("tick", "row", "column", "life", "agent")
QUANTILES = 20


@dataclass(frozen=True)
class Evenness:
    """How evenly clusters spread over times, rows and columns of the map, lives and agents, (clusters,) each.

    1 is as evenly as records drawn at random from the dump, 0 is all in one place, NaN where the dump has one place
    only and nothing can be told.
    """

    tick: np.ndarray
    row: np.ndarray
    column: np.ndarray
    life: np.ndarray
    agent: np.ndarray


def entropy(counts: np.ndarray) -> float:
    """Return the Shannon entropy of a histogram, in nats (Shannon 1948, theorem 2)."""
    return float(stats.entropy(counts))


def expected_entropy(counts: np.ndarray, size: int) -> float:
    """Return the mean entropy, in nats, of the histograms of `size` records drawn from a histogram of all records.

    Exact, without replacement: a bin's count is hypergeometric, and the entropy is a sum over bins.

    Args:
        counts: the histogram of all records, (bins,).
        size: from 1 to the sum of `counts`.
    """
    bin_size, bins = np.unique(counts, return_counts=True)
    most = np.minimum(bin_size, size)
    # Every possible count of every bin size, side by side: never more entries than there are records.
    which = np.repeat(np.arange(len(bin_size)), most)
    drawn = np.arange(1, len(which) + 1) - (np.cumsum(most) - most)[which]
    total, inside = counts.sum(), bin_size[which]
    ways = _log_choose(inside, drawn) + _log_choose(total - inside, size - drawn)
    chances = np.exp(ways - _log_choose(total, np.array(size)))
    share = drawn / size
    return float(-np.sum(bins[which] * chances * share * np.log(share)))


def _log_choose(among: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the logarithm of the binomial coefficient; minus infinity where more are chosen than there are.

    The hypergeometric distribution of scipy is exact to more digits than are needed here, and 100 times slower.
    """
    return special.gammaln(among + 1) - special.gammaln(chosen + 1) - special.gammaln(among - chosen + 1)


def evenness(member: np.ndarray, category: np.ndarray) -> float:
    """Return a cluster's entropy over categories as a share of what as many random records would have, 0 to 1.

    The reference is what is possible for this dump and this cluster's size, not the categories that the cluster
    happens to occupy: a cluster in 2 of 20 equal bins scores ln 2 / ln 20, about 0.23.

    Args:
        member: which records belong to the cluster, (B,) bool, at least one.
        category: (B,) int64 from 0.

    Returns:
        NaN if the dump has one category only, or the cluster one record only.
    """
    whole = np.bincount(category)
    possible = expected_entropy(whole, int(member.sum()))
    if np.count_nonzero(whole) < 2 or member.sum() < 2:
        return float("nan")
    return min(1.0, entropy(np.bincount(category[member])) / possible)


def quantile_bins(values: np.ndarray, bins: int = QUANTILES) -> np.ndarray:
    """Sort records into `bins` quantiles of the whole dump's values, (B,) int64; equal values share a bin."""
    edges = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return np.searchsorted(edges, values, side="left")


def confound_evenness(records: Records, lives: Lives, labels: np.ndarray) -> Evenness:
    """Measure every cluster's evenness over quantiles of the tick and of the map position, lives and agent ids."""
    own_tile = records.tile[:, TILES_IN_VIEW // 2]  # the agent stands in the middle of its view
    categories = {
        "tick": quantile_bins(records.tick),
        "row": quantile_bins(own_tile[:, TILE_COLUMNS.index("row")]),
        "column": quantile_bins(own_tile[:, TILE_COLUMNS.index("col")]),
        "life": lives.index,
        "agent": np.unique(records.agent_id, return_inverse=True)[1],
    }
    clusters = range(labels.max() + 1)
    return Evenness(
        **{
            name: np.array([evenness(labels == cluster, category) for cluster in clusters], np.float64)
            for name, category in categories.items()
        }
    )
