"""HDBSCAN's tree of clusters, cut at a series of densities: where clusters split and records become noise."""

from dataclasses import dataclass

import numpy as np

from analysis.labels import NOISE

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ClusterTree:
    """Every cluster that exists at some density (1 / distance). C clusters, numbered from the root; B records.

    Attributes:
        parent: the cluster that each one split from, (C,) int64, always a lower number; -1 for the root.
        birth: density above which it is separate from its siblings, (C,); 0 for the root; infinite where HDBSCAN
            splits coinciding records.
        death: density above which it has split or has no records left, (C,); may be infinite.
        size: records at its birth, (C,) int64.
        home: smallest cluster that ever contains each record, (B,) int64.
        leaves: density above which each record is noise, (B,); infinite for coinciding records.
    """

    parent: np.ndarray
    birth: np.ndarray
    death: np.ndarray
    size: np.ndarray
    home: np.ndarray
    leaves: np.ndarray

    def __len__(self) -> int:
        return len(self.parent)

    def gathered(self, values: np.ndarray) -> np.ndarray:
        """Sum values of records over each cluster and all its descendants, (B, ...) to (C, ...) float64."""
        total = np.zeros((len(self), *values.shape[1:]))
        np.add.at(total, self.home, values)
        for cluster in range(len(self) - 1, 0, -1):
            total[self.parent[cluster]] += total[cluster]
        return total

    def standing(self, density: float) -> np.ndarray:
        """Return for each cluster the smallest one, itself or an ancestor, separate at a density, (C,) int64."""
        standing = np.arange(len(self))
        for cluster in range(1, len(self)):
            if self.birth[cluster] >= density:
                standing[cluster] = standing[self.parent[cluster]]
        return standing

    def cut(self, density: float) -> np.ndarray:
        """Return each record's cluster at a density, (B,) int64; `NOISE` for records that have left theirs.

        These are the clusters of DBSCAN* at distance 1 / density (Campello, Moulavi and Sander 2013), without those
        below the minimum cluster size.
        """
        return np.where(self.leaves >= density, self.standing(density)[self.home], NOISE)

    @property
    def persistence(self) -> np.ndarray:
        """HDBSCAN's stability: density from birth to leaving, summed over records, (C,); infinite densities are capped.

        Campello, Moulavi and Sander 2013, equation 3.
        """
        densities = np.concatenate([self.birth, self.leaves])
        most = densities[np.isfinite(densities)].max()
        birth, leaves = np.minimum(self.birth, most), np.minimum(self.leaves, most)
        children = np.arange(1, len(self))
        stability = np.bincount(self.home, leaves - birth[self.home], len(self))
        split = birth[children] - birth[self.parent[children]]
        np.add.at(stability, self.parent[children], self.size[children] * split)
        return stability

    def densities(self, most: int) -> np.ndarray:
        """Choose densities to cut at, ascending: just above each split, and where shares of the records have left.

        Splits take precedence; if there are too many, they are subsampled evenly. Cuts lie between the densities at
        which the tree changes, so rounding has no effect. Returns 1 to `most` densities, at least 2 asked for, at the
        first of which everything is in the root.
        """
        events = np.unique(np.concatenate([self.birth[1:], self.leaves]))
        events = events[np.isfinite(events)]
        if len(events) == 0:
            return np.ones(1)
        # Equal distances may differ by rounding: the largest represents all of them.
        events = events[np.append(np.diff(events) > _ROUNDING * events[:-1], True)]
        splits = np.searchsorted(events, np.unique(self.birth[1:][np.isfinite(self.birth[1:])]))
        kept = splits[np.unique(np.linspace(0, len(splits) - 1, min(len(splits), most // 2)).astype(int))]
        finite = np.sort(self.leaves[np.isfinite(self.leaves)])
        shares = finite[np.linspace(0, len(finite) - 1, most - len(kept)).astype(int)] if len(finite) else finite
        chosen = np.union1d(kept, np.searchsorted(events, shares))
        after = np.minimum(chosen + 1, len(events) - 1)
        beyond = np.sqrt(events[chosen] * events[after])
        return np.unique(np.concatenate([[events[0] / 2], beyond[after > chosen]]))[:most]


def cluster_tree(condensed: np.ndarray) -> ClusterTree:
    """Read HDBSCAN's condensed tree, in the form of `analysis.clusters.clustering.Clustering.tree`."""
    count = int(condensed["parent"].min())
    is_cluster = condensed["child"] >= count
    records = condensed[~is_cluster]
    clusters = np.sort(condensed[is_cluster], order="child")
    number = len(clusters) + 1
    parent = np.concatenate([[-1], clusters["parent"] - count]).astype(np.int64)
    if not ((clusters["child"] - count == np.arange(1, number)).all() and (parent[1:] < np.arange(1, number)).all()):
        raise ValueError("the condensed tree does not number its clusters from the root")
    death = np.zeros(number)
    np.maximum.at(death, condensed["parent"] - count, condensed["lambda_val"])
    home, leaves = np.empty(count, np.int64), np.empty(count)
    home[records["child"]] = records["parent"] - count
    leaves[records["child"]] = records["lambda_val"]
    birth = np.concatenate([[0.0], clusters["lambda_val"]])
    size = np.concatenate([[count], clusters["child_size"]]).astype(np.int64)
    return ClusterTree(parent, birth, death, size, home, leaves)
