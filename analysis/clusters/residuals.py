"""Repeat the analysis on activations from which named variables were regressed out."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from activation_store.schema import Records
from analysis.clusters.dataset import Dataset
from analysis.clusters.settings import OWN_VARIABLES, check_residual_names
from analysis.clusters.summarise import ClusterStatistics, cluster_statistics, cluster_summaries
from analysis.clusters.summary import SAME_CLUSTER, Claim, ClusterSummary, Residualized
from analysis.labels import NOISE
from analysis.lives import Lives
from analysis.position import positions
from analysis.statistics.inference import Inference
from analysis.statistics.stability import ClusterMethod, adjusted_rand, overlap

_CATEGORIES = ("agent", "episode")
_KNOTS = 8


def residual_variables(
    names: Sequence[str], records: Records, lives: Lives, features: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the variables with the given names, (B,) each.

    Args:
        names: of `OWN_VARIABLES` (age is the number of ticks since the first kept record of the life), or of features.

    Raises:
        UserError: a variable does not exist, or is not among the features of this run.
    """
    check_residual_names(names, tuple(features))
    row, column = positions(records)
    birth = records.tick[lives.order[lives.starts]]
    values = (records.tick, records.tick - birth[lives.index], row, column, records.agent_id, records.episode)
    own = dict(zip(OWN_VARIABLES, values, strict=True))
    return {name: own[name] if name in own else features[name] for name in names}


def residualize(activations: np.ndarray, variables: Mapping[str, np.ndarray]) -> tuple[np.ndarray, float]:
    """Regress variables out of activations, (B, units), by least squares for each unit.

    Returns the residuals, (B, units) float32 with mean 0, and the share of the variance that was removed, 0 to 1.

    A numeric variable enters as a cubic spline with 8 knots at its quantiles (scikit-learn's SplineTransformer), which
    fits any smooth function, and a straight line exactly. Agent, episode and any variable with at most 8 values enter
    as categories. Effects are additive: interactions, such as of row and column at a single place, are not removed.

    Variables are (B,) each, finite; one that never changes removes nothing.
    """
    centre = activations.mean(axis=0, dtype=np.float64)
    values = activations - centre
    design = np.column_stack([np.ones(len(values)), *(_basis(name, variable) for name, variable in variables.items())])
    # Orthonormal basis of the design matrix, without linearly dependent columns.
    basis, sizes, _ = np.linalg.svd(design, full_matrices=False)
    basis = basis[:, sizes > sizes[0] * len(design) * np.finfo(float).eps]
    left = values - basis @ (basis.T @ values)
    total = float((values**2).sum())
    removed = 1 - float((left**2).sum()) / total if total > 0 else 0.0
    return left.astype(np.float32), removed


def _basis(name: str, values: np.ndarray) -> np.ndarray:
    """Return a variable's columns in the design matrix, (B, columns)."""
    distinct, number = np.unique(values, return_inverse=True)
    if name in _CATEGORIES or len(distinct) <= _KNOTS:
        return (number[:, None] == np.arange(1, len(distinct))).astype(np.float64)
    from sklearn.preprocessing import SplineTransformer

    knots = np.unique(np.quantile(values.astype(np.float64), np.linspace(0, 1, _KNOTS)))
    transformer = SplineTransformer(degree=3, knots=knots[:, None], include_bias=False)
    return np.asarray(transformer.fit_transform(values.astype(np.float64)[:, None]))


def repeat_without(
    names: Sequence[str], data: Dataset, labels: np.ndarray, plain: ClusterStatistics, method: ClusterMethod,
    settings: Inference,
) -> tuple[np.ndarray, np.ndarray, Residualized]:  # fmt: skip
    """Regress variables out of the activations, embed and cluster the residuals, and test the original claims again.

    `labels` are those of the original analysis, (B,), and `plain` the statistics of its clusters. Returns the repeated
    analysis' points and labels, and how it compares with the original one.

    Raises:
        UserError: a variable does not exist, or no variance is left.
    """
    features = {feature.name: data.values[:, i] for i, feature in enumerate(data.features)}
    rest, removed = residualize(data.activations, residual_variables(names, data.records, data.lives, features))
    points = method.embed(rest, seed=settings.seed)
    again = method.cluster(points)
    statistics = cluster_statistics(data, points, again, method, settings)
    clusters = cluster_summaries(data, again, statistics)
    before = cluster_summaries(data, labels, plain)
    result = Residualized(
        variables=tuple(names), variance_removed=removed, clusters=len(clusters),
        noise_share=float((again == NOISE).mean()), adjusted_rand=adjusted_rand(labels, again),
        overall_confounds=statistics.confounds.overall,
        claims=tuple(_claims(before, clusters, overlap(labels, again, len(before)))), clusters_found=clusters,
    )  # fmt: skip
    return points, again, result


def _claims(before: Sequence[ClusterSummary], after: Sequence[ClusterSummary], overlaps: np.ndarray) -> Iterator[Claim]:
    """Look for each surviving effect in the new cluster that overlaps most with the effect's own cluster."""
    for cluster in before:
        shared = overlaps[cluster.label]
        match = int(shared.argmax()) if len(shared) and shared.max() > 0 else -1
        for feature, plain in enumerate(cluster.effects):
            if not plain.survives:
                continue
            if match < 0:
                yield Claim(cluster.label, plain.name, plain.d_complement, -1, 0.0, float("nan"), False)
                continue
            again = after[match].effects[feature]
            same = shared[match] >= SAME_CLUSTER and plain.d_complement * again.d_complement > 0
            yield Claim(
                cluster.label, plain.name, plain.d_complement, match, float(shared[match]), again.d_complement,
                bool(same and again.survives),
            )  # fmt: skip
