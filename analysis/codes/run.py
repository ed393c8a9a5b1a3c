"""A semantic run: codes in place of density clusters, with the same statistics, figures and files as an analysis."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from activation_store.layers import SEMANTIC_PLANE
from activation_store.reader import read_dump
from activation_store.schema import DumpMetadata
from activation_store.selection import OBSERVATIONS
from analysis.clusters.components import principal_components
from analysis.clusters.dataset import Dataset, read_dataset
from analysis.clusters.projection import Clustering, Projection
from analysis.clusters.report import outputs
from analysis.clusters.summarise import cluster_statistics, summarise
from analysis.clusters.summary import CodeUse, Summary
from analysis.codes.fit import FitOptions, fit_codebook
from analysis.codes.options import FitSettings
from analysis.features import Feature
from analysis.labels import NOISE, largest_first
from analysis.lives import Lives
from analysis.runs.codebook_rule import CODEBOOK_FILE, CodebookRule
from analysis.runs.run_folder import RunFolder
from analysis.statistics.stability import (
    ClusterMethod,
    ProjectionStability,
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


@dataclass(frozen=True, eq=False)
class Codes:
    """Codes of B records.

    Attributes:
        plane: their places, (B, dimensions) float32.
        labels: clusters from 0, largest first, (B,) int64.
        rule: labels any other record.
        stability: with other seeds and other lives.
        method: finds the codes in the plane anew.
    """

    plane: np.ndarray
    labels: np.ndarray
    rule: CodebookRule
    use: CodeUse
    stability: ProjectionStability
    method: ClusterMethod


def run_fit(
    settings: FitSettings, metadata: DumpMetadata, features: tuple[Feature, ...], folder: RunFolder, step: Step
) -> Summary:
    """Read a dump, find its codes, compare and draw them; everything is written to the run's folder.

    Raises:
        UserError: as `read_dataset`, or too few states are left.
    """
    data = read_dataset(settings.analysis, metadata, features, step)
    settings.check_enough(len(data))
    codes = recorded_codes(settings, data, step) if settings.recorded else fitted_codes(settings, data, step)
    run = outputs.Run(settings.analysis, data, principal_components(data.activations), folder, step)
    outputs.save_features(run)
    clustering = Clustering(codes.plane, codes.labels, np.zeros(0))
    projection = Projection("semantic", codes.plane[:, :2], AXES)
    outputs.save_labels(run, projection, clustering)
    folder.save_array(PLANE_FILE, codes.plane)
    folder.save_arrays(CODEBOOK_FILE, **codes.rule.arrays())
    with step("comparing codes"):
        statistics = cluster_statistics(data, codes.plane, codes.labels, codes.method, settings.analysis.inference)
    summary = summarise(
        data, codes.labels, statistics, codes.stability, subsample=settings.thinning,
        components=run.components.needed_for(), codes=codes.use,
        blindness=outputs.measure_blindness(run, "codes", codes.labels),
    )  # fmt: skip
    outputs.draw_clusters(run, projection, clustering, summary)
    outputs.save_directions(run, clustering)
    outputs.write_summary(run, summary, None)
    outputs.write_report(run)
    return summary


def options_of(settings: FitSettings) -> FitOptions:
    """Return how the settings fit a codebook."""
    return FitOptions(
        settings.codes, settings.plane_dimensions, settings.steps, settings.states, settings.pairwise_weight,
        settings.beta,
    )  # fmt: skip


def fitted_codes(settings: FitSettings, data: Dataset, step: Step) -> Codes:
    """Fit a plane and a codebook to a dataset."""
    options, tick = options_of(settings), data.records.tick
    with step(f"fitting {settings.codes} codes to {len(data):,} states") as report:
        book = fit_codebook(data.activations, data.lives, tick, options, settings.seed, report)
    method = method_of(options)
    with step("fitting with other seeds and other lives"):
        stability = projection_stability(
            data.activations, labels := book.labels_of(data.activations), data.lives, method, settings.seed
        )
    with step("fitting to a Gaussian of the same covariance and autocorrelation"):
        stability = replace(stability, floor=stability_floor(data.activations, data.lives, method, settings.seed))
    used = len(book.places)
    use = CodeUse(book.requested, used, book.perplexity, False, tuple(range(used)), book.pairwise, book.quantisation)
    return Codes(book.plane(data.activations), labels, book, use, stability, method)


def method_of(options: FitOptions) -> ClusterMethod:
    """Return the fit as a method that can be applied to other records, in small."""
    small = replace(options, steps=min(options.steps, _STEPS_ANEW), states=min(options.states, _STATES_ANEW))
    return ClusterMethod(
        embed=partial(_plane_anew, options=small), hdbscan=partial(codes_in_plane, codes=options.codes),
        min_cluster_size=2,
    )  # fmt: skip


def _plane_anew(activations: np.ndarray, options: FitOptions, seed: int, run_records: int | None = None) -> np.ndarray:
    """Fit to other records, each taken as a life of its own: those kept are far apart already."""
    count = len(activations)
    alone = Lives(np.arange(count), np.arange(count), np.arange(count), np.ones(count, np.int64))
    return fit_codebook(activations, alone, np.zeros(count, np.int64), options, seed).plane(activations)


def codes_in_plane(points: np.ndarray, codes: int, min_cluster_size: int) -> np.ndarray:
    """Quantise a plane anew: labels (B,) of K-means, whose loss is that of the codebook, largest first."""
    from sklearn.cluster import KMeans

    number = min(codes, len(np.unique(points, axis=0)))
    return largest_first(KMeans(number, n_init=4, random_state=0).fit_predict(points.astype(np.float64)))


def recorded_codes(settings: FitSettings, data: Dataset, step: Step) -> Codes:
    """Take the plane and the codes that the policy learnt itself.

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
    size = one_hot.shape[1]
    label_of = np.full(size, NOISE)
    label_of[number] = labels
    identity = np.eye(size, dtype=np.float32)
    rule = CodebookRule(identity, np.zeros(size, np.float32), identity, label_of)
    used = int(labels.max()) + 1
    numbers = tuple(int(np.flatnonzero(label_of == label)[0]) for label in range(used))
    shares = np.bincount(labels) / len(labels)
    use = CodeUse(size, used, float(np.exp(-(shares * np.log(shares)).sum())), True, numbers, np.nan, np.nan)
    method = ClusterMethod(lambda points, **_: points, partial(codes_in_plane, codes=used), 2, seeded=False)
    reason, floor = "the policy learnt the codes itself, so they cannot be fitted anew", StabilityFloor()
    if used > 1:
        floor = StabilityFloor(
            over_bootstraps=stability_floor(plane, data.lives, method, settings.seed).over_bootstraps
        )
    unknown = ProjectionStability((), (), len(data), reason, floor)
    return Codes(plane, labels, rule, use, unknown, method)
