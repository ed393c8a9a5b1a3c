"""Projections of activations to fewer dimensions, and density clusters of records in them."""

import functools
from dataclasses import dataclass

import numpy as np

from analysis.clusters.components import Components, principal_components
from analysis.clusters.embeddings import tsne_embedding, umap_embedding, umap_epochs
from analysis.clusters.settings import AnalysisSettings
from analysis.labels import largest_first
from analysis.statistics.stability import ClusterMethod


@dataclass(frozen=True, eq=False)
class Projection:
    """Records in a plane."""

    kind: str  # "umap", "tsne" or "pca", the first word of figures' file names
    points: np.ndarray  # (B, 2) float32
    axes: tuple[str, str]


def project(
    activations: np.ndarray, components: Components, settings: AnalysisSettings, seed: int,
    run_records: int | None = None,
) -> Projection:  # fmt: skip
    """Project records onto a plane as the settings say; the seed is a separate argument, so that others can be tried.

    Args:
        run_records: number of records that the activations are a sample of, if any: UMAP then uses as many epochs as
            for all of them.
    """
    if settings.projection == "pca":
        points = components.scores(activations, 2).astype(np.float32)
        return Projection("pca", points, (components.name(0), components.name(1)))
    if settings.projection == "tsne":
        return Projection("tsne", tsne_embedding(activations, settings.tsne_perplexity, seed), ("t-SNE 1", "t-SNE 2"))
    epochs = umap_epochs(run_records) if run_records else None
    points = umap_embedding(activations, settings.umap_neighbors, settings.umap_min_dist, seed, epochs=epochs)
    return Projection("umap", points, ("UMAP 1", "UMAP 2"))


@dataclass(frozen=True, eq=False)
class Clustering:
    """The result of HDBSCAN."""

    points: np.ndarray  # clustered, (B, dimensions)
    labels: np.ndarray  # (B,) int64, clusters from 0 in order of decreasing size, `NOISE` for the rest
    tree: np.ndarray
    """HDBSCAN's condensed tree: structured, one row for each record and each cluster that leaves `parent`, at density
    `lambda_val` (1 / distance), with `child_size` records."""


def cluster_method(settings: AnalysisSettings) -> ClusterMethod:
    """Return the clustering method of these settings as an object that can be applied again."""
    return ClusterMethod(
        embed=functools.partial(points_to_cluster, settings=settings),
        hdbscan=functools.partial(hdbscan_labels, min_samples=settings.hdbscan_min_samples),
        min_cluster_size=settings.hdbscan_min_cluster,
        seeded=settings.projection != "pca" and not settings.cluster_before_umap,
    )


def points_to_cluster(
    activations: np.ndarray, settings: AnalysisSettings, seed: int, run_records: int | None = None
) -> np.ndarray:
    """Compute from activations, (B, units), the points that these settings cluster, (B, dimensions).

    `run_records` is as in `project`.
    """
    components = principal_components(activations)
    if settings.cluster_before_umap:
        return components.scores(activations, settings.pre_cluster_dims)
    return project(activations, components, settings, seed, run_records).points


def hdbscan_labels(points: np.ndarray, min_cluster_size: int, min_samples: int) -> np.ndarray:
    """Return only the labels of `hdbscan_clusters`, (B,) int64."""
    return hdbscan_clusters(points, min_cluster_size, min_samples).labels


def hdbscan_clusters(points: np.ndarray, min_cluster_size: int, min_samples: int) -> Clustering:
    """Cluster points with HDBSCAN (Campello, Moulavi and Sander 2013), excess of mass.

    Args:
        points: (B, dimensions).
        min_cluster_size: smaller groups are noise; from 2 to B.
        min_samples: neighbours that make a region dense, from 1; larger values give more noise.
    """
    import hdbscan

    model = hdbscan.HDBSCAN(
        min_cluster_size=min_cluster_size,
        min_samples=min_samples,
        core_dist_n_jobs=1,
        approx_min_span_tree=False,  # the default approximation saves nothing here and can change the clusters
    )
    labels = model.fit_predict(points.astype(np.float64))
    return Clustering(points, largest_first(labels), model.condensed_tree_.to_numpy())
