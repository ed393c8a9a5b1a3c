"""A semantic run: codes in place of density clusters, with the same statistics, figures and files as an analysis."""

from dataclasses import replace
from functools import partial

import numpy as np

from activation_store.layers import SEMANTIC_PLANE
from activation_store.reader import Progress, read_dump
from activation_store.schema import DumpMetadata
from activation_store.selection import OBSERVATIONS
from analysis.clusters import outputs
from analysis.clusters.components import principal_components
from analysis.clusters.dataset import Dataset, read_dataset
from analysis.clusters.projection import Clustering, Projection
from analysis.clusters.summarise import cluster_statistics, summarise
from analysis.clusters.summary import CodeUse, Summary
from analysis.codes.fit import fit_codebook
from analysis.codes.options import FitSettings
from analysis.codes.partitions import perplexity
from analysis.features import Feature
from analysis.labels import NOISE, largest_first
from analysis.lives import Lives
from analysis.runs.codebook_rule import CODEBOOK_FILE, CodebookRule
from analysis.runs.run_folder import RunFolder
from analysis.statistics.stability import (
    ClusterMethod,
    Stability,
    StabilityFloor,
    projection_stability,
    stability_floor,
)
from common.progress_view import Step
from common.user_error import UserError

AXES = ("plane 1", "plane 2")
PLANE_FILE = "plane.npy"
_STEPS_ANEW, _STATES_ANEW = 600, 256
"""Size of the fits that measure stability: six of them are made."""
_NO_TREE = np.zeros(0)


def run_fit(
    settings: FitSettings, metadata: DumpMetadata, features: tuple[Feature, ...], folder: RunFolder, step: Step
) -> Summary:
    """Read a dump, find its codes, compare and draw them; everything is written to the run's folder.

    Raises:
        UserError: as `read_dataset`, or too few states are left.
    """
    data = read_dataset(settings.analysis, metadata, features, step)
    settings.check_enough(len(data))
    found = _recorded if settings.recorded else _fitted
    clustering, rule, use, method, stability = found(settings, data, step)
    plane, labels = clustering.points, clustering.labels
    run = outputs.Run(settings.analysis, data, principal_components(data.activations), folder, step)
    outputs.save_features(run)
    projection = Projection("semantic", plane[:, :2], AXES)
    outputs.save_labels(run, projection, clustering)
    folder.save_array(PLANE_FILE, plane)
    folder.save_arrays(CODEBOOK_FILE, **rule.arrays())
    with step("comparing codes"):
        statistics = cluster_statistics(data, plane, labels, method, settings.analysis.inference)
    summary = summarise(
        data, labels, statistics, stability, subsample=settings.thinning, components=run.components.needed_for(),
        codes=use, blindness=outputs.measure_blindness(run, "codes", labels),
    )  # fmt: skip
    outputs.draw_clusters(run, projection, clustering, summary)
    outputs.save_directions(run, clustering)
    outputs.write_summary(run, summary, None)
    return summary


_Codes = tuple[Clustering, CodebookRule, CodeUse, ClusterMethod, Stability]
"""Records' places in the plane, clustered by their codes; the codebook and its use; the method that finds codes anew,
and how well they agree with those of other seeds and other lives."""


def _fitted(settings: FitSettings, data: Dataset, step: Step) -> _Codes:
    """Fit a plane and a codebook to a dataset, and measure how stable the codes are."""
    with step(f"fitting {settings.codes} codes to {len(data):,} states") as report:
        rule, use = _fit(settings, data.activations, data.lives, data.records.tick, settings.seed, report)
    codes = Clustering(rule.plane(data.activations), rule.labels_of(data.activations), _NO_TREE)
    method = method_of(settings)
    with step("fitting with other seeds and other lives"):
        stability = projection_stability(data.activations, codes.labels, data.lives, method, settings.seed)
    with step("fitting to a Gaussian of the same covariance and autocorrelation"):
        floor = stability_floor(data.activations, data.lives, method, settings.seed)
    return codes, rule, use, method, replace(stability, gaussian=floor)


def _fit(
    settings: FitSettings, activations: np.ndarray, lives: Lives, tick: np.ndarray, seed: int,
    report: Progress = lambda share: None,
) -> tuple[CodebookRule, CodeUse]:  # fmt: skip
    return fit_codebook(
        activations, lives, tick, seed, report, codes=settings.codes, steps=settings.steps, states=settings.states,
        plane_dimensions=settings.plane_dimensions, pairwise_weight=settings.pairwise_weight, beta=settings.beta,
    )  # fmt: skip


def method_of(settings: FitSettings) -> ClusterMethod:
    """Return the fit as a method that can be applied to other records, in small."""
    small = replace(settings, steps=min(settings.steps, _STEPS_ANEW), states=min(settings.states, _STATES_ANEW))
    return ClusterMethod(
        embed=partial(_plane_anew, settings=small), hdbscan=partial(codes_in_plane, codes=settings.codes),
        min_cluster_size=2,
    )  # fmt: skip


def _plane_anew(
    activations: np.ndarray, settings: FitSettings, seed: int, run_records: int | None = None
) -> np.ndarray:
    """Fit to other records, each taken as a life of its own: those kept are far apart already."""
    count = len(activations)
    alone = Lives(np.arange(count), np.arange(count), np.arange(count), np.ones(count, np.int64))
    return _fit(settings, activations, alone, np.zeros(count, np.int64), seed)[0].plane(activations)


def codes_in_plane(points: np.ndarray, codes: int, min_cluster_size: int) -> np.ndarray:
    """Quantise a plane anew: labels (B,) of K-means, whose loss is that of the codebook, largest first."""
    from sklearn.cluster import KMeans

    number = min(codes, len(np.unique(points, axis=0)))
    return largest_first(KMeans(number, n_init=4, random_state=0).fit_predict(points.astype(np.float64)))


def _recorded(settings: FitSettings, data: Dataset, step: Step) -> _Codes:
    """Take the plane and the codes that the policy learnt itself, which cannot be fitted anew.

    Raises:
        UserError: the layer does not hold codes.
    """
    with step("reading the policy's own plane") as report:
        plane = read_dump(
            settings.dump, subsample=settings.thinning, layers=[SEMANTIC_PLANE], columns=[],
            leave_out=[*OBSERVATIONS, "tables"], progress=report,
        ).activations[SEMANTIC_PLANE]  # fmt: skip
    one_hot = data.activations  # (B, codes)
    if not ((one_hot == 1).sum(axis=1) == 1).all() or not ((one_hot == 0) | (one_hot == 1)).all():
        raise UserError(
            f"{settings.dump} holds a layer {data.layer} that is no code: one unit of it must be 1, others 0"
        )
    number = one_hot.argmax(axis=1)
    labels = largest_first(number)
    size, used = one_hot.shape[1], int(labels.max()) + 1
    label_of = np.full(size, NOISE)
    label_of[number] = labels
    identity = np.eye(size, dtype=np.float32)
    numbers = tuple(int(np.flatnonzero(label_of == label)[0]) for label in range(used))
    use = CodeUse(size, used, perplexity(labels, np.ones(len(labels))), True, numbers, np.nan, np.nan)
    rule = CodebookRule(identity, np.zeros(size, np.float32), identity, label_of)
    method = ClusterMethod(lambda points, **_: points, partial(codes_in_plane, codes=used), 2, seeded=False)
    reason, floor = "the policy learnt the codes itself, so they cannot be fitted anew", StabilityFloor()
    if used > 1:
        drawn = stability_floor(plane, data.lives, method, settings.seed).over_bootstraps
        floor = StabilityFloor(over_bootstraps=drawn)
    stability = Stability((), len(data), (), reason=reason, gaussian=floor)
    return Clustering(plane, labels, _NO_TREE), rule, use, method, stability
