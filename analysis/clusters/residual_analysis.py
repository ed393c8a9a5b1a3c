"""Repeat the analysis on activations from which variables were regressed out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.clusters.cluster_statistics import ClusterStatistics, cluster_statistics
from analysis.clusters.dataset import Dataset
from analysis.clusters.residuals import residual_variables, residualize
from analysis.clusters.summarise import cluster_summaries
from analysis.clusters.summary import SAME_CLUSTER, Claim, ClusterSummary, Residualized
from analysis.labels import NOISE
from analysis.statistics.cluster_method import ClusterMethod
from analysis.statistics.inference import Inference
from analysis.statistics.stability import adjusted_rand, overlap


@dataclass(frozen=True)
class Repeated:
    """The repeated analysis: its points, its labels, and its comparison with the original one."""

    points: np.ndarray
    labels: np.ndarray
    result: Residualized


def repeat_without(
    names: Sequence[str],
    data: Dataset,
    labels: np.ndarray,
    plain: ClusterStatistics,
    method: ClusterMethod,
    settings: Inference,
) -> Repeated:
    """Regress variables out of the activations, embed and cluster the residuals, and test the original claims again.

    Args:
        names: of the variables, as `analysis.clusters.residuals.residual_variables` takes them.
        labels: of the original analysis, (B,).
        plain: statistics of the original clusters.

    Raises:
        UserError: a variable does not exist, or no variance is left.
    """
    features = {feature.name: data.values[:, i] for i, feature in enumerate(data.features)}
    rest = residualize(data.activations, residual_variables(names, data.records, data.lives, features))
    points = method.embed(rest.activations, seed=settings.seed)
    again = method.cluster(points)
    statistics = cluster_statistics(data, points, again, method, settings)
    clusters = cluster_summaries(data, again, statistics)
    before = cluster_summaries(data, labels, plain)
    result = Residualized(
        variables=tuple(names),
        variance_removed=rest.variance_removed,
        clusters=len(clusters),
        noise_share=float((again == NOISE).mean()),
        adjusted_rand=adjusted_rand(labels, again),
        overall_confounds=statistics.confounds.overall,
        claims=_claims(before, clusters, overlap(labels, again, len(before))),
        clusters_found=clusters,
    )
    return Repeated(points, again, result)


def _claims(
    before: Sequence[ClusterSummary], after: Sequence[ClusterSummary], overlaps: np.ndarray
) -> tuple[Claim, ...]:
    return tuple(
        _claim(cluster, feature, after, overlaps[cluster.label])
        for cluster in before
        for feature, effect in enumerate(cluster.effects)
        if effect.survives
    )


def _claim(cluster: ClusterSummary, feature: int, after: Sequence[ClusterSummary], overlaps: np.ndarray) -> Claim:
    """Look for one surviving effect in the new cluster that overlaps most with the effect's own cluster."""
    plain = cluster.effects[feature]
    if not len(overlaps) or overlaps.max() == 0:
        return Claim(cluster.label, plain.name, plain.d_complement, -1, 0.0, float("nan"), False)
    match = int(overlaps.argmax())
    again = after[match].effects[feature]
    same_cluster = overlaps[match] >= SAME_CLUSTER
    same_sign = plain.d_complement * again.d_complement > 0
    return Claim(
        cluster.label,
        plain.name,
        plain.d_complement,
        match,
        float(overlaps[match]),
        again.d_complement,
        bool(same_cluster and same_sign and again.survives),
    )
