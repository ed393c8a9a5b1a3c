"""The outputs of one analysis: one function computes, draws and writes each of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from activation_store.directions import DIRECTIONS_FILE, write_directions
from analysis.clusters import residuals
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
from analysis.clusters.projection import Clustering, Projection, hdbscan_clusters, project
from analysis.clusters.settings import PROJECTION_NAMES, AnalysisSettings
from analysis.clusters.summarise import ClusterStatistics
from analysis.clusters.summary import Residualized, Summary
from analysis.clusters.summary_text import as_text
from analysis.features import Feature
from analysis.runs.run_folder import RunFolder
from analysis.statistics.stability import ClusterMethod
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


def find_clusters(run: Run) -> tuple[Projection, Clustering]:
    """Project the records onto a plane and cluster them; writes embedding.npy and cluster_labels.npz."""
    settings, data = run.settings, run.data
    with run.step(f"embedding {len(data):,} records with {PROJECTION_NAMES[settings.projection]}"):
        projection = project(data.activations, run.components, settings, settings.seed)
    with run.step("clustering with HDBSCAN"):
        space = projection.points
        if settings.cluster_before_umap:
            space = run.components.scores(data.activations, settings.pre_cluster_dims)
        clustering = hdbscan_clusters(space, settings.hdbscan_min_cluster, settings.hdbscan_min_samples)
    save_labels(run, projection, clustering)
    return projection, clustering


def save_labels(run: Run, projection: Projection, clustering: Clustering) -> None:
    """Write embedding.npy and cluster_labels.npz."""
    run.folder.save_array("embedding.npy", projection.points)
    run.folder.save_arrays("cluster_labels.npz", **_places(run.data), label=clustering.labels)


def repeat_without(
    run: Run, clustering: Clustering, statistics: ClusterStatistics, method: ClusterMethod
) -> Residualized:
    """Repeat the analysis with variables regressed out of the activations; writes residualized.npz."""
    names = run.settings.residual_names
    with run.step(f"repeating the analysis without {', '.join(names)}"):
        points, labels, result = residuals.repeat_without(
            names, run.data, clustering.labels, statistics, method, run.settings.inference
        )
    run.folder.save_arrays("residualized.npz", embedding=points, label=labels)
    return result


def draw_clusters(run: Run, projection: Projection, clustering: Clustering, summary: Summary) -> None:
    """Draw the plane by cluster and by feature, and how clusters differ."""
    from analysis.clusters.figures import metric_scatter, plane_scatter
    from analysis.clusters.heat_maps import cluster_choices, cluster_features

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
    from analysis.clusters.figures import pair_panels, pca_feature_profiles
    from analysis.clusters.heat_maps import pca_choices, pca_feature_correlations

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


def draw_feature_pairs(run: Run, clustering: Clustering | None) -> None:
    """Draw every pair of features."""
    from analysis.clusters.figures import feature_scatter

    data = run.data
    with run.step("drawing pairs of features"):
        rolled = data.rolled[:, data.own]
        figure = feature_scatter(rolled, _own(data), _labels(clustering), ROLLING_WINDOW, data.heading)
        run.folder.save_figure("feature_scatter.png", figure)


def draw_umap_pairs(run: Run, clustering: Clustering | None) -> None:
    """Embed the activations in more dimensions, and draw them in pairs; writes umap_pairs.npy."""
    from analysis.clusters.figures import pair_panels

    settings, data = run.settings, run.data
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
    """Write summary.json and summary.txt: the clusters, if requested, and the principal components."""
    data = run.data
    about = {"policy": data.metadata.policy, "layer": data.layer, "records": len(data), "lives": len(data.lives)}
    content = summary.to_json() if summary else {**about, "clusters": None}
    text = as_text(summary) if summary else _without_clusters(data)
    run.folder.save_json("summary.json", {**content, "components": report.to_json() if report else None})
    run.folder.save_text("summary.txt", "\n".join([text, report.as_text()]) if report else text)


def write_report(run: Run) -> None:
    """Write report.html: one page that reports the run's results, made from the files in its folder."""
    from analysis.clusters.report import report_html

    with run.step("writing the report"):
        run.folder.save_text("report.html", report_html(run.folder.path))


def _without_clusters(data: Dataset) -> str:
    return (
        f"Policy {data.metadata.policy}, layer {data.layer}\n"
        f"Records: {len(data):,} kept, {len(data.lives):,} lives\n"
        "No clusters were looked for (--metric-only).\n"
    )


def _labels(clustering: Clustering | None) -> np.ndarray | None:
    return clustering.labels if clustering else None


def _own(data: Dataset) -> tuple[Feature, ...]:
    return tuple(data.features[i] for i in data.own)


def _places(data: Dataset) -> dict[str, np.ndarray]:
    return {name: getattr(data.records, name) for name in _PLACES}
