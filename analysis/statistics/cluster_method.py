"""How clusters are found, as something that can be done again: with another seed, other lives or other activations."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

_SMALLEST = 15


@dataclass(frozen=True)
class ClusterMethod:
    """How activations become clusters.

    Attributes:
        embed: from activations (B, units) and the keywords `seed`, and `run_records` where they are a sample of a run's
            records, to the points that are clustered, (B, dimensions).
        hdbscan: from points and a keyword `min_cluster_size` to labels, (B,): clusters from 0, largest first, negative
            for noise.
        seeded: whether the seed makes any difference to `embed`.
    """

    embed: Callable[..., np.ndarray]
    hdbscan: Callable[..., np.ndarray]
    min_cluster_size: int
    seeded: bool = True

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
