"""Find clusters in a policy's activations and test which behaviours they are associated with.

    python analyze_activations.py activation_data/NAME
    python analyze_activations.py activation_data/NAME --cluster-before-umap --pre-cluster-dims 30
    python analyze_activations.py activation_data/NAME --metric-only --cluster-before-umap
    python analyze_activations.py activation_data/NAME --feature-scatter --umap-pairs --dendrogram-explorer

Figures, arrays, directions and summaries are written to analysis_results/RUN/, a folder named after the settings.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)


from functools import partial
from typing import TYPE_CHECKING

from activation_store.reader import read_metadata
from activation_store.schema import DumpMetadata
from analysis.clusters.settings import BYTES_A_RECORD, AnalysisSettings
from analysis.runs.record_limit import limited
from common import command_line
from common.progress_view import say, step

if TYPE_CHECKING:
    from analysis.features import Feature
    from analysis.runs.run_folder import RunFolder


def main() -> None:
    """Parse, check, analyse, and print where the results are."""
    settings = command_line.parse(AnalysisSettings, __doc__)
    settings.check()
    metadata = read_metadata(settings.dump)
    settings = limited(settings, settings.dump, metadata, BYTES_A_RECORD)
    settings.check_against(metadata)
    features = settings.choose_features(metadata)

    from analysis.runs.run_folder import RunFolder, description

    with RunFolder(settings.run_folder, description(settings, settings.dump, metadata)) as folder:
        analyse(settings, metadata, features, folder)


def analyse(
    settings: AnalysisSettings, metadata: DumpMetadata, features: tuple["Feature", ...], folder: "RunFolder"
) -> None:
    """Read, cluster, compare and draw; everything is written to the run's folder."""
    from rich.console import Console

    from analysis.clusters.dataset import read_dataset
    from analysis.clusters.summary_text import cluster_table, verdict_lines

    console = Console()
    for line in settings.without_effect():
        console.print(line, style="yellow", highlight=False)
    show = partial(step, console)
    data = read_dataset(settings, metadata, features, show)
    with show("loading the libraries"):
        from analysis.clusters import outputs
        from analysis.clusters.components import principal_components
    with show("finding principal components"):
        run = outputs.Run(settings, data, principal_components(data.activations), folder, show)
    outputs.save_features(run)
    clustering = summary = report = None
    if not settings.metric_only:
        projection, clustering, summary = outputs.find_and_compare(run)
        outputs.draw_clusters(run, projection, clustering, summary)
        if settings.dendrogram_explorer:
            outputs.write_dendrogram_explorer(run, projection, clustering)
    if settings.cluster_before_umap:
        report = outputs.draw_components(run, clustering)
    outputs.draw_pairs(run, clustering)
    outputs.save_directions(run, clustering)
    outputs.write_summary(run, summary, report)
    if summary:
        if summary.clusters:
            console.print(cluster_table(summary))
        console.print(verdict_lines(summary), highlight=False)
    say(console, f"figures, arrays and summary.txt: {folder.path}")


if __name__ == "__main__":
    command_line.run(main)
