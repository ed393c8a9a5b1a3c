"""Clusters in words: what each is about, and what the whole analysis comes to."""

import math
from collections.abc import Sequence

from analysis.clusters.summary import SAME_CLUSTER, ClusterSummary, FeatureEffect, Residualized, Summary
from analysis.features import Feature
from analysis.features.feature import YES_OR_NO
from analysis.share_text import share_text
from analysis.statistics.confounds import Confound

SMALL = 0.2
"""Of Cohen's d: a difference below is none to speak of (Cohen 1988, section 2.2.3)."""

STABLE, PARTLY_STABLE = 0.8, 0.5
"""Mean adjusted Rand indices from which clusterings are called stable, and partly stable."""

_NAMED = 3
_CLUSTERS_TOLD = 12


def describe(effects: Sequence[FeatureEffect], features: Sequence[Feature]) -> str:
    """Say what a cluster is about: the strongest of its effects that survive correction and are not small.

    For example "is_attacking more often (95% against 12%), self_food lower (34 against 61)".
    """
    surviving = [(effect, feature) for effect, feature in zip(effects, features, strict=True) if effect.survives]
    if not surviving:
        return "no feature that survives correction"
    told = sorted((pair for pair in surviving if abs(pair[0].d_complement) >= SMALL), key=lambda pair: _order(pair[0]))
    if not told:
        return f"small differences only (|d| below {SMALL})"
    return ", ".join(_difference(*pair) for pair in told[:_NAMED])


def _order(effect: FeatureEffect) -> float:
    return -abs(effect.d_complement)


def _difference(effect: FeatureEffect, feature: Feature) -> str:
    higher = effect.mean > effect.complement_mean
    if feature.unit == YES_OR_NO:
        how = "more often" if higher else "less often"
        return f"{effect.name} {how} ({effect.mean:.0%} against {effect.complement_mean:.0%})"
    how = "higher" if higher else "lower"
    return f"{effect.name} {how} ({_figures(effect.mean)} against {_figures(effect.complement_mean)})"


def _figures(value: float) -> str:
    """Write a number with three figures, or with all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def verdict(summary: Summary) -> tuple[str, ...]:
    """Return sentences that say what an analysis comes to, before any of its numbers are read."""
    if not summary.clusters:
        return (f"No cluster was found: all {summary.records:,} records are noise.",)
    sentences = [_found(summary), _stability(summary), *_about(summary.clusters), _claims(summary), _scope(summary)]
    sentences.append(_confounded(summary))
    if summary.residualized:
        sentences.append(_residualized(summary.residualized, summary.surviving))
    return tuple(sentences)


def _found(summary: Summary) -> str:
    number = len(summary.clusters)
    return (
        f"{number:,} cluster{'s' * (number > 1)} hold{'s' * (number == 1)} {share_text(summary.coverage)} of "
        f"{summary.records:,} records, {share_text(summary.noise_share)} are noise; no cluster "
        "that HDBSCAN found was left out."
    )


def _stability(summary: Summary) -> str:
    parts = []
    for name, values in (
        (f"other seeds, on {summary.stability.seed_records:,} records", summary.stability.over_seeds),
        ("bootstraps of lives in the same embedding", summary.stability.over_bootstraps),
    ):
        if values:
            mean = sum(values) / len(values)
            parts.append(f"{_word(mean)} over {name} (adjusted Rand index {mean:.2f}, {_range(values)})")
    if not parts:
        return f"How stable they are cannot be told: {summary.stability.reason}."
    told = "; ".join([*parts, *filter(None, [summary.stability.reason])])
    dissolved = [cluster.label for cluster in summary.clusters if cluster.jaccard < SAME_CLUSTER]
    lost = f" Not found again in these bootstraps: {_listed(dissolved)} (overlap below {SAME_CLUSTER:g})."
    return f"The clustering is {told}.{lost if dissolved else ''}"


def _word(mean: float) -> str:
    if mean >= STABLE:
        return "stable"
    return "partly stable" if mean >= PARTLY_STABLE else "UNSTABLE"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def _about(clusters: Sequence[ClusterSummary]) -> list[str]:
    lines = [
        f"Cluster {cluster.label} ({share_text(cluster.share)}): {cluster.description}"
        + (f"; but it marks {', '.join(cluster.flagged)}" if cluster.flagged else "")
        + "."
        for cluster in clusters[:_CLUSTERS_TOLD]
    ]
    return [*lines, *([f"Cluster {len(lines)} and smaller ones: see below."] if len(lines) < len(clusters) else [])]


def _claims(summary: Summary) -> str:
    return (
        f"Of {summary.tested:,} differences between a cluster and the rest that could be tested, {summary.surviving:,} "
        f"survive correction (false discovery rate {summary.method.level:.0%}, interval without 0)"
        + (f"; {summary.untested:,} could not be tested." if summary.untested else ".")
    )


def _scope(summary: Summary) -> str:
    method = summary.method
    if method.units < 2:
        return "There are no intervals: a single life says nothing of others."
    if method.unit == "episode":
        return f"Intervals speak for other worlds: they resample the {method.units} episodes whole."
    worlds = "the one world" if summary.episodes == 1 else f"the {summary.episodes} worlds"
    return (
        f"Intervals speak for other lives in {worlds} at hand, not for other worlds: that takes more episodes "
        f"(they resample {method.units:,} lives)."
    )


def _confounded(summary: Summary) -> str:
    flagged = {name for cluster in summary.clusters for name in cluster.flagged}
    if all(each.reason for each in summary.confounds):
        return f"Whether clusters only mark a time, a place or a life cannot be told: {summary.confounds[0].reason}."
    overall = _much_shared(summary.confounds)
    names = [f"{each.name} ({_flagged(summary, each.name)})" for each in summary.confounds if each.name in flagged]
    if not names and not overall:
        return "No confound is flagged."
    together = f"; all clusters together share much with {overall}" if overall else ""
    single = f"Confounds are flagged: {', '.join(names)}" if names else "No single cluster is confounded"
    return f"{single}{together}."


def _much_shared(confounds: Sequence[Confound]) -> str:
    return ", ".join(
        f"{each.name} ({each.share:.0%}, {each.chance:.0%} by chance)" for each in confounds if each.flagged
    )


def _flagged(summary: Summary, name: str) -> str:
    return _listed([cluster.label for cluster in summary.clusters if name in cluster.flagged])


def _listed(labels: Sequence[int]) -> str:
    shown = [*map(str, labels[:_CLUSTERS_TOLD]), *(["..."] if len(labels) > _CLUSTERS_TOLD else [])]
    return f"cluster{'s' * (len(labels) > 1)} {', '.join(shown)}"


def _residualized(again: Residualized, surviving: int) -> str:
    kept = sum(claim.survives for claim in again.claims)
    agreement = "not defined" if math.isnan(again.adjusted_rand) else f"{again.adjusted_rand:.2f}"
    found_again = (
        f", and {kept} of the {surviving} surviving differences are found again, in a cluster that overlaps by "
        f"{SAME_CLUSTER:g} or more with its own"
    )
    shared = _much_shared(again.overall_confounds)
    return (
        f"Without {', '.join(again.variables)}, which takes {again.variance_removed:.1%} of the activations' variance "
        f"away, {again.clusters} cluster{' is' if again.clusters == 1 else 's are'} found (adjusted Rand index with "
        f"these: {agreement})"
        + (found_again if surviving else "")
        + (f"; they share much with {shared} all the same." if shared else ".")
    )
