"""Single states: decompositions, outliers, clusters and a plane, with what they go with."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from activation_store.schema import DumpMetadata
from analysis.clusters.dataset import Dataset, read_dataset
from analysis.clusters.projection import tsne_embedding
from analysis.clusters.settings import AnalysisSettings
from analysis.dynamics.decompositions import (
    MOST_FITTED,
    TITLES,
    Decomposition,
    Kind,
    Scale,
    above_gaussians,
    decompose,
)
from analysis.dynamics.neighbours import (
    cluster_agreement,
    cluster_floor,
    explained_by,
    median_distance,
    outliers,
    plane_agreement,
    resampled_lives,
    ward_labels,
)
from analysis.dynamics.settings import MOST_PAIRED, DynamicsSettings
from analysis.dynamics.tracks import evenly
from analysis.features import Feature
from analysis.lives import Lives
from analysis.runs.run_folder import Parts
from analysis.statistics.circular_shift import ShiftedCorrelations, correlations_given_time
from analysis.statistics.effect_intervals import Differences, cluster_differences
from analysis.statistics.stability import gaussian_surrogate
from common.progress_view import Step

DIMENSIONS = 64
"""Principal components in which neighbours are looked for, at most, unless --components is more."""
_PERPLEXITY = 30.0
_TRUST_NEIGHBOURS = 15


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


def study_states(
    settings: DynamicsSettings, metadata: DumpMetadata, features: tuple[Feature, ...], parts: Parts, step: Step
) -> StudiedStates:
    """Read the states, decompose and cluster them, and test what components and clusters go with."""
    reading = AnalysisSettings(
        settings.dump, subsample=settings.subsample, skip_first=settings.skip_first, layer=settings.layer,
        features=settings.features, permutations=settings.permutations, seed=settings.seed,
    )  # fmt: skip
    data = read_dataset(reading, metadata, features, step)
    scale = Scale.of(data.activations)
    z = scale.z(data.activations)
    decompositions: dict[str, Decomposition] = {}
    associations: dict[str, ShiftedCorrelations] = {}
    for kind in TITLES:
        decompositions[kind] = _decomposed(kind, z, data.lives, settings, parts, step)
        associate = partial(
            correlations_given_time, decompositions[kind].scores(z), data.values, data.lives, data.records.tick,
            settings.permutations, settings.seed, data.records.episode,
        )  # fmt: skip
        with step(f"testing {kind} components against features"):
            associations[kind] = parts.data(f"{kind}-features", ShiftedCorrelations, associate)
    wide = decompose("pca", z, min(max(DIMENSIONS, settings.components), *z.shape), settings.seed, [])
    points = wide.scores(z) * np.linalg.norm(wide.patterns, axis=1)  # principal components, not whitened
    near = _neighbours(points, data, settings, parts, step)
    label = near["label"]
    with step(f"comparing {label.max() + 1} clusters"):
        differences = cluster_differences(
            data.values, label, data.lives, data.records.tick, data.records.episode, settings.inference
        )
    plane = _plane(points, data, settings, parts, step)
    return StudiedStates(
        data, scale, decompositions, associations, near["distance"], outliers(near["distance"]),
        float(near["outlier_agreement"]), float(near["outlier_floor"]), label, explained_by(label, points),
        near["agreement"], near["floor"], differences, plane["points"], plane["records"],
        float(plane["trustworthiness"]), float(plane["agreement"]), float(plane["floor"]),
    )  # fmt: skip


def _decomposed(
    kind: Kind, whole: np.ndarray, all_lives: Lives, settings: DynamicsSettings, parts: Parts, step: Step
) -> Decomposition:  # fmt: skip
    """Decompose z-scores, and compare the stability of components with Gaussians, all on the same records."""
    count = settings.components if kind == "pca" else min(settings.components, MOST_PAIRED)
    z, lives = fewer_records(whole, all_lives, MOST_FITTED.get(kind, len(whole)))
    of = f"{len(z):,}" + (f" of {len(whole):,}" if len(z) < len(whole) else "")
    with step(f"{count} {TITLES[kind]} components of {of} states") as progress:

        def compute() -> Decomposition:
            resamples = resampled_lives(lives.index, settings.bootstraps, settings.seed)
            return decompose(kind, z, count, settings.seed, resamples, progress)

        decomposition = parts.data(kind, Decomposition, compute)
    with step(f"{TITLES[kind]} components of Gaussians of the same covariance and autocorrelation") as progress:

        def compare() -> dict[str, np.ndarray]:
            floor, q = above_gaussians(decomposition, z, lives, settings.seed, progress)
            return {"floor": floor, "stability_q": q}

        stored = parts.arrays(f"{kind}-gaussians", compare)
    return replace(decomposition, floor=stored["floor"], stability_q=stored["stability_q"])


def fewer_records(z: np.ndarray, lives: Lives, most: int) -> tuple[np.ndarray, Lives]:
    """Leave out records evenly along lives, so that at most so many are left, with their lives."""
    if len(z) <= most:
        return z, lives
    kept = np.zeros(len(z), bool)
    kept[evenly(lives.order, most)] = True
    return z[kept], lives.of_records(kept)


def _neighbours(
    points: np.ndarray, data: Dataset, settings: DynamicsSettings, parts: Parts, step: Step
) -> dict[str, np.ndarray]:
    """Find neighbours, outliers and Ward clusters, and how well they are found again, also in a Gaussian."""
    half = np.random.default_rng([settings.seed, 4]).random(len(data.lives))[data.lives.index] < 0.5

    def again(of: np.ndarray, median: np.ndarray) -> np.ndarray:
        from scipy.stats import spearmanr

        return np.array(spearmanr(median[half], median_distance(of[half])).statistic)

    def compute() -> dict[str, np.ndarray]:
        distance, drawn = median_distance(points), _surrogate(points, data, settings)
        label = ward_labels(points, settings.clusters)
        few = resampled_lives(data.lives.index, min(settings.bootstraps, 5), settings.seed)
        return {
            "distance": distance,
            "outlier_agreement": again(points, distance),
            "outlier_floor": again(drawn, median_distance(drawn)),
            "label": label,
            "agreement": cluster_agreement(points, label, settings.clusters, few),
            "floor": cluster_floor(points, settings.clusters, data.lives, few, settings.seed),
        }

    with step(f"outliers and {settings.clusters} clusters on a graph of neighbours"):
        return parts.arrays("neighbours", compute)


def _plane(
    points: np.ndarray, data: Dataset, settings: DynamicsSettings, parts: Parts, step: Step
) -> dict[str, np.ndarray]:
    """Embed some records with t-SNE, once more in resampled lives, and compare the two; then the same of a Gaussian."""
    random = np.random.default_rng([settings.seed, 5])
    count = min(settings.tsne_records, len(points))
    chosen = np.sort(random.choice(len(points), count, replace=False))
    lives = np.unique(data.lives.index[chosen])
    drawn = np.unique(random.choice(lives, len(lives)))
    (both,) = np.isin(data.lives.index[chosen], drawn).nonzero()

    def embedded(of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        plane, again = (
            tsne_embedding(of[records].astype(np.float32), min(_PERPLEXITY, (len(records) - 1) / 3), seed)
            for records, seed in ((chosen, settings.seed), (chosen[both], settings.seed + 1))
        )
        return plane, np.array(plane_agreement(plane[both], again))

    def compute() -> dict[str, np.ndarray]:
        from sklearn.manifold import trustworthiness

        plane, agreement = embedded(points)
        return {
            "points": plane, "records": chosen,
            "trustworthiness": np.array(trustworthiness(points[chosen], plane, n_neighbors=_TRUST_NEIGHBOURS)),
            "agreement": agreement, "floor": embedded(_surrogate(points, data, settings))[1],
        }  # fmt: skip

    with step(f"t-SNE of {count:,} states, twice, and of a Gaussian's"):
        return parts.arrays("plane", compute)


def _surrogate(points: np.ndarray, data: Dataset, settings: DynamicsSettings) -> np.ndarray:
    return gaussian_surrogate(points, data.lives, np.random.default_rng([settings.seed, 8]))
