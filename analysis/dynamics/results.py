"""What an analysis of dynamics finds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.clusters.dataset import Dataset
from analysis.dynamics.behaviours import BehaviourPair, Behaviours, BehaviourSpace
from analysis.dynamics.decompositions import Decomposition, Scale
from analysis.dynamics.jacobians import Agreement, LaggedCorrelations, SlowMode
from analysis.dynamics.tracks import Tracks
from analysis.features.feature import Feature
from analysis.statistics.circular_shift import ShiftedCorrelations
from analysis.statistics.effect_intervals import Differences
from analysis.statistics.inference import LEVEL

FEATURES_NAMED = 3


@dataclass(frozen=True, eq=False)
class StudiedStates:
    """What single states show. B records."""

    data: Dataset
    scale: Scale
    decompositions: dict[str, Decomposition]
    associations: dict[str, ShiftedCorrelations]  # of the components of each kind with the features, (K, F) each
    distance: np.ndarray  # median distance to the nearest neighbours, (B,), in z-scores of principal components
    outlier: np.ndarray  # (B,) bool
    outlier_agreement: float  # rank correlation of these distances with those to neighbours of half of the lives
    outlier_floor: float  # the same number of a Gaussian surrogate of the states
    label: np.ndarray  # Ward cluster of each record, (B,)
    explained: float  # share of the variance that lies between clusters
    agreement: np.ndarray  # adjusted Rand index with the clusters of each bootstrap of lives, (R,)
    agreement_floor: np.ndarray  # the same numbers of a Gaussian surrogate of the states, (R,)
    differences: Differences
    plane: np.ndarray  # t-SNE of some records, (n, 2)
    plane_records: np.ndarray  # these records, (n,)
    trustworthiness: float  # of the plane, 0 to 1 (Venna and Kaski 2001)
    plane_agreement: float  # share of neighbours in the plane that a second fit, to resampled lives, keeps
    plane_floor: float  # the same number of a Gaussian surrogate of the states


@dataclass(frozen=True, eq=False)
class Motion:
    """What consecutive states show. N records of whole lives."""

    tracks: Tracks
    scores: np.ndarray  # independent components of their states, (N, K)
    space: BehaviourSpace  # of the states whose trajectories are behaviours
    behaviours: Behaviours
    # pairs: how far behaviours of several layers agree with those of each alone; empty for those of one layer
    pairs: list[BehaviourPair]
    differences: Differences
    correlations: LaggedCorrelations  # of components, by behaviour and lag


@dataclass(frozen=True, eq=False)
class Effects:
    """What the policy's own update says of its memory."""

    jacobian_records: np.ndarray  # where Jacobians were computed, (n,)
    jacobians: np.ndarray  # of the components at each of them, (n, L, K, K)
    agreement: list[Agreement]
    eigenvalues: np.ndarray  # of the one-tick Jacobian of the whole memory at some records, (m, S)
    modes: list[SlowMode]  # slowest ones of the layer's mean Jacobian
    mode_associations: ShiftedCorrelations  # with the features, (modes, F)


def strongest(correlations: ShiftedCorrelations, component: int, names: tuple[str, ...]) -> str:
    """Name the features that go with a component at q below 0.05, strongest first, such as `self_food +0.62`."""
    r, q = correlations.r[component], correlations.q[component]
    order = np.argsort(-np.nan_to_num(np.abs(r), nan=-1.0), kind="stable")
    sure = [i for i in order if np.isfinite(r[i]) and q[i] < LEVEL][:FEATURES_NAMED]
    return ", ".join(f"{names[i]} {r[i]:+.2f}" for i in sure) or "none"


def distinctive(differences: Differences, cluster: int, features: Sequence[Feature]) -> str:
    """Name what sets a cluster apart given tick and age, strongest first.

    For example `more self_food (d +0.8), moves west in 56% (19% elsewhere)`.
    """
    d, sure = differences.effects.d_complement[cluster], differences.survives_given_time[cluster]
    inside, elsewhere = differences.effects.mean[cluster], differences.effects.complement_mean[cluster]
    order = [i for i in np.argsort(-np.nan_to_num(np.abs(d), nan=-1.0), kind="stable") if sure[i]][:FEATURES_NAMED]
    named = (
        f"{features[i].phrase} in {inside[i]:.0%} ({elsewhere[i]:.0%} elsewhere)"
        if features[i].choice
        else f"{'more' if d[i] > 0 else 'less'} {features[i].name} (d {d[i]:+.1f})"
        for i in order
    )
    return ", ".join(named) or "nothing that survives"
