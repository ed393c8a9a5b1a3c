"""Complete summaries of planted dumps without UMAP, so that many cases can be tested fast."""

import functools
from collections.abc import Sequence

import numpy as np

from activation_store.selection import ALL_RECORDS
from analysis.clusters.dataset import Dataset
from analysis.clusters.projection import hdbscan_labels
from analysis.clusters.summarise import ClusterStatistics, cluster_statistics, summarise
from analysis.clusters.summary import Summary
from analysis.features import FEATURES, Feature, feature_matrix
from analysis.lives import lives_of
from analysis.statistics.inference import Inference
from analysis.statistics.stability import ClusterMethod, Stability, StabilityFloor
from tests.planted import Planted

FAST = Inference(permutations=99, bootstraps=99)


def first_two(activations: np.ndarray, seed: int) -> np.ndarray:
    """Return the first two units as an embedding."""
    return activations[:, :2].astype(np.float64)


METHOD = ClusterMethod(first_two, functools.partial(hdbscan_labels, min_samples=5), min_cluster_size=15)


def planted_dataset(planted: Planted, features: Sequence[Feature] = FEATURES) -> Dataset:
    """All records of a planted dump."""
    records, layer = planted.records, planted.metadata.main_layer
    values = feature_matrix(records, planted.metadata, features)
    return Dataset(
        planted.metadata, layer, tuple(features), records, lives_of(records), records.activations[layer], values
    )


def statistics_of(data: Dataset, labels: np.ndarray) -> ClusterStatistics:
    """Statistics of any labels, with few permutations."""
    return cluster_statistics(data, first_two(data.activations, 0), labels, METHOD, FAST)


def planted_summary(planted: Planted, labels: np.ndarray, features: Sequence[Feature] = FEATURES) -> Summary:
    """Summarise any labels of a planted dump; agreement with other embeddings is set to 0.9."""
    data = planted_dataset(planted, features)
    floor = StabilityFloor((0.4, 0.5, 0.3), (0.2, 0.3), (0.1, 0.2, 0.15))
    projection = Stability((0.9, 0.9, 0.9), 100, (0.85, 0.95, 0.9), gaussian=floor)
    return summarise(data, labels, statistics_of(data, labels), projection, subsample=ALL_RECORDS, components={0.5: 1})
