"""One self-contained offline page for exploring a clustering by density.

HDBSCAN's tree of clusters is cut at a series of densities: where clusters split and records become noise.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.clusters.dataset import Dataset
from analysis.clusters.projection import Clustering, Projection
from analysis.figures.style import NOISE_COLOUR, cluster_colour
from analysis.labels import NOISE
from analysis.pages.pages import BASE, embedded, environment, pack, scripts_of, style_of
from analysis.runs.run_folder import plain
from analysis.statistics.effect_intervals import Moments, cohens_d

_ROUNDING = 1e-9
LEVELS = 60
POINTS_AT_MOST = 20_000
COLOURS = 8
_STRONGEST = 5
_NO_CLUSTER = 65_535


@dataclass(frozen=True, eq=False)
class ClusterTree:
    """Every cluster that exists at some density (1 / distance). C clusters, numbered from the root; B records."""

    parent: np.ndarray  # the cluster that each one split from, (C,) int64, always a lower number; -1 for the root
    birth: np.ndarray
    """Density above which it is separate from its siblings, (C,); 0 for the root; infinite where HDBSCAN splits
    coinciding records."""
    death: np.ndarray  # density above which it has split or has no records left, (C,); may be infinite
    size: np.ndarray  # records at its birth, (C,) int64
    home: np.ndarray  # smallest cluster that ever contains each record, (B,) int64
    leaves: np.ndarray  # density above which each record is noise, (B,); infinite for coinciding records

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
    """Read HDBSCAN's condensed tree, in the form of `analysis.clusters.projection.Clustering.tree`."""
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


_HERE = Path(__file__).parent / "dendrogram"


def page_content(
    projection: Projection, clustering: Clustering, tree: ClusterTree, data: Dataset, seed: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the page's data: plain values, and tables of the points shown."""
    if len(tree) >= _NO_CLUSTER:
        raise ValueError(f"a page cannot hold {len(tree)} clusters")
    densities = tree.densities(LEVELS)
    shown = np.arange(len(data))
    if len(data) > POINTS_AT_MOST:
        shown = np.sort(np.random.default_rng(seed).choice(len(data), POINTS_AT_MOST, replace=False))
    own = run_clusters(tree, clustering.labels)
    own_of = np.append(own, _NO_CLUSTER)[clustering.labels]  # noise, -1, takes the last
    standing = np.stack([tree.standing(density) for density in densities])  # (levels, C)
    lasts = np.searchsorted(densities, tree.leaves[shown], side="right")
    levels = []
    for density in densities:
        there, sizes = np.unique(tree.cut(density), return_counts=True)
        kept = there != NOISE
        level = {"clusters": there[kept].tolist(), "sizes": sizes[kept].tolist(), "noise": int(sizes[~kept].sum())}
        levels.append(level)
    name = dict(zip(own.tolist(), range(len(own)), strict=True))
    clusters = {
        "parent": tree.parent, "birth": tree.birth, "death": tree.death, "size": tree.size,
        "persistence": tree.persistence, **block_layout(tree),
        "run": [name.get(cluster) for cluster in range(len(tree))], "strongest": strongest_features(tree, data),
    }  # fmt: skip
    facts = {"records": len(data), "densities": densities.tolist(), "levels": levels, "clusters": plain(clusters)}
    tables = {
        "x": projection.points[shown, 0].astype(np.float32), "y": projection.points[shown, 1].astype(np.float32),
        "home": tree.home[shown], "lasts": lasts, "own": own_of[shown], "standing": standing,
    }  # fmt: skip
    return facts, tables


def run_clusters(tree: ClusterTree, labels: np.ndarray) -> np.ndarray:
    """Return the number in the tree of each of the run's clusters, (labels,) int64.

    HDBSCAN's excess of mass selects clusters of the tree with all records that they have at birth.
    """
    clusters = []
    for label in range(labels.max() + 1):
        member = labels == label
        cluster = int(tree.home[member].min())
        while tree.size[cluster] < member.sum():
            cluster = int(tree.parent[cluster])
        clusters.append(cluster)
    return np.array(clusters, np.int64)


def block_layout(tree: ClusterTree) -> dict[str, np.ndarray]:
    """Return where the tree's clusters are in the picture, (C,) each: blocks from `low` to `high`, one unit a leaf.

    The largest child comes first and keeps its parent's `colour`, the index of one; a parent's block spans its leaves.
    """
    children: list[list[int]] = [[] for _ in range(len(tree))]
    for cluster in np.argsort(-tree.size, kind="stable").tolist():
        if cluster:
            children[tree.parent[cluster]].append(cluster)
    leaves = np.array([0 if inner else 1 for inner in children])
    for cluster in range(len(tree) - 1, 0, -1):
        leaves[tree.parent[cluster]] += leaves[cluster]
    low, colour, fresh = np.zeros(len(tree)), np.zeros(len(tree), np.int64), 0
    for cluster, within in enumerate(children):  # parents come before their children
        start = low[cluster]
        for rank, child in enumerate(within):
            low[child], start = start, start + leaves[child]
            fresh += rank > 0
            if rank > 0 and fresh % COLOURS == colour[cluster]:
                fresh += 1
            colour[child] = colour[cluster] if rank == 0 else fresh % COLOURS
    return {"low": low, "high": low + leaves, "colour": colour}


def strongest_features(tree: ClusterTree, data: Dataset) -> list[list[tuple[str, float]]]:
    """Return, for each cluster at birth, the features with the largest Cohen's d against all other records.

    This describes these records and is not a test; the root has no other records, and therefore no features.
    """
    spread = data.values.std(axis=0)
    scaled = (data.values - data.values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)  # (B, F)
    total, square = tree.gathered(scaled), tree.gathered(scaled**2)
    strongest: list[list[tuple[str, float]]] = [[]]
    for cluster in range(1, len(tree)):
        inside = _moments(int(tree.size[cluster]), total[cluster], square[cluster])
        outside = _moments(
            int(tree.size[0] - tree.size[cluster]), total[0] - total[cluster], square[0] - square[cluster]
        )
        effects = np.where(spread > 0, cohens_d(inside, outside), 0.0)
        order = np.argsort(-np.abs(effects), kind="stable")[:_STRONGEST]
        strongest.append([(data.features[i].name, float(effects[i])) for i in order if effects[i]])
    return strongest


def _moments(count: int, total: np.ndarray, square: np.ndarray) -> Moments:
    mean = total / count
    variance = np.maximum(square - count * mean**2, 0.0) / max(1, count - 1)
    return Moments(count, mean, variance)


def dendrogram_page(projection: Projection, clustering: Clustering, clustered_in: str, data: Dataset, seed: int) -> str:
    """Return the page as HTML."""
    from plotly.offline import get_plotlyjs

    tree = cluster_tree(clustering.tree)
    facts, tables = page_content(projection, clustering, tree, data, seed)
    columns, content = pack(tables, {})
    facts |= {
        "columns": columns,
        "axes": projection.axes,
        "colours": [cluster_colour(i) for i in range(max(COLOURS, int(clustering.labels.max(initial=0)) + 1))],
        "noiseColour": NOISE_COLOUR,
    }
    page = environment(_HERE).get_template("template.html")
    return page.render(
        heading=data.heading, clustered_in=clustered_in, records=len(data), shown=min(len(data), POINTS_AT_MOST),
        clusters=len(tree), facts=embedded(facts), content=content, style=style_of("window", _HERE),
        scripts=scripts_of((*BASE, "canvas.js"), [_HERE / "explorer.js"], [get_plotlyjs()]),
    )  # fmt: skip
