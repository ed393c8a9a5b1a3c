"""The results of an analysis as data: the content of summary.json and the source of the text, figures and pages.

Undefined numbers are NaN here and null in the file; a neighbouring field gives the reason in words.
"""

import math
from dataclasses import dataclass
from typing import Any

from analysis.clusters.blindness import Blindness
from analysis.runs.run_folder import plain
from analysis.statistics.association import Association
from analysis.statistics.cluster_validity import Persistence, Validity
from analysis.statistics.confounds import Confound
from analysis.statistics.stability import Stability
from common.number_text import share_text

STRONGEST = 5
SAME_CLUSTER = 0.5
"""Jaccard index of two clusters below which a cluster counts as dissolved, not as found again (Hennig 2007)."""


@dataclass(frozen=True)
class FeatureEffect:
    """How one cluster differs in one feature. d is Cohen's d; ends of intervals are NaN if there is no interval.

    Attributes:
        d_baseline: against random windows of lives, whose mean is `baseline_mean`, with its interval.
        difference_low: end of the interval of the difference of both means, in the feature's unit.
        d_complement: against all records outside the cluster, with its interval.
        p: of the test by circular shifts within lives, two-sided; NaN if it cannot be tested.
        q: p corrected for all clusters and features (false discovery rate).
        informative_lives: lives in which a shift could have changed the outcome.
        episodes: episodes with records both inside and outside the cluster.
        episodes_agreeing: those of them whose own difference of means has the sign of `d_complement`.
        survives: q is at most the level, the interval of `d_complement` excludes 0, and both have the same sign.
        p_given_time: of the same test with tick and age held constant; NaN if `survives` is false, or tick and age
            leave too little to test.
        q_given_time: the larger of both p-values, corrected for all clusters and features.
        survives_given_time: whether it survives both tests, with the same sign.
        choice: the categorical feature that it is an option of; "" for a feature of its own.
        phrase: what holds in records with this option, such as "moves west"; "" for a feature of its own.
    """

    name: str
    mean: float
    baseline_mean: float
    d_baseline: float
    d_baseline_low: float
    d_baseline_high: float
    overall_mean: float
    complement_mean: float
    difference_low: float
    difference_high: float
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
    choice: str = ""
    phrase: str = ""

    @property
    def in_words(self) -> str:
        """What holds for an option of a choice, such as "moves west in 67% (22% overall)"; else the feature's name."""
        if not self.choice:
            return self.name
        return f"{self.phrase} in {share_text(self.mean)} ({share_text(self.overall_mean)} overall)"


@dataclass(frozen=True)
class ClusterSummary:
    """One cluster: its size, extent, description, confounds, and effects in order of the features.

    Attributes:
        label: its number, from 0, largest first.
        description: its surviving effects in words, such as "more in_combat, less self_food".
        jaccard: mean overlap with the most similar cluster of each bootstrap (Hennig 2007); NaN if not measured.
        dbcv: of this cluster, -1 to 1; NaN if not measured.
        detectable_d: |d| against the complement that a dump of this size would detect with 80% power, the median over
            features; NaN if there are no intervals.
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
        """The effects of largest magnitude, strongest first."""
        return tuple(sorted(self.effects, key=_magnitude)[:STRONGEST])

    @property
    def surviving(self) -> tuple[FeatureEffect, ...]:
        """The effects that survive correction, strongest first."""
        return tuple(sorted((effect for effect in self.effects if effect.survives), key=_magnitude))


def _magnitude(effect: FeatureEffect) -> float:
    """Return the sort key of effects; a cluster of all records can only be compared with windows."""
    return -abs(effect.d_baseline if math.isnan(effect.d_complement) else effect.d_complement)


@dataclass(frozen=True)
class Claim:
    """One surviving effect of the original analysis, tested again after variables were regressed out.

    Attributes:
        d: the original effect against the complement.
        match: cluster of the repeated analysis with the largest overlap; -1 if there is none.
        overlap: Jaccard index of the two clusters, 0 to 1.
        d_after: the match's effect against its complement; NaN without a match.
        survives: whether the overlap is at least `SAME_CLUSTER`, and the match's effect has the same sign and survives.
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
        variance_removed: share of the activations' variance that was removed, 0 to 1; categories of few lives each
            remove some by chance.
        adjusted_rand: agreement of the labels with the original ones.
        claims: the original analysis' surviving effects, each tested again.
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
    """How the numbers were computed.

    Attributes:
        level: false discovery rate at which an effect or a confound is significant.
        unit: what intervals resample, "life" or "episode".
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
class CodeUse:
    """The codebook of a semantic run.

    Attributes:
        asked: number of codes in the codebook.
        perplexity: number of codes in use, weighted by their shares: 1 if all records have one code.
        recorded: whether the policy learnt it itself.
        numbers: of the code of each cluster, in the codebook.
        pairwise: loss of the plane at the end of the fit; NaN if recorded.
        quantisation: loss of the codebook at the end of the fit; NaN if recorded.
    """

    asked: int
    used: int
    perplexity: float
    recorded: bool
    numbers: tuple[int, ...]
    pairwise: float
    quantisation: float


@dataclass(frozen=True)
class Summary:
    """A whole analysis; shares are of the records kept.

    Attributes:
        subsample: one in this many records of each life was kept.
        skip_first: records at the start of each life that were left out.
        verdict: sentences on the number and stability of clusters, what each is about, which claims survive, and which
            confounds are flagged.
        choices: how each categorical feature goes with all clusters together.
        blindness: how much of what clusters tell the listed features cover; None if not measured.
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
    choices: tuple[Association, ...] = ()
    residualized: Residualized | None = None
    codes: CodeUse | None = None
    blindness: Blindness | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; undefined and infinite values become null."""
        return dict(plain(self))
