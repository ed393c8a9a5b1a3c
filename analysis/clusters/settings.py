"""The settings of one analysis: every option of analyze_activations.py and its range."""

import difflib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from activation_store.layers import ACTION_DECODER
from activation_store.recording import check_recorded
from activation_store.schema import DumpMetadata
from activation_store.selection import Subsample
from analysis.runs.record_limit import FEWEST_KEPT
from common.argument_checks import at_least, between, check, result_name, seed_value, split
from common.result_places import OutputFolder
from common.user_error import UserError

if TYPE_CHECKING:
    from analysis.features import Feature
    from analysis.statistics.inference import Inference

ProjectionKind = Literal["umap", "tsne", "pca"]

OWN_VARIABLES = ("tick", "age", "row", "column", "agent", "episode")
"""What --residualize can name besides features."""

PROJECTION_NAMES = {"umap": "UMAP", "tsne": "t-SNE", "pca": "PCA"}

FEATURES_COMPARED = "default,choices,ways"
"""Features that behaviours are named by unless others are chosen: the set of the original tools, every option that an
agent can choose, and on which side things are."""

BYTES_A_RECORD = 15_000
"""Memory that the default analysis takes for each record kept."""

_FEWEST_FOR_UMAP = 4
_LONGEST_NAMES = 80
_FEWEST_DRAWS, _MOST_DRAWS = 99, 100_000


@dataclass(frozen=True)
class AnalysisSettings:
    """Arguments of analyze_activations.py."""

    dump: tyro.conf.Positional[Path]
    """Dump: a folder written by extract_activations.py, such as activation_data/NAME."""
    subsample: int = 10
    """Keep one in this many records of each life, at least 1 (all), since neighbouring ticks are nearly identical. The
    first record kept is random for each life."""
    max_records: int = 200_000
    """About how many records to keep at most, at least 1000, 15 kB of memory each. Where --subsample would keep
    more, fewer of each life are kept."""
    skip_first: int = 1
    """Number of ticks to skip at the start of each life, at least 0. At the first tick, the hidden state encodes little
    more than the spawn position."""
    layer: str = ACTION_DECODER
    """Recorded layer of the network to analyse."""
    features: str = FEATURES_COMPARED
    """Comma-separated features to compare clusters by: sets (default: the 14 of the original tools; choices: every
    option of every action head; ways: on which side things are; extended: all) or names from docs/features.md."""
    projection: ProjectionKind = "umap"
    """Projection to two dimensions: umap, tsne, or pca (the first two principal components)."""
    umap_neighbors: int = 15
    """Neighbours per record in UMAP, at least 2; larger values preserve more global structure."""
    umap_min_dist: float = 0.1
    """Minimum distance between embedded records in UMAP, 0 to 1."""
    tsne_perplexity: float = 30.0
    """Perplexity of t-SNE: roughly the number of neighbours per record, at least 1 and less than the records."""
    hdbscan_min_cluster: int = 15
    """Minimum size of a cluster in records, at least 2."""
    hdbscan_min_samples: int = 5
    """Neighbours that make a region dense for HDBSCAN, at least 1; larger values give more noise."""
    cluster_before_umap: bool = False
    """Cluster in the first principal components; the projection then only displays the clusters. Adds pca_pairs.png,
    pca_feature_correlations.png, pca_feature_profiles.png, pca_choices.png and pca.npz."""
    pre_cluster_dims: int = 30
    """Principal components for --cluster-before-umap, 2 to the number of units in the layer."""
    metric_only: bool = False
    """Skip projection and clustering; only write what --cluster-before-umap, --feature-scatter and --umap-pairs produce
    without them."""
    feature_scatter: bool = False
    """Also plot every pair of features: feature_scatter.png."""
    umap_pairs: bool = False
    """Also embed the activations with UMAP in --umap-pairs-dims dimensions: umap_pairs.png."""
    umap_pairs_dims: int = 10
    """Dimensions for --umap-pairs, 2 to 100."""
    permutations: int = 999
    """Circular shifts per test, 99 to 100000; more give more precise p-values."""
    bootstraps: int = 999
    """Bootstrap resamples per interval, 99 to 100000."""
    confidence: float = 0.95
    """Confidence level of the intervals, 0.5 to below 1."""
    residualize: str = ""
    """Repeat the analysis with these variables regressed out, comma-separated: tick, age, row, column, agent, episode,
    or names of features."""
    dendrogram_explorer: bool = False
    """Also write dendrogram_explorer.html, an interactive page of HDBSCAN's cluster tree."""
    seed: int = 42
    """Random seed, 0 to 4294967295."""
    name: str | None = None
    """Name of the folder of results; by default made of the dump and all settings that are not the defaults."""
    output_dir: OutputFolder = Path("analysis_results")
    """Folder that --name goes into."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The requested features, or sets of features."""
        return split(self.features)

    @property
    def thinning(self) -> Subsample:
        """Which records of each life to keep."""
        return Subsample(self.subsample, self.skip_first, self.seed)

    @property
    def inference(self) -> "Inference":
        """Settings of tests and intervals."""
        from analysis.statistics.inference import Inference

        return Inference(self.permutations, self.bootstraps, self.confidence, self.seed)

    @property
    def residual_names(self) -> tuple[str, ...]:
        """The variables to regress out, each once."""
        return tuple(dict.fromkeys(split(self.residualize)))

    @property
    def run_folder(self) -> Path:
        """The run's folder, named after the dump, subsampling, clustering and all other non-default settings."""
        clusters = "metric" if self.metric_only else f"c{self.hdbscan_min_cluster}"
        parts = [self.dump.resolve().name, f"sub{self.subsample}", clusters, *self._further_parts()]
        return self.output_dir / (self.name or "-".join(parts))

    def _further_parts(self) -> Iterator[str]:
        if self.cluster_before_umap:
            yield f"pca{self.pre_cluster_dims}"
        if self.umap_pairs:
            yield f"pairs{self.umap_pairs_dims}"
        for name, prefix in _IN_NAME.items():
            if (value := getattr(self, name)) != _DEFAULTS[name]:
                yield prefix if value is True else f"{prefix}{value}"
        if self.features != FEATURES_COMPARED:
            yield _joined(self.feature_names, "features")
        if self.residual_names:
            yield f"without_{_joined(self.residual_names, 'variables')}"

    @property
    def clustered_in(self) -> str:
        """A description of the space in which clusters are found."""
        if self.cluster_before_umap:
            return f"{self.pre_cluster_dims} principal components"
        return f"the {PROJECTION_NAMES[self.projection]} plane"

    @property
    def uses_umap(self) -> bool:
        """Whether anything is embedded with UMAP."""
        return self.umap_pairs or (self.projection == "umap" and not self.metric_only)

    def check(self) -> None:
        """Refuse values that are invalid for any dump, and combinations that would produce nothing.

        Raises:
            UserError: names the option and the allowed values.
        """
        check(
            self,
            name=result_name(self.name),
            subsample=at_least(self.subsample, 1),
            max_records=at_least(self.max_records, FEWEST_KEPT),
            skip_first=at_least(self.skip_first, 0),
            umap_neighbors=at_least(self.umap_neighbors, 2),
            umap_min_dist=between(self.umap_min_dist, 0, 1),
            tsne_perplexity=(1 <= self.tsne_perplexity < float("inf"), "1 or more"),
            hdbscan_min_cluster=at_least(self.hdbscan_min_cluster, 2),
            hdbscan_min_samples=at_least(self.hdbscan_min_samples, 1),
            pre_cluster_dims=at_least(self.pre_cluster_dims, 2),
            umap_pairs_dims=between(self.umap_pairs_dims, 2, 100),
            permutations=between(self.permutations, _FEWEST_DRAWS, _MOST_DRAWS),
            bootstraps=between(self.bootstraps, _FEWEST_DRAWS, _MOST_DRAWS),
            confidence=(0.5 <= self.confidence < 1, "0.5 to below 1"),
            seed=seed_value(self.seed),
        )
        if self.metric_only and self.dendrogram_explorer:
            raise UserError(
                "--metric-only finds no clusters, so --dendrogram-explorer has no tree: leave one of them out"
            )
        if self.metric_only and not (self.cluster_before_umap or self.feature_scatter or self.umap_pairs):
            raise UserError(
                "--metric-only leaves nothing to show: add --cluster-before-umap, --feature-scatter or --umap-pairs"
            )

    def choose_features(self, metadata: DumpMetadata) -> tuple["Feature", ...]:
        """Return the requested features, without choices in action heads that the dump does not have.

        Raises:
            UserError: a feature does not exist, none is named, or there are too few for `--feature-scatter`; or a
                variable to regress out does not exist.
        """
        from analysis.features import features_named, with_heads_of

        features = with_heads_of(metadata, features_named(self.feature_names))
        own = [feature.name for feature in features if not feature.choice]
        if self.feature_scatter and len(own) < 2:
            raise UserError(
                f"--feature-scatter needs two features or more that are no options of a choice: --features names "
                f"{own[0] if own else 'none'}{' only' * bool(own)}"
            )
        if self.residual_names:
            check_residual_names(self.residual_names, [feature.name for feature in features])
        return features

    def check_against(self, metadata: DumpMetadata) -> None:
        """Refuse settings that this dump cannot satisfy according to its metadata.

        Raises:
            UserError: the dump lacks the layer, or has too few units or records.
        """
        check_recorded(self.dump, metadata, self.layer)
        units = metadata.layers[self.layer]
        if self.cluster_before_umap and self.pre_cluster_dims > units:
            raise UserError(f"--pre-cluster-dims is {self.pre_cluster_dims}: layer {self.layer} has {units} units only")
        if self.projection == "pca" and not self.metric_only and units < 2:
            raise UserError(f"--projection pca needs two units: layer {self.layer} has {units}")
        self.check_enough(self.thinning.capacity(metadata.records, metadata.lives))

    def check_enough(self, records: int) -> None:
        """Refuse fewer records than the settings need.

        Raises:
            UserError: names the setting that needs more.
        """
        for setting, needed in self._needs():
            if records < needed:
                raise UserError(
                    f"too few records: --subsample {self.subsample} keeps at most {records} of {self.dump}, "
                    f"{setting} needs {needed}; lower the settings or extract more episodes"
                )

    def _needs(self) -> Iterator[tuple[str, int]]:
        yield "any output", 2
        if not self.metric_only:
            yield f"two clusters of --hdbscan-min-cluster {self.hdbscan_min_cluster}", 2 * self.hdbscan_min_cluster
            yield f"--hdbscan-min-samples {self.hdbscan_min_samples}", self.hdbscan_min_samples + 1
            if self.projection == "tsne":
                yield f"--tsne-perplexity {self.tsne_perplexity:g}", int(self.tsne_perplexity) + 2
        if self.uses_umap:
            yield f"--umap-neighbors {self.umap_neighbors}", self.umap_neighbors + 1
            yield "UMAP", _FEWEST_FOR_UMAP
        if self.umap_pairs:
            yield f"--umap-pairs-dims {self.umap_pairs_dims}", self.umap_pairs_dims + 2
        if self.cluster_before_umap:
            yield f"--pre-cluster-dims {self.pre_cluster_dims}", self.pre_cluster_dims + 1

    def without_effect(self) -> list[str]:
        """Return one line for each option that was set but has no effect, with the reason."""
        idle = {
            "without --cluster-before-umap": ["pre_cluster_dims"] * (not self.cluster_before_umap),
            "without --umap-pairs": ["umap_pairs_dims"] * (not self.umap_pairs),
            "since nothing is embedded with UMAP": ["umap_neighbors", "umap_min_dist"] * (not self.uses_umap),
            "with --metric-only": [*_OF_CLUSTERS] * self.metric_only,
            "without clusters and components": [*_OF_TESTS] * (self.metric_only and not self.cluster_before_umap),
            "unless t-SNE makes the plane": ["tsne_perplexity"] * (self.metric_only or self.projection != "tsne"),
        }
        changed = (
            (why, [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) != _DEFAULTS[name]])
            for why, names in idle.items()
        )
        return [f"no effect {why}: {', '.join(names)}" for why, names in changed if names]


_OF_CLUSTERS = (
    "projection", "hdbscan_min_cluster", "hdbscan_min_samples", "residualize",
)  # fmt: skip
_OF_TESTS = ("permutations", "bootstraps", "confidence")
_DEFAULTS = {field.name: field.default for field in fields(AnalysisSettings)}
_IN_NAME = {
    "skip_first": "skip", "projection": "", "hdbscan_min_samples": "s", "umap_neighbors": "n", "umap_min_dist": "d",
    "tsne_perplexity": "p", "permutations": "perm", "bootstraps": "boot", "confidence": "ci", "layer": "",
    "feature_scatter": "scatter", "dendrogram_explorer": "tree", "seed": "seed",
}  # fmt: skip


def check_residual_names(names: Sequence[str], features: Sequence[str]) -> None:
    """Refuse names that are neither in `OWN_VARIABLES` nor features of this run.

    Raises:
        UserError: names the first unknown one, and a similar name.
    """
    there = dict.fromkeys((*OWN_VARIABLES, *features))
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, there, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UserError(
                f"--residualize {name}: there is no such variable; {hint}there are {', '.join(OWN_VARIABLES)}, and "
                "features that --features names"
            )


def _joined(names: tuple[str, ...], what: str) -> str:
    """Return names as part of a folder's name, shortened to the length that file systems allow."""
    joined = "+".join(names)
    return joined if len(joined) <= _LONGEST_NAMES else f"{len(names)}{what}_{zlib.crc32(joined.encode()):08x}"
