"""Compute all statistics of one clustering in one call."""

from dataclasses import dataclass

import numpy as np

from analysis.clusters.dataset import Dataset
from analysis.statistics.association import Association, associations
from analysis.statistics.cluster_method import ClusterMethod
from analysis.statistics.cluster_validity import ClusterValidity, cluster_validity
from analysis.statistics.confounds import Confounds, confounds, variables_of
from analysis.statistics.differences import Differences, cluster_differences
from analysis.statistics.inference import Inference
from analysis.statistics.persistence import Persistence, persistence
from analysis.statistics.stability import BootstrapStability, bootstrap_stability


@dataclass(frozen=True)
class ClusterStatistics:
    """All statistics of one clustering.

    Attributes:
        differences: of each cluster and feature.
        confounds: overall and of each cluster.
        persistence: overall, and of each cluster.
        validity: overall and of each cluster.
        stability: over bootstraps of lives.
        choices: each categorical feature, over all clusters.
    """

    differences: Differences
    confounds: Confounds
    persistence: tuple[Persistence, tuple[Persistence, ...]]
    validity: ClusterValidity
    stability: BootstrapStability
    choices: tuple[Association, ...]


def cluster_statistics(
    data: Dataset, points: np.ndarray, labels: np.ndarray, method: ClusterMethod, settings: Inference
) -> ClusterStatistics:
    """Compute all statistics of a clustering.

    Args:
        points: what was clustered, (B, dimensions).
        labels: (B,) clusters from 0, largest first; negative for noise.
        method: used to find them.
    """
    lives, seed = data.lives, settings.seed
    tick, episode = data.records.tick, data.records.episode
    return ClusterStatistics(
        differences=cluster_differences(data.values, labels, lives, tick, episode, settings),
        confounds=confounds(variables_of(data.records, lives), labels, lives, settings),
        persistence=persistence(labels, lives, tick),
        validity=cluster_validity(points, labels, seed),
        stability=bootstrap_stability(points, labels, lives, method, seed),
        choices=associations(data.codes, labels, lives, tick, episode, settings),
    )
