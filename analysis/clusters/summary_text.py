"""A summary as plain text, the verdict first, then the numbers behind it; and what the terminal shows of it."""

import math
import textwrap
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from activation_store.selection import Subsample
from analysis.clusters.summary import SAME_CLUSTER, ClusterSummary, FeatureEffect, Residualized, Summary
from analysis.statistics.association import Association
from analysis.statistics.confounds import LARGE_EXCESS, Confound
from analysis.statistics.inference import LEVEL, POWER
from common.number_text import UNDEFINED, format_number, format_p, share_text

_WIDTH = 118
_ROWS_SHOWN = 12


def as_text(summary: Summary) -> str:
    """Return the summary as plain text."""
    verdict = ["Verdict", *(line for sentence in summary.verdict for line in _wrapped(sentence))]
    blocks = [verdict, _overview(summary), *map(_cluster, summary.clusters)]
    if summary.residualized:
        blocks.append(_residualized(summary.residualized))
    width = max(len(feature["name"]) for feature in summary.features)
    definitions = (f"  {f['name']:<{width}} {f['definition']} Unit: {f['unit']}." for f in summary.features)
    blocks += [_explanation(summary), ["Features", *definitions]]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def format_interval(low: float, high: float) -> str:
    """Write an interval as "[+0.12, +0.55]"; "" if there is none."""
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{format_number(low, sign=True)}, {format_number(high, sign=True)}]"


def _short(value: float) -> str:
    return UNDEFINED if math.isnan(value) else f"{value:g}"


def format_share(value: float) -> str:
    """Write a share as a percentage, or "n/a"."""
    return UNDEFINED if math.isnan(value) else share_text(value)


def _overview(summary: Summary) -> list[str]:
    components = ", ".join(f"{count} for {share}" for share, count in summary.components_explaining.items())
    kept, validity = Subsample(summary.subsample, summary.skip_first).in_words(), summary.validity
    lasting = summary.persistence
    reason = f" ({validity.reason})" if validity.reason else ""
    return [
        f"Policy {summary.policy} (agent {summary.agent}), layer {summary.layer}",
        f"Records: {summary.records:,} kept of {summary.records_in_dump:,} ({kept}), "
        f"{summary.episodes:,} episodes, {summary.lives:,} lives, {summary.agents:,} agent ids",
        f"Principal components that explain the activations' variance: {components}",
        f"Clusters: {len(summary.clusters):,}, covering {share_text(summary.coverage)} of the records kept "
        f"({summary.clustered_records:,})",
        f"Noise: {share_text(summary.noise_share)} of the records kept ({summary.noise_records:,}) "
        "belong to no cluster",
        f"Stability: {_agreements(summary)}",
        f"Density-based validity (DBCV, -1 to 1): {format_number(validity.dbcv)}{reason} "
        f"on {validity.records:,} records",
        f"Persistence: {format_share(lasting.same)} of {lasting.pairs:,} records are followed by one of the same "
        f"cluster, {_short(lasting.lag_ticks)} ticks later; by chance {format_share(lasting.chance_in_life)} within "
        f"lives, {format_share(lasting.chance_overall)} over the dump",
        *_confounds("Confounds: all clusters", summary.confounds),
        *_choices(summary.choices),
        *(summary.blindness.table if summary.blindness else ()),
    ]


def _agreements(summary: Summary) -> str:
    stability, gaussian = summary.stability, summary.stability.gaussian
    seeds, embeddings, draws = map(
        _numbers, (stability.over_seeds, stability.over_embeddings, stability.over_bootstraps)
    )
    reason = f" ({stability.reason})" if stability.reason else ""
    return (
        f"adjusted Rand index with this run {seeds} for other seeds ({stability.seed_records:,} records), {embeddings} "
        f"for other lives embedded anew, {draws} for other lives in the same embedding{reason}; a Gaussian of the same "
        f"covariance and autocorrelation reaches {_numbers(gaussian.over_seeds)}, {_numbers(gaussian.over_lives)} and "
        f"{_numbers(gaussian.over_bootstraps)}"
    )


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(format_number(value) for value in values) or UNDEFINED


def _confounds(of: str, confounds: Sequence[Confound]) -> list[str]:
    described = []
    for one in (confound for confound in confounds if not confound.reason):
        test = f", q {format_p(one.q)}" if math.isfinite(one.q) else ""
        flag = ", FLAGGED" if one.flagged else ""
        described.append(f"{one.name} {one.share:.0%} (chance {one.chance:.0%}{test}{flag})")
    reason = [f"{confound.name} ({confound.reason})" for confound in confounds if confound.reason]
    lines = [f"{of}, normalised mutual information with {', '.join(described)}"] if described else []
    return [*lines, f"  n/a: {', '.join(reason)}"] if reason else lines


def _choices(choices: Sequence[Association]) -> list[str]:
    tested = sorted((choice for choice in choices if math.isfinite(choice.p)), key=lambda choice: -choice.v)
    width = max((len(choice.name) for choice in tested), default=0)
    heading = "Choices and sides with all clusters: Cramer's V, and chi-square against shifted labels"
    lines = [
        f"  {choice.name:<{width}} V {choice.v:.2f}  chi-square {choice.chi_square:,.0f}, shifted "
        f"{choice.shifted_mean:,.0f} (largest {choice.shifted_largest:,.0f}), q {format_p(choice.q)}, "
        f"given tick and age {format_p(choice.q_given_time)}"
        for choice in tested
    ]
    return [heading, *lines] if tested else []


def _cluster(cluster: ClusterSummary) -> list[str]:
    width = max(len(effect.name) for effect in cluster.effects)
    lasting = cluster.persistence
    return [
        f"Cluster {cluster.label}: {cluster.description}",
        f"  {cluster.records:,} records ({share_text(cluster.share)}), {cluster.lives:,} lives, "
        f"{cluster.agents:,} agent ids, median tick {cluster.tick_median:g}",
        f"  found again in bootstraps of lives: overlap {format_number(cluster.jaccard)}; DBCV "
        f"{format_number(cluster.dbcv)}; {format_share(lasting.same)} stay {_short(lasting.lag_ticks)} ticks later (by "
        f"chance within lives {format_share(lasting.chance_in_life)})",
        f"  d detectable with {POWER:.0%} power: {format_number(cluster.detectable_d)}",
        *_confounds("  its records", cluster.confounds),
        *(f"  {_effect(effect, width)}" for effect in cluster.strongest),
    ]


def _effect(effect: FeatureEffect, width: int) -> str:
    q = f"q {format_p(effect.q_given_time)}"
    turned = ", in the other direction" * (effect.q_given_time <= LEVEL)
    outcome = f"survives, but not given tick and age ({q}{turned})"
    if not effect.survives:
        outcome = effect.untested or "does not survive"
    elif effect.survives_given_time:
        outcome = f"survives, also given tick and age ({q})"
    ending = f"{effect.episodes_agreeing} of {effect.episodes} episodes agree; {outcome}"
    if effect.choice:
        points = 100 * (effect.mean - effect.complement_mean)
        difference = f"{points:+.0f}" if math.isfinite(points) else UNDEFINED  # no record has another code
        interval = f" [{100 * effect.difference_low:+.0f}, {100 * effect.difference_high:+.0f}]"
        known = interval if math.isfinite(effect.difference_low) else ""
        return f"{effect.in_words}: {difference} points from the rest{known}, q {format_p(effect.q)}; {ending}"
    d = format_number(effect.d_complement, sign=True)
    interval = format_interval(effect.d_complement_low, effect.d_complement_high)
    return (
        f"{effect.name:<{width}} d {d:>6} {interval:<16} q {format_p(effect.q):<6} mean {effect.mean:.2f}, elsewhere "
        f"{format_number(effect.complement_mean)}; against windows {format_number(effect.d_baseline, sign=True)}; "
        f"{ending}"
    )


def _residualized(again: Residualized) -> list[str]:
    lines = [
        f"Without {', '.join(again.variables)} (removes {again.variance_removed:.1%} of the activations' variance)",
        f"  {again.clusters} clusters, {share_text(again.noise_share)} noise; adjusted Rand index with the original "
        f"labels {format_number(again.adjusted_rand)}",
        *_confounds("  all clusters", again.overall_confounds),
        *(
            f"  cluster {cluster.label} ({share_text(cluster.share)}): {cluster.description}"
            for cluster in again.clusters_found
        ),
        "  Differences that survived, plain and again:",
    ]
    for claim in again.claims:
        dissolved = "no cluster like it" if claim.overlap < SAME_CLUSTER else "does not survive"
        outcome = f"cluster {claim.match} (overlap {format_number(claim.overlap)}): d "
        outcome += f"{format_number(claim.d_after, sign=True)}, {'survives again' if claim.survives else dissolved}"
        lines.append(
            f"    cluster {claim.cluster}, {claim.feature}: d {format_number(claim.d, sign=True)}; "
            f"{outcome if claim.match >= 0 else 'no cluster overlaps with it'}"
        )
    return lines


def _explanation(summary: Summary) -> list[str]:
    method = summary.method
    resampled = "whole episodes" if method.unit == "episode" else "lives"
    both_shifts = (
        "The p-value is the larger of two: lives shifted independently, and all lives of an episode shifted together, "
        "which preserves what happened in their world. "
    )
    paragraphs = (
        "d is Cohen's d, a difference of means over the pooled standard deviation of records: against all records "
        "outside the cluster, and against random windows of lives with as many records.",
        f"[low, high] is its {method.confidence:.0%} interval, by {method.bootstraps:,} bootstraps of {resampled} "
        f"({method.units:,}).",
        f"q is the p-value of a test by {method.permutations:,} circular shifts of labels within lives, corrected for "
        "all clusters and features (false discovery rate). It asks whether a feature changes as an agent enters and "
        f"leaves the cluster. {both_shifts * method.episodes_shifted}A difference survives if q is at most "
        f"{method.level:g}, the interval excludes 0, and both have the same sign. It survives given tick and age if "
        "the same test still finds it once the trends over the episode's ticks and over the life's age are removed "
        "from the feature.",
        "Choices and sides are categorical features, such as the direction of a move. Cramer's V is 0 where they say "
        "nothing about the cluster and 1 where they determine it, less what shifted labels give. An option is shown as "
        "its share of the cluster's records, the share in all records, and the difference from the rest in percentage "
        "points with its interval.",
        "Confounds: the mutual information of clusters and a variable, divided by its maximum; chance is the mean over "
        f"permutations. FLAGGED: significant, and at least {LARGE_EXCESS:.0%} of the way from chance to the maximum.",
        "All this describes how clusters differ, not why. Settings chosen for their effects bias those effects.",
    )
    return ["How to read this", *(line for text in paragraphs for line in _wrapped(text))]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def cluster_table(summary: Summary) -> Table:
    """Return a table of the largest clusters: their size, flagged confounds and description."""
    shown = summary.clusters[:_ROWS_SHOWN]
    left_out = len(summary.clusters) - len(shown)
    table = Table(
        title=escape(f"{summary.policy}, {summary.layer}"),
        title_justify="left",
        caption=f"smaller clusters: {left_out}, in summary.txt" if left_out else None,
        caption_justify="left",
    )
    for name in ("cluster", "records", "share"):
        table.add_column(name, justify="right")
    table.add_column("confounds", style="red")
    table.add_column("about")
    for cluster in shown:
        flagged = escape(", ".join(cluster.flagged)) or "-"
        share, about = share_text(cluster.share), escape(cluster.description)
        table.add_row(str(cluster.label), f"{cluster.records:,}", share, flagged, about)
    return table


def verdict_lines(summary: Summary) -> str:
    """Return the verdict without the table's content: clusters found, stability, surviving differences, flags."""
    return "\n".join(line for line in summary.verdict if not line.startswith("Cluster "))
