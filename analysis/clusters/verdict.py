"""Describe in words what each cluster is about, and the overall result of an analysis."""

import math
import statistics
from collections.abc import Sequence

from analysis.clusters.summary import SAME_CLUSTER, ClusterSummary, CodeUse, FeatureEffect, Residualized, Summary
from analysis.features import Feature
from analysis.features.feature import YES_OR_NO
from analysis.statistics.confounds import Confound
from analysis.statistics.inference import FEWEST_EPISODES, POWER
from analysis.statistics.stability import exceeds
from common.number_text import plural, share_text

SMALL = 0.2
"""Value of Cohen's d below which a difference is negligible (Cohen 1988, section 2.2.3)."""

STABLE, PARTLY_STABLE = 0.8, 0.5
"""Mean adjusted Rand indices above which a clustering is called stable, and partly stable."""

UNSTABLE = "UNSTABLE"

COLLAPSED = 1.5
"""Perplexity of a codebook below which it no longer tells states apart."""

ENOUGH_TO_SHIFT = 10
"""Episodes from which on shifting them whole costs hardly any power (docs/benchmarks.md, false findings and power)."""

_NAMED = 3
_CLUSTERS_SHOWN = 12


def describe(effects: Sequence[FeatureEffect], features: Sequence[Feature]) -> str:
    """Describe a cluster by the strongest of its effects that survive given tick and age and are not small.

    For example "is_attacking more often (95% against 12%), moves west in 67% (22% overall)".
    """
    surviving = [(effect, feature) for effect, feature in zip(effects, features, strict=True) if effect.survives]
    if not surviving:
        return "no feature that survives correction"
    given_time = [pair for pair in surviving if pair[0].survives_given_time]
    if not given_time:
        return f"no feature that survives given tick and age; without them {_strongest(surviving)}"
    return _strongest(given_time)


def _strongest(surviving: Sequence[tuple[FeatureEffect, Feature]]) -> str:
    strongest = sorted(
        (pair for pair in surviving if abs(pair[0].d_complement) >= SMALL), key=lambda pair: -abs(pair[0].d_complement)
    )
    if not strongest:
        return f"small differences only (|d| below {SMALL})"
    parts = []
    for effect, feature in strongest[:_NAMED]:
        own, rest = effect.mean, effect.complement_mean
        if effect.choice:
            parts.append(effect.in_words)
        elif feature.unit == YES_OR_NO:
            how = "more often" if own > rest else "less often"
            parts.append(f"{effect.name} {how} ({own:.0%} against {rest:.0%})")
        else:
            how = "higher" if own > rest else "lower"
            parts.append(f"{effect.name} {how} ({_figures(own)} against {_figures(rest)})")
    return ", ".join(parts)


def _figures(value: float) -> str:
    """Write a number with three significant digits, or all digits before the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def verdict(summary: Summary) -> tuple[str, ...]:
    """Return sentences that summarise an analysis, to be read before its numbers."""
    if not summary.clusters:
        return (f"No cluster was found: all {summary.records:,} records are noise.",)
    sentences = [
        _worlds(summary), _clusters(summary), _stability(summary), *_about(summary.clusters), _claims(summary),
        _choices(summary), _power(summary), *(summary.blindness.sentences if summary.blindness else ()),
        _scope(summary), _confounded(summary), _below_the_flag(summary),
    ]  # fmt: skip
    if summary.residualized:
        sentences.append(_residualized(summary.residualized, summary.surviving))
    return tuple(filter(None, sentences))


def _worlds(summary: Summary) -> str:
    """Warn if there are too few episodes to separate behaviour from shared events of a world's agents."""
    if summary.method.episodes_shifted:
        return ""
    number = summary.episodes
    worlds = "1 episode the tests" if number == 1 else f"{number} episodes the tests"
    return (
        f"With {worlds} cannot tell a cluster's behaviour from what happened to "
        f"{'that world' if number == 1 else 'those worlds'}: at least {FEWEST_EPISODES} episodes are needed."
    )


def _clusters(summary: Summary) -> str:
    if summary.codes:
        return _codes(summary, summary.codes)
    number = len(summary.clusters)
    return (
        f"{number:,} cluster{'s' * (number > 1)} hold{'s' * (number == 1)} {share_text(summary.coverage)} of "
        f"{summary.records:,} records, {share_text(summary.noise_share)} are noise; no cluster "
        "that HDBSCAN found was left out."
    )


def _codes(summary: Summary, codes: CodeUse) -> str:
    """Say how many codes are in use, whether the codebook has collapsed, and whether codes are separate clusters."""
    whose = "that the policy learnt" if codes.recorded else "fitted to its states"
    text = (
        f"{codes.used:,} of {codes.asked:,} codes {whose} are in use, {codes.perplexity:.1f} weighted by their shares "
        f"(perplexity), in {summary.records:,} records."
    )
    if codes.perplexity < COLLAPSED:
        text += " The codebook has COLLAPSED: almost all records share a code."
    dbcv = summary.validity.dbcv
    if math.isfinite(dbcv) and dbcv <= 0:
        text += (
            f" No gaps separate the codes in the plane (density-based validity {dbcv:.2f}): they divide a cloud into "
            "regions, as any codebook does, even of noise. Their meaning rests on their stability and differences."
        )
    return text


def _stability(summary: Summary) -> str:
    stability, gaussian = summary.stability, summary.stability.gaussian
    projection = (
        (f"with other seeds on {stability.seed_records:,} records", stability.over_seeds, gaussian.over_seeds),
        ("with other lives", stability.over_embeddings, gaussian.over_lives),
    )
    clustering = (("", stability.over_bootstraps, gaussian.over_bootstraps),)
    parts = [
        _stable("projection", "embedded anew", projection),
        _stable("clustering", "other lives in the same embedding", clustering),
    ]
    known = [part for part in parts if part]
    if not known:
        return f"The stability of the clusters is unknown: {stability.reason}."
    dissolved = [cluster.label for cluster in summary.clusters if cluster.jaccard < SAME_CLUSTER]
    lost = f" Not found again in the same embedding: {_listed(dissolved)} (overlap below {SAME_CLUSTER:g})."
    reason = f" ({stability.reason})" if stability.reason else ""
    return f"{'; '.join(known)}{reason}.{lost if dissolved else ''}"


def _stable(of: str, how: str, measured: Sequence[tuple[str, Sequence[float], Sequence[float]]]) -> str:
    """Rate stability by the lowest of the means, but only above a Gaussian's, and give the numbers behind it."""
    known = [(name, values, floor) for name, values, floor in measured if values]
    if not known:
        return ""
    numbers = ", ".join(
        f"{name} {statistics.fmean(values):.2f} "
        f"({_range(values)}{f'; a Gaussian {_range(floor)}' if floor else ''})".strip()
        for name, values, floor in known
    )
    lowest = min(statistics.fmean(values) for _, values, _ in known)
    word = "stable" if lowest >= STABLE else "partly stable" if lowest >= PARTLY_STABLE else UNSTABLE
    if word != UNSTABLE and not all(floor for _, _, floor in known):
        word = "not compared with a Gaussian"
    elif word != UNSTABLE and not all(exceeds(values, floor) for _, values, floor in known):
        word = "NOT BEYOND A GAUSSIAN of the same covariance and autocorrelation"
    return f"{of.capitalize()} stability: {word} ({how}: adjusted Rand index {numbers})"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def _about(clusters: Sequence[ClusterSummary]) -> list[str]:
    lines = [
        f"Cluster {cluster.label} ({share_text(cluster.share)}): {cluster.description}"
        + (f"; but it marks {', '.join(cluster.flagged)}" if cluster.flagged else "")
        + "."
        for cluster in clusters[:_CLUSTERS_SHOWN]
    ]
    return [*lines, *([f"Cluster {len(lines)} and smaller ones: see below."] if len(lines) < len(clusters) else [])]


def _claims(summary: Summary) -> str:
    untested = f"; {summary.untested:,} could not be tested" if summary.untested else ""
    return (
        f"Of {summary.tested:,} differences between a cluster and the rest that could be tested, "
        f"{plural(summary.surviving_given_time, 'survives', 'survive')} correction given tick and age, "
        f"{summary.surviving:,} without (false discovery rate {summary.method.level:.0%}, interval without "
        f"0){untested}."
    )


def _choices(summary: Summary) -> str:
    """Name the choices that go with the clusters, strongest first; "" if none were compared."""
    if not summary.choices:
        return ""
    going = sorted((choice for choice in summary.choices if choice.survives), key=lambda choice: -choice.v)
    if not going:
        return (
            f"None of {len(summary.choices)} categorical features, such as the direction of a move, was found to go "
            "with the clusters given tick and age."
        )
    named = ", ".join(f"{choice.name} {choice.v:.2f}" for choice in going[:_CLUSTERS_SHOWN])
    return (
        f"{len(going)} of {len(summary.choices)} categorical features go with the clusters given tick and age "
        f"(Cramer's V, 0 to 1): {named}."
    )


def _power(summary: Summary) -> str:
    """Say how large a difference had to be to be found."""
    detectable = [(cluster.detectable_d, cluster.label) for cluster in summary.clusters]
    known = sorted(entry for entry in detectable if math.isfinite(entry[0]))
    if not known:
        return ""
    (least, best), (most, worst) = known[0], known[-1]
    few = summary.method.episodes_shifted and summary.episodes < ENOUGH_TO_SHIFT
    spread = f", from {least:.2f} in cluster {best} to {most:.2f} in cluster {worst}" if len(known) > 1 else ""
    return (
        f"With {POWER:.0%} power this dump could have found a difference of d = "
        f"{statistics.median(d for d, _ in known):.2f} in a typical cluster{spread}: smaller effects may have been "
        "missed. This holds for a single difference; correction for many requires larger ones"
        + (f", and so does the test of {summary.episodes} episodes shifted whole." if few else ".")
    )


def _scope(summary: Summary) -> str:
    method = summary.method
    if method.units < 2:
        return "There are no intervals: a single life cannot be generalised to others."
    if method.unit == "episode":
        tests = "; tests also shift all lives of an episode together" if method.episodes_shifted else ""
        return f"Intervals generalise to other worlds: they resample the {method.units} episodes whole{tests}."
    worlds = "the one world" if summary.episodes == 1 else f"the {summary.episodes} worlds"
    return (
        f"Intervals generalise to other lives in {worlds} recorded, not to other worlds; that requires more episodes "
        f"(they resample {method.units:,} lives)."
    )


def _confounded(summary: Summary) -> str:
    flagged = {name for cluster in summary.clusters for name in cluster.flagged}
    if all(confound.reason for confound in summary.confounds):
        return f"Whether clusters only mark a time, a place or a life is unknown: {summary.confounds[0].reason}."
    overall = _much_shared(summary.confounds)
    names = [
        f"{confound.name} ({_listed([c.label for c in summary.clusters if confound.name in c.flagged])})"
        for confound in summary.confounds
        if confound.name in flagged
    ]
    if not names and not overall:
        return "No confound is flagged."
    together = f"; all clusters together have a high mutual information with {overall}" if overall else ""
    single = f"Confounds are flagged: {', '.join(names)}" if names else "No single cluster is confounded"
    return f"{single}{together}."


def _below_the_flag(summary: Summary) -> str:
    """Name the confounds that are significant but too small to be flagged."""
    level, parts = summary.method.level, []
    for number, overall in enumerate(summary.confounds):
        own = [(cluster.label, cluster.confounds[number]) for cluster in summary.clusters]
        sure = [(label, confound) for label, confound in own if confound.q <= level and not confound.flagged]
        if sure:
            most = max(confound.excess for _, confound in sure)
            parts.append(f"{overall.name} ({_listed([label for label, _ in sure])}, {_up_to(most, len(sure))})")
        elif overall.q <= level and not overall.flagged and not any(confound.flagged for _, confound in own):
            parts.append(f"{overall.name} (all clusters together, {_up_to(overall.excess, 1)})")
    if not parts:
        return ""
    return f"Below the flag, but more than chance: {', '.join(parts)} of the range from chance to the maximum."


def _up_to(excess: float, number: int) -> str:
    return f"{'up to ' if number > 1 else ''}{share_text(max(excess, 0.0))}"


def _much_shared(confounds: Sequence[Confound]) -> str:
    return ", ".join(
        f"{confound.name} ({confound.share:.0%}, {confound.chance:.0%} by chance)"
        for confound in confounds
        if confound.flagged
    )


def _listed(labels: Sequence[int]) -> str:
    shown = [*map(str, labels[:_CLUSTERS_SHOWN]), *(["..."] if len(labels) > _CLUSTERS_SHOWN else [])]
    return f"cluster{'s' * (len(labels) > 1)} {', '.join(shown)}"


def _residualized(again: Residualized, surviving: int) -> str:
    kept = sum(claim.survives for claim in again.claims)
    agreement = "not defined" if math.isnan(again.adjusted_rand) else f"{again.adjusted_rand:.2f}"
    found_again = (
        f", and {kept} of the {surviving} surviving differences are found again, in a cluster that overlaps by "
        f"at least {SAME_CLUSTER:g} with the original one"
    )
    shared = _much_shared(again.overall_confounds)
    return (
        f"Without {', '.join(again.variables)}, which removes {again.variance_removed:.1%} of the activations' "
        f"variance, {again.clusters} cluster{' is' if again.clusters == 1 else 's are'} found (adjusted Rand index "
        f"with these: {agreement})"
        + (found_again if surviving else "")
        + (f"; they still have a high mutual information with {shared}." if shared else ".")
    )
