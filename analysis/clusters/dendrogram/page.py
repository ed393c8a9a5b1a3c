"""One self-contained offline page for exploring a clustering by density."""

from pathlib import Path
from typing import Any

import numpy as np

from analysis.clusters.clustering import Clustering
from analysis.clusters.dataset import Dataset
from analysis.clusters.projection import Projection
from analysis.clusters.tree import ClusterTree, cluster_tree
from analysis.figures.style import NOISE_COLOUR, cluster_colour
from analysis.labels import NOISE
from analysis.pages.packing import embedded, pack
from analysis.pages.pages import BASE, environment, scripts_of, style_of
from analysis.runs.run_folder import plain
from analysis.statistics.effect_sizes import Moments, cohens_d

_HERE = Path(__file__).parent
LEVELS = 60
POINTS_AT_MOST = 20_000
COLOURS = 8
_STRONGEST = 5
_NO_CLUSTER = 65_535


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
    facts = {
        "records": len(data),
        "densities": densities.tolist(),
        "levels": [_level(tree, density) for density in densities],
        "clusters": _clusters(tree, clustering.labels, own, data),
    }
    tables = {
        "x": projection.points[shown, 0].astype(np.float32),
        "y": projection.points[shown, 1].astype(np.float32),
        "home": tree.home[shown],
        "lasts": lasts,
        "own": own_of[shown],
        "standing": standing,
    }
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


def _level(tree: ClusterTree, density: float) -> dict[str, Any]:
    clusters, sizes = np.unique(tree.cut(density), return_counts=True)
    kept = clusters != NOISE
    return {"clusters": clusters[kept].tolist(), "sizes": sizes[kept].tolist(), "noise": int(sizes[~kept].sum())}


def _clusters(tree: ClusterTree, labels: np.ndarray, own: np.ndarray, data: Dataset) -> dict[str, list[Any]]:
    name = dict(zip(own.tolist(), range(labels.max() + 1), strict=True))
    columns: dict[str, Any] = {
        "parent": tree.parent, "birth": tree.birth, "death": tree.death, "size": tree.size,
        "persistence": tree.persistence, **block_layout(tree),
        "run": [name.get(cluster) for cluster in range(len(tree))], "strongest": strongest_features(tree, data),
    }  # fmt: skip
    return dict(plain(columns))


def dendrogram_page(projection: Projection, clustering: Clustering, clustered_in: str, data: Dataset, seed: int) -> str:
    """Return the page as HTML."""
    from plotly.offline import get_plotlyjs

    tree = cluster_tree(clustering.tree)
    facts, tables = page_content(projection, clustering, tree, data, seed)
    packed = pack(tables, {})
    facts |= {
        "columns": packed.columns,
        "axes": projection.axes,
        "colours": [cluster_colour(i) for i in range(COLOURS)],
        "noiseColour": NOISE_COLOUR,
    }
    page = environment(_HERE).get_template("template.html")
    return page.render(
        heading=data.heading,
        clustered_in=clustered_in,
        records=len(data),
        shown=min(len(data), POINTS_AT_MOST),
        clusters=len(tree),
        facts=embedded(facts),
        content=packed.content,
        style=style_of("window", _HERE),
        scripts=scripts_of(BASE, [_HERE / "explorer.js"], [get_plotlyjs()]),
    )
