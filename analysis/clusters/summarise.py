"""Turn statistics into a summary."""

from dataclasses import replace
from typing import Any

import numpy as np

from activation_store.subsample import Subsample
from analysis.clusters.blindness import Blindness
from analysis.clusters.cluster_statistics import ClusterStatistics
from analysis.clusters.dataset import Dataset
from analysis.clusters.summary import ClusterSummary, CodeUse, FeatureEffect, Method, Residualized, Stability, Summary
from analysis.clusters.verdict import describe, verdict
from analysis.labels import NOISE
from analysis.lives import Lives
from analysis.statistics.differences import Differences
from analysis.statistics.inference import LEVEL
from analysis.statistics.stability import ProjectionStability


def summarise(
    data: Dataset,
    labels: np.ndarray,
    statistics: ClusterStatistics,
    projection: ProjectionStability,
    *,
    subsample: Subsample,
    components: dict[float, int],
    residualized: Residualized | None = None,
    codes: CodeUse | None = None,
    blindness: Blindness | None = None,
) -> Summary:
    """Collect the results of an analysis, with its verdict in words.

    Args:
        labels: (B,) clusters from 0; negative for noise.
        found: statistics of those clusters.
        projection: stability under other embeddings.
        subsample: which records of each life were kept.
        components: number of principal components that explain shares of the activations' variance.
        residualized: the repeated analysis, if requested.
        blindness: how much of what clusters tell the listed features cover, if measured.
    """
    clusters = cluster_summaries(data, labels, statistics)
    effects = [effect for cluster in clusters for effect in cluster.effects]
    tested = sum(not effect.untested for effect in effects)
    summary = Summary(
        **_about(data, labels),
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
        validity=statistics.validity.overall,
        persistence=statistics.persistence[0],
        clusters=clusters,
        choices=statistics.choices,
        residualized=residualized,
        codes=codes,
        blindness=blindness,
    )
    return replace(summary, verdict=verdict(summary))


def _about(data: Dataset, labels: np.ndarray) -> dict[str, Any]:
    """Return the fields of a summary that describe what was analysed and how much of it clusters cover."""
    noise, count = int((labels == NOISE).sum()), len(data.records)
    return {
        "policy": data.metadata.policy,
        "agent": data.metadata.agent,
        "layer": data.layer,
        "records_in_dump": data.metadata.records,
        "records": count,
        "lives": len(data.lives),
        "agents": len(np.unique(data.records.agent_id)),
        "episodes": len(np.unique(data.records.episode)),
        "clustered_records": count - noise,
        "coverage": 1 - noise / count,
        "noise_records": noise,
        "noise_share": noise / count,
        "features": tuple(
            {"name": f.name, "unit": f.unit, "definition": f.definition, "choice": f.choice} for f in data.features
        ),
    }


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
        jaccard=float(statistics.stability.jaccard[number]),
        dbcv=float(statistics.validity.clusters[number]),
        detectable_d=float(np.nanmedian(detectable)) if np.isfinite(detectable).any() else float("nan"),
        confounds=statistics.confounds.clusters[number],
        effects=effects,
    )


def _effects(number: int, data: Dataset, differences: Differences) -> tuple[FeatureEffect, ...]:
    sources = (
        (differences.effects, ("mean", "baseline_mean", "d_baseline", "complement_mean", "d_complement")),
        (differences.intervals, ("baseline_low", "baseline_high", "complement_low", "complement_high", "agreeing")),
        (differences.intervals, ("difference_low", "difference_high")),
        (differences.test, ("p", "q", "informative_lives")),
    )
    again = {name: getattr(differences.given_time, name)[number].tolist() for name in ("p", "q")}
    values = {name: getattr(source, name)[number].tolist() for source, names in sources for name in names}
    survives, given_time = differences.survives[number].tolist(), differences.survives_given_time[number].tolist()
    overall = data.values.mean(axis=0).tolist()
    return tuple(
        FeatureEffect(
            name=feature.name,
            mean=values["mean"][i],
            baseline_mean=values["baseline_mean"][i],
            d_baseline=values["d_baseline"][i],
            d_baseline_low=values["baseline_low"][i],
            d_baseline_high=values["baseline_high"][i],
            overall_mean=overall[i],
            complement_mean=values["complement_mean"][i],
            difference_low=values["difference_low"][i],
            difference_high=values["difference_high"][i],
            d_complement=values["d_complement"][i],
            d_complement_low=values["complement_low"][i],
            d_complement_high=values["complement_high"][i],
            p=values["p"][i],
            q=values["q"][i],
            informative_lives=values["informative_lives"][i],
            untested=differences.why_untested(number, i),
            episodes=int(differences.intervals.episodes[number]),
            episodes_agreeing=values["agreeing"][i],
            survives=survives[i],
            p_given_time=again["p"][i],
            q_given_time=again["q"][i],
            survives_given_time=given_time[i],
            choice=feature.choice,
            phrase=feature.phrase,
        )
        for i, feature in enumerate(data.features)
    )


def _method(differences: Differences) -> Method:
    settings, intervals = differences.settings, differences.intervals
    return Method(
        settings.permutations, settings.bootstraps, settings.confidence, LEVEL, intervals.unit, intervals.units,
        episodes_shifted=differences.test.informative_episodes is not None,
    )  # fmt: skip


def _stability(
    lives: Lives, clusters: int, statistics: ClusterStatistics, projection: ProjectionStability
) -> Stability:
    seeds, records = projection.over_seeds, projection.records
    if not clusters:
        return Stability((), records, (), (), "there is no cluster")
    if len(lives) < 2:
        return Stability(seeds, records, (), (), "one life cannot be resampled")
    return Stability(
        seeds, records, projection.over_lives, statistics.stability.adjusted_rand, projection.reason, projection.floor
    )
