"""Find clusters in a policy's activations, and say which behaviours they go with.

    python analyze_activations.py activation_data/NAME
    python analyze_activations.py activation_data/NAME --cluster-before-umap --pre-cluster-dims 30
    python analyze_activations.py activation_data/NAME --metric-only --cluster-before-umap
    python analyze_activations.py activation_data/NAME --feature-scatter --umap-pairs --dendrogram-explorer

Figures, arrays, summary.txt and summary.json go to analysis_results/RUN/, a folder named after the settings.
"""

from functools import partial
from typing import TYPE_CHECKING

import command_line
from activation_store.files import sha256
from activation_store.reader import read_metadata
from activation_store.schema import METADATA_FILE, DumpMetadata
from analysis.settings import AnalysisSettings

if TYPE_CHECKING:
    from typing import Any

    from analysis.clustering import Clustering
    from analysis.dataset import Dataset, Step
    from analysis.features import Feature
    from analysis.run_folder import RunFolder
    from analysis.summary import Summary
    from analysis.views import Run

EXPLAINED_SHARES = (0.5, 0.9, 0.99)


def main() -> None:
    """Parse, check, analyse, and say where the results lie."""
    settings = command_line.parse(AnalysisSettings, __doc__)
    settings.check()
    metadata = read_metadata(settings.dump)
    settings.check_against(metadata)
    features = settings.choose_features()

    from analysis.run_folder import RunFolder

    with RunFolder(settings.run_folder, about_run(settings, metadata)) as folder:
        analyse(settings, metadata, features, folder)


def about_run(settings: AnalysisSettings, metadata: DumpMetadata) -> dict[str, "Any"]:
    """Return what run.json tells: how to repeat the run, and what of."""
    files = {name: file.sha256 for name, file in metadata.files.items()}
    return {
        "arguments": settings.to_json(),
        "seed": settings.seed,
        "input": {METADATA_FILE: sha256(settings.dump / METADATA_FILE), **files},
    }


def analyse(
    settings: AnalysisSettings, metadata: DumpMetadata, features: tuple["Feature", ...], folder: "RunFolder"
) -> None:
    """Read, cluster, compare, draw; everything lands in the run's folder."""
    from rich.console import Console

    from analysis.dataset import read_dataset
    from analysis.terminal import cluster_table, coverage_line, step

    console = Console()
    for line in settings.without_effect():
        console.print(line, style="yellow", highlight=False)
    show = partial(step, console)
    run = start(settings, read_dataset(settings, metadata, features, show), folder, show)

    from analysis import views

    clustering = summary = report = None
    if not settings.metric_only:
        projection, clustering = views.find_clusters(run)
        summary = compare(run, clustering)
        views.draw_clusters(run, projection, clustering, summary)
        if settings.dendrogram_explorer:
            views.write_dendrogram_explorer(run, projection, clustering)
    if settings.cluster_before_umap:
        report = views.draw_components(run, clustering)
    if settings.feature_scatter:
        views.draw_feature_pairs(run, clustering)
    if settings.umap_pairs:
        views.draw_umap_pairs(run, clustering)
    views.write_summary(run, summary, report)
    if summary:
        console.print(cluster_table(summary))
        console.print(coverage_line(summary), highlight=False)
    console.print(f"figures, arrays and summary.txt: {folder.path}", highlight=False, markup=False, soft_wrap=True)


def start(settings: AnalysisSettings, data: "Dataset", folder: "RunFolder", show: "Step") -> "Run":
    """Find the principal components, save what every run has, and gather what all views need."""
    with show("loading the libraries"):
        from analysis.components import principal_components
        from analysis.views import Run, save_features
    with show("finding principal components"):
        run = Run(settings, data, principal_components(data.activations), folder, show)
    save_features(run)
    return run


def compare(run: "Run", clustering: "Clustering") -> "Summary":
    """Hold the clusters against the features and the confounds."""
    from analysis.confounds import confound_evenness
    from analysis.effect_sizes import effect_sizes
    from analysis.summary import summarise

    data, labels = run.data, clustering.labels
    with run.step("comparing clusters"):
        return summarise(
            data.records,
            data.metadata,
            data.lives,
            labels,
            effect_sizes(data.values, labels, data.lives, run.settings.seed),
            confound_evenness(data.records, data.lives, labels),
            layer=data.layer,
            subsample=run.settings.subsample,
            components=run.components.needed_for(EXPLAINED_SHARES),
            features=data.features,
        )


if __name__ == "__main__":
    command_line.run(main)
