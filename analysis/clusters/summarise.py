"""Compute all statistics of one clustering, and turn them into a summary."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from activation_store.selection import Subsample
from analysis.clusters.blindness import Blindness
from analysis.clusters.dataset import Dataset
from analysis.clusters.summary import ClusterSummary, CodeUse, FeatureEffect, Method, Residualized, Summary
from analysis.clusters.verdict import describe, verdict
from analysis.labels import NOISE
from analysis.lives import Lives
from analysis.statistics.association import Association, associations
from analysis.statistics.cluster_validity import Persistence, Validity, cluster_validity, persistence
from analysis.statistics.confounds import Confounds, confounds, variables_of
from analysis.statistics.effect_intervals import Differences, cluster_differences
from analysis.statistics.inference import LEVEL, Inference
from analysis.statistics.stability import ClusterMethod, Stability, bootstrap_stability


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
        method=_method(statistics.differences),
        tested=tested,
        untested=len(effects) - tested,
        surviving=sum(effect.survives for effect in effects),
        surviving_given_time=sum(effect.survives_given_time for effect in effects),
        confounds=statistics.confounds.overall,
        stability=_stability(data.lives, len(clusters), statistics, projection),
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
    return tuple(_cluster_summary(number, data, labels == number, statistics) for number in range(labels.max() + 1))


def _cluster_summary(number: int, data: Dataset, member: np.ndarray, statistics: ClusterStatistics) -> ClusterSummary:
    effects = _effects(number, data, statistics.differences)
    detectable = statistics.differences.detectable[number]
    return ClusterSummary(
        label=number,
        records=int(member.sum()),
        share=float(member.mean()),
        lives=len(np.unique(data.lives.index[member])),
        agents=len(np.unique(data.records.agent_id[member])),
        tick_median=float(np.median(data.records.tick[member])),
        description=describe(effects, data.features),
        persistence=statistics.persistence[1][number],
        jaccard=float(statistics.stability[1][number]),
        dbcv=float(statistics.validity[1][number]),
        detectable_d=float(np.nanmedian(detectable)) if np.isfinite(detectable).any() else float("nan"),
        confounds=statistics.confounds.clusters[number],
        effects=effects,
    )


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


def _method(differences: Differences) -> Method:
    settings, intervals = differences.settings, differences.intervals
    return Method(
        settings.permutations, settings.bootstraps, settings.confidence, LEVEL, intervals.unit, intervals.units,
        episodes_shifted=differences.test.informative_episodes is not None,
    )  # fmt: skip


def _stability(lives: Lives, clusters: int, statistics: ClusterStatistics, projection: Stability) -> Stability:
    seeds, records = projection.over_seeds, projection.seed_records
    if not clusters:
        return Stability((), records, (), reason="there is no cluster")
    if len(lives) < 2:
        return Stability(seeds, records, (), reason="one life cannot be resampled")
    return replace(projection, over_bootstraps=statistics.stability[0])
