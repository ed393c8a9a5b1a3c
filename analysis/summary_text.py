"""What an analysis found, in figures a program can read and in words."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from activation_store.schema import DumpMetadata, Records
from analysis.clustering import NOISE
from analysis.confounds import CONFOUNDS, LOW, Evenness
from analysis.effect_sizes import EffectSizes
from analysis.features import FEATURES, Feature
from analysis.lives import Lives

_STRONGEST = 5
_UNTOLD = "n/a"


@dataclass(frozen=True)
class FeatureEffect:
    """How one cluster differs in one feature; d is Cohen's, against random windows and against all other records."""

    name: str
    mean: float
    baseline_mean: float
    d_baseline: float
    complement_mean: float
    d_complement: float


@dataclass(frozen=True)
class Confound:
    """How evenly a cluster spreads over times, places, lives or agents (0 to 1), and "OK", "LOW" or "n/a"."""

    name: str
    evenness: float
    flag: str


@dataclass(frozen=True)
class ClusterSummary:
    """One cluster: its size, what it spans, its confounds and its effects in the order of the features."""

    label: int
    records: int
    share: float
    lives: int
    agents: int
    tick_median: float
    confounds: tuple[Confound, ...]
    effects: tuple[FeatureEffect, ...]

    @property
    def low(self) -> tuple[str, ...]:
        """The confounds that are flagged."""
        return tuple(confound.name for confound in self.confounds if confound.flag == "LOW")

    @property
    def strongest(self) -> tuple[FeatureEffect, ...]:
        """The effects largest in magnitude, strongest first."""
        return tuple(sorted(self.effects, key=lambda effect: -abs(effect.d_baseline))[:_STRONGEST])


@dataclass(frozen=True)
class Summary:
    """A whole analysis; shares are of the records kept."""

    policy: str
    agent: str
    layer: str
    records_in_dump: int
    subsample: int
    records: int
    lives: int
    agents: int
    components_explaining: dict[str, int]
    clustered_records: int
    coverage: float
    noise_records: int
    noise_share: float
    features: tuple[dict[str, str], ...]
    clusters: tuple[ClusterSummary, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready to be written as JSON; what is undefined or infinite becomes null."""
        return dict(_finite(asdict(self)))


def summarise(
    records: Records,
    metadata: DumpMetadata,
    lives: Lives,
    labels: np.ndarray,
    effects: EffectSizes,
    evenness: Evenness,
    *,
    layer: str,
    subsample: int,
    components: dict[float, int],
    features: Sequence[Feature] = FEATURES,
) -> Summary:
    """Gather an analysis: labels are (B,), the effects and the evenness have one row a cluster.

    The effects have a column for each of `features`.
    """
    noise = int((labels == NOISE).sum())
    clusters = range(labels.max() + 1)
    return Summary(
        policy=metadata.policy,
        agent=metadata.agent,
        layer=layer,
        records_in_dump=metadata.records,
        subsample=subsample,
        records=len(records),
        lives=len(lives),
        agents=len(np.unique(records.agent_id)),
        components_explaining={f"{share:.0%}": count for share, count in components.items()},
        clustered_records=len(records) - noise,
        coverage=1 - noise / len(records),
        noise_records=noise,
        noise_share=noise / len(records),
        features=tuple({"name": f.name, "unit": f.unit, "definition": f.definition} for f in features),
        clusters=tuple(
            _summarise_cluster(i, records, lives, labels == i, effects, evenness, features) for i in clusters
        ),
    )


def _summarise_cluster(
    label: int,
    records: Records,
    lives: Lives,
    member: np.ndarray,
    effects: EffectSizes,
    evenness: Evenness,
    features: Sequence[Feature],
) -> ClusterSummary:
    columns = zip(features, *(getattr(effects, name)[label].tolist() for name in _EFFECT_COLUMNS), strict=True)
    spreads = [(name, float(getattr(evenness, name)[label])) for name in CONFOUNDS]
    return ClusterSummary(
        label=label,
        records=int(member.sum()),
        share=float(member.mean()),
        lives=len(np.unique(lives.index[member])),
        agents=len(np.unique(records.agent_id[member])),
        tick_median=float(np.median(records.tick[member])),
        confounds=tuple(Confound(name, spread, _flag(spread)) for name, spread in spreads),
        effects=tuple(FeatureEffect(feature.name, *values) for feature, *values in columns),
    )


_EFFECT_COLUMNS = ("mean", "baseline_mean", "d_baseline", "complement_mean", "d_complement")


def _flag(spread: float) -> str:
    if math.isnan(spread):
        return _UNTOLD
    return "LOW" if spread < LOW else "OK"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(summary: Summary) -> str:
    """Return the summary as plain text for people."""
    blocks = _overview(summary), [""], _explanation(), [""], _clusters(summary), _definitions(summary), [""]
    return "\n".join(line for block in blocks for line in block)


def _overview(summary: Summary) -> list[str]:
    components = ", ".join(f"{count} for {share}" for share, count in summary.components_explaining.items())
    return [
        f"Policy {summary.policy} (agent {summary.agent}), layer {summary.layer}",
        f"Records: {summary.records:,} kept of {summary.records_in_dump:,} (every {summary.subsample} of each life), "
        f"{summary.lives:,} lives, {summary.agents:,} agent ids",
        f"Principal components that explain the activations' variance: {components}",
        f"Clusters: {len(summary.clusters)}, covering {summary.coverage:.1%} of the records kept "
        f"({summary.clustered_records:,})",
        f"Noise: {summary.noise_share:.1%} of the records kept ({summary.noise_records:,}) belong to no cluster",
    ]


def _explanation() -> list[str]:
    return [
        "d is Cohen's d: difference of means over the pooled standard deviation of records; first against random",
        "windows of lives with as many records, then (in brackets) against all records outside the cluster.",
        "Evenness compares a cluster's spread over ticks, map rows and columns, lives and agents with that of as many",
        f"random records: 1 is as even, below {LOW} is LOW: the cluster may mark a time, a place, a life or an agent.",
    ]


def _clusters(summary: Summary) -> list[str]:
    lines = [] if summary.clusters else ["No cluster was found: every record is noise.", ""]
    width = _name_width(summary)
    for cluster in summary.clusters:
        lines.append(
            f"Cluster {cluster.label}: {cluster.records:,} records ({cluster.share:.1%}), {cluster.lives:,} lives, "
            f"{cluster.agents:,} agent ids, median tick {cluster.tick_median:g}"
        )
        spreads = (f"{c.name} {format_number(c.evenness)} ({c.flag})" for c in cluster.confounds)
        lines.append("  evenness: " + ", ".join(spreads))
        for effect in cluster.strongest:
            lines.append(
                f"  {effect.name:<{width}} d = {format_number(effect.d_baseline, sign=True):>6} "
                f"({format_number(effect.d_complement, sign=True)})   mean {effect.mean:.2f}, "
                f"elsewhere {format_number(effect.complement_mean)}"
            )
        lines.append("")
    return lines


def _name_width(summary: Summary) -> int:
    return max(len(feature["name"]) for feature in summary.features)


def _definitions(summary: Summary) -> list[str]:
    width = _name_width(summary)
    return ["Features", *(f"  {f['name']:<{width}} {f['definition']} Unit: {f['unit']}." for f in summary.features)]


def format_number(value: float, sign: bool = False) -> str:
    """Write a number with two decimals; NaN, which stands for what cannot be told, as "n/a"."""
    if math.isnan(value):
        return _UNTOLD
    value = round(value, 2) + 0.0
    return f"{value:+.2f}" if sign else f"{value:.2f}"
