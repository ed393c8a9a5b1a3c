"""Compute all statistics of one clustering, turn them into a summary, and test its claims again.

They are tested again on activations from which named variables were regressed out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from activation_store.schema import Records
from activation_store.selection import Subsample
from analysis.clusters.blindness import Blindness
from analysis.clusters.dataset import Dataset
from analysis.clusters.settings import OWN_VARIABLES, check_residual_names
from analysis.clusters.summary import (
    SAME_CLUSTER,
    Claim,
    ClusterSummary,
    CodeUse,
    FeatureEffect,
    Method,
    Residualized,
    Summary,
)
from analysis.clusters.verdict import describe, verdict
from analysis.labels import NOISE
from analysis.lives import Lives
from analysis.position import positions
from analysis.statistics.association import Association, associations
from analysis.statistics.cluster_validity import Persistence, Validity, cluster_validity, persistence
from analysis.statistics.confounds import Confounds, confounds, variables_of
from analysis.statistics.effect_intervals import Differences, cluster_differences
from analysis.statistics.inference import LEVEL, Inference
from analysis.statistics.stability import ClusterMethod, Stability, adjusted_rand, bootstrap_stability, overlap


@dataclass(frozen=True)
class ClusterStatistics:
    """All statistics of one clustering: overall and of each cluster; `choices` are of each categorical feature."""

    differences: Differences
    confounds: Confounds
    persistence: tuple[Persistence, tuple[Persistence, ...]]
    validity: tuple[Validity, np.ndarray]
    stability: tuple[tuple[float, ...], np.ndarray]
    choices: tuple[Association, ...]


def cluster_statistics(
    data: Dataset, points: np.ndarray, labels: np.ndarray, method: ClusterMethod, settings: Inference
) -> ClusterStatistics:
    """Compute all statistics of clusters from 0, largest first, (B,), and the points clustered, (B, dimensions)."""
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


def summarise(
    data: Dataset, labels: np.ndarray, statistics: ClusterStatistics, projection: Stability, *,
    subsample: Subsample, components: dict[float, int], residualized: Residualized | None = None,
    codes: CodeUse | None = None, blindness: Blindness | None = None,
) -> Summary:  # fmt: skip
    """Collect the results of an analysis, with its verdict in words.

    Args:
        labels: (B,) clusters from 0; negative for noise.
        components: number of principal components that explain shares of the activations' variance.
    """
    clusters = cluster_summaries(data, labels, statistics)
    effects = [effect for cluster in clusters for effect in cluster.effects]
    tested = sum(not effect.untested for effect in effects)
    noise, count = int((labels == NOISE).sum()), len(data.records)
    settings, intervals = statistics.differences.settings, statistics.differences.intervals
    stability = replace(projection, over_bootstraps=statistics.stability[0])
    if not clusters:
        stability = Stability((), projection.seed_records, (), reason="there is no cluster")
    elif len(data.lives) < 2:
        reason = "one life cannot be resampled"
        stability = Stability(projection.over_seeds, projection.seed_records, (), reason=reason)
    summary = Summary(
        policy=data.metadata.policy,
        agent=data.metadata.agent,
        layer=data.layer,
        records_in_dump=data.metadata.records,
        records=count,
        lives=len(data.lives),
        agents=len(np.unique(data.records.agent_id)),
        episodes=len(np.unique(data.records.episode)),
        clustered_records=count - noise,
        coverage=1 - noise / count,
        noise_records=noise,
        noise_share=noise / count,
        features=tuple(
            {"name": f.name, "unit": f.unit, "definition": f.definition, "choice": f.choice} for f in data.features
        ),
        subsample=subsample.every,
        skip_first=subsample.skip_first,
        components_explaining={f"{share:.0%}": number for share, number in components.items()},
        verdict=(),
        method=Method(
            settings.permutations,
            settings.bootstraps,
            settings.confidence,
            LEVEL,
            intervals.unit,
            intervals.units,
            episodes_shifted=statistics.differences.test.informative_episodes is not None,
        ),
        tested=tested,
        untested=len(effects) - tested,
        surviving=sum(effect.survives for effect in effects),
        surviving_given_time=sum(effect.survives_given_time for effect in effects),
        confounds=statistics.confounds.overall,
        stability=stability,
        validity=statistics.validity[0],
        persistence=statistics.persistence[0],
        clusters=clusters,
        choices=statistics.choices,
        residualized=residualized,
        codes=codes,
        blindness=blindness,
    )
    return replace(summary, verdict=verdict(summary))


def cluster_summaries(data: Dataset, labels: np.ndarray, statistics: ClusterStatistics) -> tuple[ClusterSummary, ...]:
    """Collect the results for each cluster, largest first, as they are numbered."""
    summaries = []
    for number in range(labels.max() + 1):
        member, effects = labels == number, _effects(number, data, statistics.differences)
        detectable = statistics.differences.detectable[number]
        summaries.append(
            ClusterSummary(
                label=number, records=int(member.sum()), share=float(member.mean()),
                lives=len(np.unique(data.lives.index[member])), agents=len(np.unique(data.records.agent_id[member])),
                tick_median=float(np.median(data.records.tick[member])), description=describe(effects, data.features),
                persistence=statistics.persistence[1][number], jaccard=float(statistics.stability[1][number]),
                dbcv=float(statistics.validity[1][number]),
                detectable_d=float(np.nanmedian(detectable)) if np.isfinite(detectable).any() else float("nan"),
                confounds=statistics.confounds.clusters[number], effects=effects,
            )
        )  # fmt: skip
    return tuple(summaries)


def _effects(number: int, data: Dataset, differences: Differences) -> tuple[FeatureEffect, ...]:
    sizes, ends, test, again = differences.effects, differences.intervals, differences.test, differences.given_time
    columns = {
        "mean": sizes.mean, "baseline_mean": sizes.baseline_mean, "complement_mean": sizes.complement_mean,
        "d_baseline": sizes.d_baseline, "d_baseline_low": ends.baseline_low, "d_baseline_high": ends.baseline_high,
        "d_complement": sizes.d_complement, "d_complement_low": ends.complement_low,
        "d_complement_high": ends.complement_high, "difference_low": ends.difference_low,
        "difference_high": ends.difference_high, "p": test.p, "q": test.q, "informative_lives": test.informative_lives,
        "episodes_agreeing": ends.agreeing, "survives": differences.survives, "p_given_time": again.p,
        "q_given_time": again.q, "survives_given_time": differences.survives_given_time,
    }  # fmt: skip
    own: dict[str, list[Any]] = {name: values[number].tolist() for name, values in columns.items()}
    return tuple(
        FeatureEffect(
            name=feature.name, overall_mean=overall, untested=differences.why_untested(number, i),
            episodes=int(ends.episodes[number]), choice=feature.choice, phrase=feature.phrase,
            **{name: values[i] for name, values in own.items()},
        )
        for i, (feature, overall) in enumerate(zip(data.features, data.values.mean(axis=0).tolist(), strict=True))
    )  # fmt: skip


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
