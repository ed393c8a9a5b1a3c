"""The outputs of one analysis: one function computes, draws and writes each of them; and the page that reports all."""

import math
import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.directions import DIRECTIONS_FILE, write_directions
from analysis.clusters.blindness import Blindness
from analysis.clusters.components import (
    ComponentReport,
    Components,
    cluster_directions,
    component_directions,
    report_components,
)
from analysis.clusters.dataset import ROLLING_WINDOW, Dataset
from analysis.clusters.embeddings import umap_embedding
from analysis.clusters.listed import Listed, blindness, read_listed
from analysis.clusters.projection import Clustering, Projection, cluster_method, hdbscan_clusters, project
from analysis.clusters.settings import PROJECTION_NAMES, AnalysisSettings
from analysis.clusters.summarise import cluster_statistics, repeat_without, summarise
from analysis.clusters.summary import SAME_CLUSTER, Summary
from analysis.clusters.summary_text import as_text, format_interval, format_share
from analysis.features import Feature
from analysis.figures.style import cluster_colour
from analysis.pages.pages import command_of as command_words
from analysis.pages.pages import environment, picture, style_of
from analysis.runs.run_folder import RUN_FILE, RunFolder
from analysis.statistics.stability import projection_stability, stability_floor
from common.files import read_json, visible
from common.number_text import format_number, format_p
from common.progress_view import Step

_PLACES = ("env_id", "agent_id", "episode", "step", "tick")


@dataclass(frozen=True, eq=False)
class Run:
    """The inputs of every output, and the folder for results."""

    settings: AnalysisSettings
    data: Dataset
    components: Components
    folder: RunFolder
    step: Step

    @cached_property
    def listed(self) -> Listed:
        """All listed features of the records, and what agents do next; the dump is read again for them."""
        with self.step("reading what all listed features need") as report:
            return read_listed(self.settings.dump, self.settings.thinning, self.data, self.settings.seed, report)


def measure_blindness(run: Run, name: str, studied: np.ndarray) -> Blindness:
    """Measure how much of what labels, (B,), or scores, (B, K), tell is covered by all listed features together."""
    listed = run.listed
    with run.step(f"measuring how much of what {name} tell the features cover"):
        return blindness(listed, run.data, run.components, name, studied, run.settings.inference)


def save_features(run: Run) -> None:
    """Write features.npz: the features of every record kept, with its identity."""
    names = np.array([feature.name for feature in run.data.features])
    run.folder.save_arrays("features.npz", names=names, values=run.data.values, **_places(run.data))


def find_and_compare(run: Run) -> tuple[Projection, Clustering, Summary]:
    """Project the records onto a plane, cluster them, and compute the clusters' statistics.

    Writes embedding.npy, cluster_labels.npz and, where variables are regressed out, residualized.npz.
    """
    settings, data, method = run.settings, run.data, cluster_method(run.settings)
    with run.step(f"embedding {len(data):,} records with {PROJECTION_NAMES[settings.projection]}"):
        projection = project(data.activations, run.components, settings, settings.seed)
    with run.step("clustering with HDBSCAN"):
        space = projection.points
        if settings.cluster_before_umap:
            space = run.components.scores(data.activations, settings.pre_cluster_dims)
        clustering = hdbscan_clusters(space, settings.hdbscan_min_cluster, settings.hdbscan_min_samples)
    save_labels(run, projection, clustering)
    with run.step("comparing clusters"):
        statistics = cluster_statistics(data, clustering.points, clustering.labels, method, settings.inference)
    residualized = None
    if names := settings.residual_names:
        with run.step(f"repeating the analysis without {', '.join(names)}"):
            points, labels, residualized = repeat_without(
                names, data, clustering.labels, statistics, method, settings.inference
            )
        run.folder.save_arrays("residualized.npz", embedding=points, label=labels)
    with run.step("embedding with other seeds and other lives"):
        stability = projection_stability(data.activations, clustering.labels, data.lives, method, settings.seed)
    with run.step("embedding a Gaussian of the same covariance and autocorrelation"):
        stability = replace(stability, gaussian=stability_floor(data.activations, data.lives, method, settings.seed))
    summary = summarise(
        data, clustering.labels, statistics, stability, subsample=settings.thinning,
        components=run.components.needed_for(), residualized=residualized,
        blindness=measure_blindness(run, "clusters", clustering.labels),
    )  # fmt: skip
    return projection, clustering, summary


def save_labels(run: Run, projection: Projection, clustering: Clustering) -> None:
    """Write embedding.npy and cluster_labels.npz."""
    run.folder.save_array("embedding.npy", projection.points)
    run.folder.save_arrays("cluster_labels.npz", **_places(run.data), label=clustering.labels)


def draw_clusters(run: Run, projection: Projection, clustering: Clustering, summary: Summary) -> None:
    """Draw the plane by cluster and by feature, and how clusters differ."""
    from analysis.clusters.figures import cluster_choices, cluster_features, metric_scatter, plane_scatter

    data, kind = run.data, projection.kind
    with run.step("drawing clusters"):
        plane = plane_scatter(projection, clustering.labels, data.heading, run.settings.clustered_in)
        run.folder.save_figure(f"{kind}_scatter.png", plane)
        if choices := cluster_choices(summary.clusters, data.heading):
            run.folder.save_figure("cluster_choices.png", choices)
        if not len(data.own):
            return
        run.folder.save_figure("cluster_features.png", cluster_features(summary.clusters, data.heading))
        metrics = metric_scatter(projection, data.rolled[:, data.own], ROLLING_WINDOW, data.heading, _own(data))
        run.folder.save_figure(f"{kind}_metric_scatter.png", metrics)


def draw_components(run: Run, clustering: Clustering | None) -> ComponentReport:
    """Draw the first principal components and their associations with features; writes pca.npz."""
    from analysis.clusters.figures import pair_panels, pca_choices, pca_feature_correlations, pca_feature_profiles

    data, components, dims = run.data, run.components, run.settings.pre_cluster_dims
    scores = components.scores(data.activations, dims)
    meter = measure_blindness(run, f"the first {dims} components", scores)
    with run.step("comparing principal components with features"):
        report = report_components(components, scores, data, meter, run.settings.inference)
    run.folder.save_arrays(
        "pca.npz", mean=components.mean, components=components.directions[:dims],
        explained_variance_ratio=components.explained[:dims], pearson_r=report.r, r2=report.r2[0],
    )  # fmt: skip
    with run.step("drawing principal components"):
        names = [components.name(i) for i in range(dims)]
        run.folder.save_figure("pca_pairs.png", pair_panels(scores, names, _labels(clustering), data.heading))
        if report.choices:
            run.folder.save_figure("pca_choices.png", pca_choices(report, data.heading))
        if len(data.own):
            run.folder.save_figure("pca_feature_correlations.png", pca_feature_correlations(report, data.heading))
            run.folder.save_figure("pca_feature_profiles.png", pca_feature_profiles(report, scores, data))
    return report


def draw_pairs(run: Run, clustering: Clustering | None) -> None:
    """Draw pairs of features, and of dimensions of a larger embedding, if asked for; writes umap_pairs.npy."""
    from analysis.clusters.figures import feature_scatter, pair_panels

    settings, data = run.settings, run.data
    if settings.feature_scatter:
        with run.step("drawing pairs of features"):
            rolled = data.rolled[:, data.own]
            figure = feature_scatter(rolled, _own(data), _labels(clustering), ROLLING_WINDOW, data.heading)
            run.folder.save_figure("feature_scatter.png", figure)
    if not settings.umap_pairs:
        return
    dims = settings.umap_pairs_dims
    with run.step(f"embedding {len(data):,} records with UMAP in {dims} dimensions"):
        points = umap_embedding(data.activations, settings.umap_neighbors, settings.umap_min_dist, settings.seed, dims)
    run.folder.save_array("umap_pairs.npy", points)
    with run.step("drawing pairs of dimensions"):
        names = [f"UMAP {i + 1}" for i in range(dims)]
        run.folder.save_figure("umap_pairs.png", pair_panels(points, names, _labels(clustering), data.heading))


def write_dendrogram_explorer(run: Run, projection: Projection, clustering: Clustering) -> None:
    """Write the page for exploring HDBSCAN's tree of clusters by density."""
    from analysis.clusters.dendrogram_page import dendrogram_page

    with run.step("writing the dendrogram explorer"):
        page = dendrogram_page(projection, clustering, run.settings.clustered_in, run.data, run.settings.seed)
        run.folder.save_text("dendrogram_explorer.html", page)


def save_directions(run: Run, clustering: Clustering | None) -> None:
    """Write directions.safetensors: the cluster differences, if clusters were found, and the components."""
    names = run.folder.path.name, run.settings.dump.resolve().name
    directions = [*component_directions(run.data, run.components, *names)]
    if clustering:
        directions = [*cluster_directions(run.data, clustering.labels, *names), *directions]
    write_directions(run.folder.path / DIRECTIONS_FILE, directions)


def write_summary(run: Run, summary: Summary | None, report: ComponentReport | None) -> None:
    """Write summary.json, summary.txt and report.html: the clusters, if requested, and the principal components."""
    data = run.data
    about = {"policy": data.metadata.policy, "layer": data.layer, "records": len(data), "lives": len(data.lives)}
    content = summary.to_json() if summary else {**about, "clusters": None}
    text = as_text(summary) if summary else (
        f"Policy {data.metadata.policy}, layer {data.layer}\nRecords: {len(data):,} kept, {len(data.lives):,} lives\n"
        "No clusters were looked for (--metric-only).\n"
    )  # fmt: skip
    run.folder.save_json("summary.json", {**content, "components": report.to_json() if report else None})
    run.folder.save_text("summary.txt", "\n".join([text, report.as_text()]) if report else text)
    with run.step("writing the report"):
        run.folder.save_text("report.html", report_html(run.folder.path))


def _labels(clustering: Clustering | None) -> np.ndarray | None:
    return clustering.labels if clustering else None


def _own(data: Dataset) -> tuple[Feature, ...]:
    return tuple(data.features[i] for i in data.own)


def _places(data: Dataset) -> dict[str, np.ndarray]:
    return {name: getattr(data.records, name) for name in _PLACES}


_PLANES = {
    "umap": "UMAP",
    "tsne": "t-SNE",
    "pca": "two principal components",
    "semantic": "a linear map fitted along with the codes",
}
_DISTANCES = {
    "umap": "It keeps neighbourhoods, not distances or densities: gaps and areas mean little.",
    "tsne": "It keeps neighbourhoods, not distances or densities: gaps, sizes and areas of islands mean little.",
    "semantic": "It is a linear map of the state, so straight lines stay straight; what it leaves out is not visible.",
    "pca": "It keeps distances as far as two components do: the rest of the variance is not visible.",
}
SUMMARY_FILE = "summary.json"
EXPLORER_FILE = "explorer.html"
TREE_FILE = "dendrogram_explorer.html"

_OUTPUT = "output_dir"
_RESULTS = Path("analysis_results")
_ANEW = Path("analysis_results_again")
"""A folder can hold only one run, so the command that repeats a run writes to another folder."""


Caption = tuple[str, str, str]
"""A figure's title, its description for readers who cannot see it, and how to read it."""


def _of_plane(kind: str) -> dict[str, Caption]:
    plane, distances = _PLANES[kind], _DISTANCES[kind]
    return {
        f"{kind}_scatter.png": (
            "The clusters",
            f"Scatter of all records kept in a plane made by {plane}, coloured by cluster; noise is grey.",
            f"Each point is the hidden state of one agent at one tick. {distances} After eight clusters the colours "
            "come again in darker and then in lighter shades, with another marker.",
        ),
        f"{kind}_metric_scatter.png": (
            "What agents were doing",
            f"The plane once per feature, coloured by the feature's mean around that time (plane made by {plane}).",
            "Yellow is high and dark blue is low. A feature that characterises a cluster should change where the "
            "cluster ends; one that changes smoothly across the whole plane does not characterise any cluster.",
        ),
    }


CAPTIONS: dict[str, Caption] = {
    **_of_plane("umap"),
    **_of_plane("tsne"),
    **_of_plane("pca"),
    **_of_plane("semantic"),
    "cluster_features.png": (
        "How clusters differ",
        "Heat map of Cohen's d, one row per cluster and one column per feature.",
        "Blue is lower and red is higher than in random windows of lives, in standard deviations of records. Size is "
        "not certainty: the tables below show which differences survive correction.",
    ),
    "cluster_choices.png": (
        "What agents choose, and where things are",
        "Heat map of the share of each option, one row per cluster and one column per option of a categorical feature.",
        "Numbers are percentages of a cluster's records; colours are differences from the first row, all records. "
        "Frames mark what survives correction given tick and age: without one, a large difference of a small cluster "
        "may be chance.",
    ),
    "pca_pairs.png": (
        "Principal components",
        "Scatters of the first principal components of the activations, in pairs, coloured by cluster.",
        "Clusters that overlap in every pair differ in later components, or not along straight lines at all.",
    ),
    "pca_feature_correlations.png": (
        "Components and features",
        "Pearson's r of each principal component with each feature, and bars of the features' R² from all of them.",
        "R² is cross-validated over whole lives, or whole episodes from four on: 0 is no better than the mean. "
        "Records of a life resemble each other, so a single r says little about how sure it is.",
    ),
    "pca_feature_profiles.png": (
        "Features along components",
        "Scatter and binned means of each feature along the three components that it correlates with most.",
        "A line that rises and falls again is a relation that r misses.",
    ),
    "pca_choices.png": (
        "Components and choices",
        "Heat map of eta-square, the share of each principal component's variance that lies between the options.",
        "A dot marks what survives correction given tick and age.",
    ),
    "feature_scatter.png": (
        "Features in pairs",
        "Scatters of every pair of features, coloured by cluster.",
        "If two features are correlated, a cluster that differs in one will also differ in the other.",
    ),
    "umap_pairs.png": (
        "UMAP in more dimensions",
        "Scatters of consecutive dimensions of an embedding in more than two dimensions, coloured by cluster.",
        "Clusters that form one island in every panel are not artefacts of the projection onto a plane.",
    ),
}
"""Captions by file name, in the order of the report."""


def report_html(folder: Path) -> str:
    """Return the report of a run as HTML, from its run.json, summary.json and figures alone.

    Raises:
        UserError: one of the files cannot be read.
    """
    pages = environment(Path(__file__).parent, trim=True)
    pages.filters |= {
        "number": lambda value: format_number(_nan_if_none(value)),
        "signed": lambda value: format_number(_nan_if_none(value), sign=True),
        "p": lambda value: format_p(_nan_if_none(value)),
        "share": lambda value: format_share(_nan_if_none(value)),
        "short": lambda value: "n/a" if value is None else f"{value:g}",
        "count": lambda value: f"{value:,}",
        "colour": cluster_colour,
        "by_size": lambda effects: sorted(effects, key=lambda effect: -abs(effect["d_complement"] or 0)),
    }
    run: Any = read_json(folder / RUN_FILE)
    order = list(CAPTIONS)
    pictures = [path.name for path in visible(folder, "*.png")]
    pictures.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
    figures = []
    for name in pictures:
        title, shows, reading = CAPTIONS.get(name, (name, f"Figure {name}.", ""))
        figures.append({"title": title, "shows": shows, "reading": reading, "uri": picture(folder / name)})
    return pages.get_template("report.html").render(
        name=folder.resolve().name,
        run=run,
        summary=read_json(folder / SUMMARY_FILE),
        figures=figures,
        tree=TREE_FILE if (folder / TREE_FILE).exists() else None,
        explorer=EXPLORER_FILE,
        explorer_is_there=(folder / EXPLORER_FILE).exists(),
        explore_command=shlex.join(["python", "explore.py", str(_RESULTS / folder.name)]),
        command=command_of(run["arguments"], run.get("script", "analyze_activations.py")),
        not_repeated=_OUTPUT,
        same_cluster=SAME_CLUSTER,
        interval=lambda low, high: format_interval(_nan_if_none(low), _nan_if_none(high)),
        style=style_of("document"),
    )


def command_of(arguments: dict[str, Any], script: str = "analyze_activations.py") -> str:
    """Return the command line that repeats a run in another folder, ready for a shell.

    The run's location is left out, so that the same analysis gives the same page anywhere.
    """
    given = {name: value for name, value in arguments.items() if value is not False and value != ""}
    anew = {_OUTPUT: _ANEW} if given.get(_OUTPUT) is not None else {}
    return shlex.join(command_words(script, {"dump": "", **given, **anew}, {}))


def _nan_if_none(value: float | None) -> float:
    return math.nan if value is None else value
