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
    """How one cluster differs in one feature. d is Cohen's d; ends of intervals are NaN if there is no interval."""

    name: str
    mean: float
    baseline_mean: float
    d_baseline: float  # against random windows of lives, whose mean is `baseline_mean`, with its interval
    d_baseline_low: float
    d_baseline_high: float
    overall_mean: float
    complement_mean: float
    difference_low: float  # end of the interval of the difference of both means, in the feature's unit
    difference_high: float
    d_complement: float  # against all records outside the cluster, with its interval
    d_complement_low: float
    d_complement_high: float
    p: float  # of the test by circular shifts within lives, two-sided; NaN if it cannot be tested
    q: float  # p corrected for all clusters and features (false discovery rate)
    informative_lives: int  # lives in which a shift could have changed the outcome
    untested: str
    episodes: int  # episodes with records both inside and outside the cluster
    episodes_agreeing: int  # those of them whose own difference of means has the sign of `d_complement`
    survives: bool  # q is at most the level, the interval of `d_complement` excludes 0, and both have the same sign
    p_given_time: float
    """Of the same test with tick and age held constant; NaN if `survives` is false, or tick and age leave too little to
    test."""
    q_given_time: float  # the larger of both p-values, corrected for all clusters and features
    survives_given_time: bool  # whether it survives both tests, with the same sign
    choice: str = ""  # the categorical feature that it is an option of; "" for a feature of its own
    phrase: str = ""  # what holds in records with this option, such as "moves west"; "" for a feature of its own

    @property
    def in_words(self) -> str:
        """What holds for an option of a choice, such as "moves west in 67% (22% overall)"; else the feature's name."""
        if not self.choice:
            return self.name
        return f"{self.phrase} in {share_text(self.mean)} ({share_text(self.overall_mean)} overall)"


@dataclass(frozen=True)
class ClusterSummary:
    """One cluster: its size, extent, description, confounds, and effects in order of the features."""

    label: int  # its number, from 0, largest first
    records: int
    share: float
    lives: int
    agents: int
    tick_median: float
    description: str  # its surviving effects in words, such as "more in_combat, less self_food"
    persistence: Persistence
    jaccard: float  # mean overlap with the most similar cluster of each bootstrap (Hennig 2007); NaN if not measured
    dbcv: float  # of this cluster, -1 to 1; NaN if not measured
    detectable_d: float
    """|d| against the complement that a dump of this size would detect with 80% power, the median over features; NaN if
    there are no intervals."""
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
    """One surviving effect of the original analysis, tested again after variables were regressed out."""

    cluster: int
    feature: str
    d: float  # the original effect against the complement
    match: int  # cluster of the repeated analysis with the largest overlap; -1 if there is none
    overlap: float  # Jaccard index of the two clusters, 0 to 1
    d_after: float  # the match's effect against its complement; NaN without a match
    survives: bool
    """Whether the overlap is at least `SAME_CLUSTER`, and the match's effect has the same sign and survives."""


@dataclass(frozen=True)
class Residualized:
    """The analysis repeated on activations from which variables were regressed out."""

    variables: tuple[str, ...]
    variance_removed: float
    """Share of the activations' variance that was removed, 0 to 1; categories of few lives each remove some by
    chance."""
    clusters: int
    noise_share: float
    adjusted_rand: float  # agreement of the labels with the original ones
    overall_confounds: tuple[Confound, ...]
    claims: tuple[Claim, ...]  # the original analysis' surviving effects, each tested again
    clusters_found: tuple[ClusterSummary, ...]


@dataclass(frozen=True)
class Method:
    """How the numbers were computed."""

    permutations: int
    bootstraps: int
    confidence: float
    level: float  # false discovery rate at which an effect or a confound is significant
    unit: str  # what intervals resample, "life" or "episode"
    units: int
    episodes_shifted: bool  # whether differences also had to pass the test that shifts all lives of an episode together


@dataclass(frozen=True)
class CodeUse:
    """The codebook of a semantic run."""

    asked: int  # number of codes in the codebook
    used: int
    perplexity: float  # number of codes in use, weighted by their shares: 1 if all records have one code
    recorded: bool  # whether the policy learnt it itself
    numbers: tuple[int, ...]  # of the code of each cluster, in the codebook
    pairwise: float  # loss of the plane at the end of the fit; NaN if recorded
    quantisation: float  # loss of the codebook at the end of the fit; NaN if recorded


@dataclass(frozen=True)
class Summary:
    """A whole analysis; shares are of the records kept."""

    policy: str
    agent: str
    layer: str
    records_in_dump: int
    subsample: int  # one in this many records of each life was kept
    skip_first: int  # records at the start of each life that were left out
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
    """Sentences on the number and stability of clusters, what each is about, which claims survive, and which confounds
    are flagged."""
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
    choices: tuple[Association, ...] = ()  # how each categorical feature goes with all clusters together
    residualized: Residualized | None = None
    codes: CodeUse | None = None
    blindness: Blindness | None = None  # how much of what clusters tell the listed features cover; None if not measured

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; undefined and infinite values become null."""
        return dict(plain(self))
