"""Find clusters in a policy's activations, and say which behaviours they go with.

    python analyze_activations.py activation_data/NAME
    python analyze_activations.py activation_data/NAME --subsample 2 --hdbscan-min-cluster 50
    python analyze_activations.py activation_data/NAME --features default,is_on_foilage,ticks_since_eating

Figures, arrays, summary.txt and summary.json go to analysis_results/RUN/, a folder named after the settings.
"""

import zlib
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

import command_line
from activation_store.files import sha256
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import ACTION_DECODER, METADATA_FILE, DumpMetadata, Records
from user_error import UserError

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from analysis.dataset import Dataset
    from analysis.features import Feature
    from analysis.run_folder import RunFolder
    from analysis.summary import Summary

ROLLING_WINDOW = 5
EXPLAINED_SHARES = (0.5, 0.9, 0.99)
SEEDS = 2**32
FEWEST_FOR_UMAP = 4
LONGEST_NAMES = 80
FEWEST_DRAWS, MOST_DRAWS = 99, 100_000


@dataclass(frozen=True)
class Arguments:
    """Arguments of analyze_activations.py."""

    dump: tyro.conf.Positional[Path]
    """Folder that extract_activations.py wrote, such as activation_data/NAME."""
    subsample: int = 10
    """Keep every so many-th record of each life, from 1 (all): neighbouring ticks are nearly copies."""
    hdbscan_min_cluster: int = 15
    """Fewest records that make a cluster, from 2."""
    hdbscan_min_samples: int = 5
    """Neighbours that make a region dense, from 1: more of them, more noise."""
    umap_neighbors: int = 15
    """Neighbours of each record that UMAP keeps together, from 2: more of them, more global structure."""
    umap_min_dist: float = 0.1
    """Least distance between embedded records, 0 to 1."""
    layer: str = ACTION_DECODER
    """Layer of the network to analyse, one that the dump holds."""
    permutations: int = 999
    """Circular shifts behind each test, 99 to 100000: more of them, steadier p-values."""
    bootstraps: int = 999
    """Resamples behind each interval, 99 to 100000."""
    confidence: float = 0.95
    """Confidence of the intervals, from 0.5 to below 1."""
    residualize: str = ""
    """Repeat the analysis with these regressed out: tick, age, row, column, agent, episode, features; with commas."""
    features: str = "default"
    """Behaviours to compare clusters by: default (14), extended (all), or names from docs/features.md, with commas."""
    seed: int = 42
    """Seed of UMAP and of the random baselines, 0 to 4294967295."""
    output_dir: Path = Path("analysis_results")
    """Folder that the run's own folder is made in."""

    @property
    def run_name(self) -> str:
        """The run's folder: the dump, how it was thinned and clustered, and every other setting that is no default."""
        name = f"{self.dump.resolve().name}-sub{self.subsample}-c{self.hdbscan_min_cluster}"
        named = {
            "hdbscan_min_samples": "s",
            "umap_neighbors": "n",
            "umap_min_dist": "d",
            "permutations": "p",
            "bootstraps": "b",
            "confidence": "ci",
            "layer": "",
            "seed": "seed",
        }
        defaults = {field.name: field.default for field in fields(self)}
        changed = {key: prefix for key, prefix in named.items() if getattr(self, key) != defaults[key]}
        settings = [f"-{prefix}{getattr(self, key)}" for key, prefix in changed.items()]
        without = f"-without_{'+'.join(self.residual_names)}" if self.residual_names else ""
        return "".join([name, *settings, self._features_in_name, without])

    @property
    def residual_names(self) -> tuple[str, ...]:
        """The variables to regress out, each once."""
        return tuple(dict.fromkeys(name.strip() for name in self.residualize.split(",") if name.strip()))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features, or sets of them, that are asked for."""
        return tuple(name.strip() for name in self.features.split(",") if name.strip())

    @property
    def _features_in_name(self) -> str:
        if self.feature_names == ("default",):
            return ""
        names = "+".join(self.feature_names)
        if len(names) <= LONGEST_NAMES:
            return f"-{names}"
        return f"-{len(self.feature_names)}features_{zlib.crc32(names.encode()):08x}"


def main() -> None:
    """Parse, check, analyse, and say where the results lie."""
    arguments = command_line.parse(Arguments, __doc__)
    check_values(arguments)
    metadata = read_metadata(arguments.dump)
    if arguments.layer not in metadata.layers:
        raise UserError(f"{arguments.dump} holds no layer {arguments.layer!r}, only: {', '.join(metadata.layers)}")
    from analysis.features import features_named

    features = features_named(arguments.feature_names)
    if arguments.residual_names:
        from analysis.residuals import check_residual_names

        check_residual_names(arguments.residual_names, [feature.name for feature in features])
    check_enough(arguments, min(metadata.records, metadata.records // arguments.subsample + metadata.lives))

    from analysis.run_folder import RunFolder

    run = {
        "arguments": {
            key: str(value) if isinstance(value, Path) else value for key, value in asdict(arguments).items()
        },
        "seed": arguments.seed,
        "input": {
            METADATA_FILE: sha256(arguments.dump / METADATA_FILE),
            **{name: file.sha256 for name, file in metadata.files.items()},
        },
    }
    with RunFolder(arguments.output_dir / arguments.run_name, run) as folder:
        analyse(arguments, metadata, features, folder)


def check_values(arguments: Arguments) -> None:
    """Refuse values that no dump could make sense of."""
    allowed = {
        "subsample": (arguments.subsample >= 1, "1 or more"),
        "hdbscan_min_cluster": (arguments.hdbscan_min_cluster >= 2, "2 or more"),
        "hdbscan_min_samples": (arguments.hdbscan_min_samples >= 1, "1 or more"),
        "umap_neighbors": (arguments.umap_neighbors >= 2, "2 or more"),
        "umap_min_dist": (0 <= arguments.umap_min_dist <= 1, "0 to 1"),
        "permutations": (FEWEST_DRAWS <= arguments.permutations <= MOST_DRAWS, f"{FEWEST_DRAWS} to {MOST_DRAWS}"),
        "bootstraps": (FEWEST_DRAWS <= arguments.bootstraps <= MOST_DRAWS, f"{FEWEST_DRAWS} to {MOST_DRAWS}"),
        "confidence": (0.5 <= arguments.confidence < 1, "0.5 to below 1"),
        "seed": (0 <= arguments.seed < SEEDS, f"0 to {SEEDS - 1}"),
    }
    for name, (fits, values) in allowed.items():
        if not fits:
            raise UserError(f"--{name.replace('_', '-')} is {getattr(arguments, name)}: allowed is {values}")


def check_enough(arguments: Arguments, records: int) -> None:
    """Refuse to look for clusters among fewer records than the settings need."""
    needs = {
        f"two clusters of --hdbscan-min-cluster {arguments.hdbscan_min_cluster}": 2 * arguments.hdbscan_min_cluster,
        f"--hdbscan-min-samples {arguments.hdbscan_min_samples}": arguments.hdbscan_min_samples + 1,
        f"--umap-neighbors {arguments.umap_neighbors}": arguments.umap_neighbors + 1,
        "UMAP": FEWEST_FOR_UMAP,
    }
    for setting, needed in needs.items():
        if records < needed:
            raise UserError(
                f"too few records to cluster: --subsample {arguments.subsample} keeps at most {records} of "
                f"{arguments.dump}, {setting} needs {needed}; lower the settings or extract more"
            )


def analyse(arguments: Arguments, metadata: DumpMetadata, chosen: tuple["Feature", ...], folder: "RunFolder") -> None:
    """Read, embed, cluster, compare, draw; everything lands in the run's folder."""
    from rich.console import Console

    from analysis.terminal import cluster_table, step, verdict_lines

    console = Console()
    with step(console, "reading the dump") as report:
        records = read_dump(arguments.dump, subsample=arguments.subsample, layers=[arguments.layer], progress=report)
    check_enough(arguments, len(records))
    features = compute_features(arguments, metadata, chosen, records, console)
    activations = records.activations[arguments.layer]

    with step(console, "loading the libraries"):
        from analysis.dataset import Dataset
        from analysis.figures.cluster_features import cluster_features
        from analysis.figures.umap_metric_scatter import umap_metric_scatter
        from analysis.figures.umap_scatter import umap_scatter
        from analysis.lives import lives_of, rolling_mean
        from analysis.projection import components_explaining
        from analysis.report_page.report import report_html
        from analysis.summary_text import as_text

    lives = lives_of(records)
    components = components_explaining(activations, EXPLAINED_SHARES, arguments.seed)
    data = Dataset(metadata, arguments.layer, chosen, records, lives, activations, features)
    embedding, labels, summary = find_and_compare(arguments, data, components, folder, console)
    with step(console, "drawing"):
        heading = f"{metadata.policy}, {arguments.layer}"
        rolled = rolling_mean(features, lives, ROLLING_WINDOW)
        folder.save_figure("umap_scatter.png", umap_scatter(embedding, labels, heading))
        folder.save_figure("cluster_features.png", cluster_features(summary.clusters, heading))
        folder.save_figure(
            "umap_metric_scatter.png", umap_metric_scatter(embedding, rolled, ROLLING_WINDOW, heading, chosen)
        )

    places = {name: getattr(records, name) for name in ("env_id", "agent_id", "episode", "step", "tick")}
    folder.save_array("embedding.npy", embedding)
    folder.save_arrays("cluster_labels.npz", **places, label=labels)
    folder.save_json("summary.json", summary.to_json())
    folder.save_text("summary.txt", as_text(summary))
    folder.save_text("report.html", report_html(folder.path))
    console.print(cluster_table(summary))
    console.print(verdict_lines(summary), highlight=False)
    console.print(f"figures, arrays and summary.txt: {folder.path}", highlight=False, markup=False, soft_wrap=True)


def find_and_compare(
    arguments: Arguments, data: "Dataset", components: dict[float, int], folder: "RunFolder", console: "Console"
) -> tuple["np.ndarray", "np.ndarray", "Summary"]:
    """Embed and cluster, and say what the clusters are worth; other seeds are tried in a process beside."""
    from analysis.cluster_method import ClusterMethod
    from analysis.cluster_statistics import cluster_statistics
    from analysis.clustering import hdbscan_labels
    from analysis.inference import Inference
    from analysis.projection import umap_embedding
    from analysis.residual_analysis import repeat_without
    from analysis.stability import SeedsBeside
    from analysis.summarise import summarise
    from analysis.terminal import step

    method = ClusterMethod(
        partial(umap_embedding, neighbors=arguments.umap_neighbors, min_dist=arguments.umap_min_dist),
        partial(hdbscan_labels, min_samples=arguments.hdbscan_min_samples),
        arguments.hdbscan_min_cluster,
    )
    settings = Inference(arguments.permutations, arguments.bootstraps, arguments.confidence, arguments.seed)
    residualized = None
    with SeedsBeside(data.activations, data.lives, method, arguments.seed) as seeds:
        with step(console, f"embedding {len(data.records):,} records with UMAP"):
            embedding = method.embed(data.activations, seed=arguments.seed)
        with step(console, "clustering with HDBSCAN"):
            labels = method.cluster(embedding)
        with step(console, "comparing clusters"):
            found = cluster_statistics(data, embedding, labels, method, settings)
        if arguments.residual_names:
            with step(console, f"repeating the analysis without {', '.join(arguments.residual_names)}"):
                again = repeat_without(arguments.residual_names, data, labels, found, method, settings)
            folder.save_arrays("residualized.npz", embedding=again.points, label=again.labels)
            residualized = again.result
        with step(console, "waiting for other seeds"):
            stability = seeds.result()
    summary = summarise(
        data,
        labels,
        found,
        stability,
        subsample=arguments.subsample,
        components=components,
        residualized=residualized,
    )
    return embedding, labels, summary


def compute_features(
    arguments: Arguments, metadata: DumpMetadata, chosen: tuple["Feature", ...], records: Records, console: "Console"
) -> "np.ndarray":
    """Compute the features of the records kept; those over time from every tick, which are read for them."""
    from analysis.features import feature_matrix, needs_history, read_history
    from analysis.terminal import step

    history = None
    if needs_history(chosen, arguments.subsample):
        with step(console, "reading what happened between the records kept") as report:
            history = read_history(arguments.dump, report)
    with step(console, "computing features"):
        return feature_matrix(records, metadata, chosen, history)


if __name__ == "__main__":
    command_line.run(main)
