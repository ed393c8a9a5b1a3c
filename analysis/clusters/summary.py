"""What an analysis found, as data: what summary.json holds, and what the text, the figures and the pages are made of.

Numbers that are not defined are NaN here and null in the file; beside them stands the reason, in words.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from analysis.statistics.cluster_validity import Validity
from analysis.statistics.confounds import Confound
from analysis.statistics.persistence import Persistence

STRONGEST = 5
SAME_CLUSTER = 0.5
"""Jaccard index of two clusters below which one has dissolved rather than become the other (Hennig 2007)."""

UNDEFINED = "n/a"
"""How text and figures write a number that is not defined."""


@dataclass(frozen=True)
class FeatureEffect:
    """How one cluster differs in one feature. d is Cohen's; ends of intervals are NaN where there is no interval.

    Attributes:
        name: of the feature.
        mean: of the cluster's records.
        baseline_mean: of random windows of lives.
        d_baseline: against those windows, with its interval.
        complement_mean: of all records outside the cluster.
        d_complement: against those, with its interval.
        p: of the test by circular shifts within lives, two-sided; NaN where it cannot be tested.
        q: p after the correction for all clusters and features (false discovery rate).
        informative_lives: lives in which a shift could have changed the outcome.
        untested: why p is NaN, else "".
        episodes: episodes that have records on both sides.
        episodes_agreeing: those of them whose own difference of means has the sign of `d_complement`.
        survives: q is at most the level, the interval of `d_complement` leaves out 0, and both point the same way.
        p_given_time: of the same test with tick and age held constant; NaN where `survives` is false, or tick and age
            leave too little to test.
        q_given_time: the larger of both p-values after the correction for all clusters and features.
        survives_given_time: it survives, and does so with tick and age held constant, pointing the same way.
    """

    name: str
    mean: float
    baseline_mean: float
    d_baseline: float
    d_baseline_low: float
    d_baseline_high: float
    complement_mean: float
    d_complement: float
    d_complement_low: float
    d_complement_high: float
    p: float
    q: float
    informative_lives: int
    untested: str
    episodes: int
    episodes_agreeing: int
    survives: bool
    p_given_time: float
    q_given_time: float
    survives_given_time: bool


@dataclass(frozen=True)
class Stability:
    """Agreement with the run's labels, as adjusted Rand indices: 1 is the same, 0 is chance; noise counts as one group.

    Attributes:
        over_seeds: a sample of whole lives embedded and clustered with other seeds, one entry a seed.
        seed_records: records of that sample.
        over_embeddings: lives drawn with replacement, embedded and clustered anew, one entry a draw.
        over_bootstraps: the run's embedding clustered anew on lives drawn with replacement, one entry a draw.
        reason: why there are none, else "".
    """

    over_seeds: tuple[float, ...]
    seed_records: int
    over_embeddings: tuple[float, ...]
    over_bootstraps: tuple[float, ...]
    reason: str


@dataclass(frozen=True)
class ClusterSummary:
    """One cluster: its size, what it spans, what it is about, its confounds and its effects in order of the features.

    Attributes:
        label: its number, from 0, largest first.
        records: in it.
        share: of the records kept.
        lives: it has records of.
        agents: ids it has records of.
        tick_median: of its records.
        description: what it is about, from its surviving effects, such as "more in_combat, less self_food".
        persistence: of this cluster.
        jaccard: mean overlap with the most similar cluster of each bootstrap (Hennig 2007); NaN where not measured.
        dbcv: of this cluster, -1 to 1; NaN where not measured.
        detectable_d: |d| against the complement that such a dump would show with a power of 80%, the median over
            features; NaN where there are no intervals.
        confounds: of this cluster.
        effects: of this cluster.
    """

    label: int
    records: int
    share: float
    lives: int
    agents: int
    tick_median: float
    description: str
    persistence: Persistence
    jaccard: float
    dbcv: float
    detectable_d: float
    confounds: tuple[Confound, ...]
    effects: tuple[FeatureEffect, ...]

    @property
    def flagged(self) -> tuple[str, ...]:
        """The confounds that are flagged."""
        return tuple(confound.name for confound in self.confounds if confound.flagged)

    @property
    def surviving_given_time(self) -> tuple[FeatureEffect, ...]:
        """The effects that survive with tick and age held constant, strongest first."""
        return tuple(effect for effect in self.surviving if effect.survives_given_time)

    @property
    def strongest(self) -> tuple[FeatureEffect, ...]:
        """The effects largest in magnitude, strongest first."""
        return tuple(sorted(self.effects, key=_magnitude)[:STRONGEST])

    @property
    def surviving(self) -> tuple[FeatureEffect, ...]:
        """The effects that survive correction, strongest first."""
        return tuple(sorted((effect for effect in self.effects if effect.survives), key=_magnitude))


def _magnitude(effect: FeatureEffect) -> float:
    """Return what sorts effects, largest first; a cluster of everything has nothing but windows to be held against."""
    return -abs(effect.d_baseline if math.isnan(effect.d_complement) else effect.d_complement)


@dataclass(frozen=True)
class Claim:
    """One surviving effect of the plain analysis, looked for again once variables are regressed out.

    Attributes:
        cluster: of the plain analysis.
        feature: that it differs in.
        d: the plain effect against the complement.
        match: cluster of the repeated analysis with the largest overlap; -1 where it has none.
        overlap: Jaccard index of the two clusters, 0 to 1.
        d_after: the match's effect against its complement; NaN without a match.
        survives: the overlap is at least `SAME_CLUSTER`, and the match has the effect too, with the same sign, and it
            survives there.
    """

    cluster: int
    feature: str
    d: float
    match: int
    overlap: float
    d_after: float
    survives: bool


@dataclass(frozen=True)
class Residualized:
    """The analysis repeated on activations from which variables were regressed out.

    Attributes:
        variables: their names.
        variance_removed: share of the activations' variance that went with them, 0 to 1; categories of few lives each
            take some by chance.
        clusters: found in what is left.
        noise_share: of the records kept.
        adjusted_rand: agreement of the labels with the plain ones.
        overall_confounds: of the new clusters.
        claims: the plain analysis' surviving effects, each looked for again.
        clusters_found: the new clusters with all their statistics.
    """

    variables: tuple[str, ...]
    variance_removed: float
    clusters: int
    noise_share: float
    adjusted_rand: float
    overall_confounds: tuple[Confound, ...]
    claims: tuple[Claim, ...]
    clusters_found: tuple[ClusterSummary, ...]


@dataclass(frozen=True)
class Method:
    """How the numbers were made.

    Attributes:
        permutations: of each test.
        bootstraps: of each interval.
        confidence: of each interval, between 0 and 1.
        level: false discovery rate at which an effect or a confound counts.
        unit: what intervals resample, "life" or "episode".
        units: how many there are.
        episodes_shifted: whether differences also had to pass the test that shifts all lives of an episode together.
    """

    permutations: int
    bootstraps: int
    confidence: float
    level: float
    unit: str
    units: int
    episodes_shifted: bool


@dataclass(frozen=True)
class Summary:
    """A whole analysis; shares are of the records kept.

    Attributes:
        subsample: one record in this many of each life was kept.
        skip_first: records at the start of each life that were left out.
        verdict: sentences that say how many clusters, how stable, what each is about, which claims survive, which
            confounds are flagged.
        tested: pairs of cluster and feature that could be tested.
        untested: pairs that could not.
        surviving: effects that survive correction.
        surviving_given_time: effects that survive with tick and age held constant too.
        confounds: of all clusters together.
        persistence: of all clusters together.
        residualized: None unless it was asked for.
    """

    policy: str
    agent: str
    layer: str
    records_in_dump: int
    subsample: int
    skip_first: int
    records: int
    lives: int
    agents: int
    episodes: int
    components_explaining: dict[str, int]
    clustered_records: int
    coverage: float
    noise_records: int
    noise_share: float
    verdict: tuple[str, ...]
    method: Method
    tested: int
    untested: int
    surviving: int
    surviving_given_time: int
    confounds: tuple[Confound, ...]
    stability: Stability
    validity: Validity
    persistence: Persistence
    features: tuple[dict[str, str], ...]
    clusters: tuple[ClusterSummary, ...]
    residualized: Residualized | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready to be written as JSON; what is undefined or infinite becomes null."""
        return dict(_finite(asdict(self)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_number(value: float, sign: bool = False) -> str:
    """Write a number with two decimals; NaN, which stands for what cannot be told, as "n/a"."""
    if math.isnan(value):
        return UNDEFINED
    value = round(value, 2) + 0.0
    return f"{value:+.2f}" if sign else f"{value:.2f}"
