"""The commands of semantic_clusters.py, their options and ranges; loads nothing heavy."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from activation_store.layers import LSTM_HIDDEN, SEMANTIC_CODE, SEMANTIC_PLANE
from activation_store.recording import check_recorded, record_again
from activation_store.schema import DumpMetadata
from activation_store.selection import Subsample
from agent_zoo.agent_settings import BETA, MOST_CODES, PAIRWISE_WEIGHT
from analysis.clusters.settings import FEATURES_COMPARED, AnalysisSettings
from common.argument_checks import SEEDS, at_least, between, check, result_name, seed_value, split
from common.result_places import OutputFolder, OutputPlace, result_folder
from common.user_error import UserError

FEWEST_STATES_A_CODE = 10
"""Fewer states than this times the number of codes are too few to fit."""


@dataclass(frozen=True)
class FitSettings:
    """Fit a plane and a codebook to a dump, or read the codes that its policy learnt, and compare them."""

    dump: tyro.conf.Positional[Path]
    """Dump: a folder written by extract_activations.py, such as activation_data/NAME."""
    codes: int = 8
    """Number of codes, 2 to 512."""
    layer: str = LSTM_HIDDEN
    """Recorded layer to find codes in."""
    recorded: bool = False
    """Fit nothing: take the plane and the codes that the policy itself learnt (train.py --semantic.codes)."""
    plane_dimensions: int = 2
    """Dimensions of the plane, 2 or 3; pictures show the first two."""
    subsample: int = 10
    """Keep one in this many records of each life, at least 1 (all). The first record kept is random for each life."""
    max_records: int = 200_000
    """About how many records to keep at most, at least 1000, 15 kB of memory each. Where --subsample would keep
    more, fewer of each life are kept."""
    skip_first: int = 1
    """Number of ticks to skip at the start of each life, at least 0."""
    steps: int = 1000
    """Gradient steps, at least 100."""
    states: int = 1024
    """Number of states in each step, 16 to 8192, whose square the time grows with; those of an agent are at least 10
    ticks apart."""
    pairwise_weight: float = PAIRWISE_WEIGHT
    """Weight of the pairwise loss relative to the quantisation loss, at least 0."""
    beta: float = BETA
    """Weight of moving places to their codes relative to moving codes to places, at least 0."""
    features: str = FEATURES_COMPARED
    """Comma-separated features to compare codes by: sets (default, choices, ways, extended) or names from
    docs/features.md."""
    permutations: int = 999
    """Circular shifts per test, 99 to 100000."""
    bootstraps: int = 999
    """Bootstrap resamples per interval, 99 to 100000."""
    confidence: float = 0.95
    """Confidence level of the intervals, 0.5 to below 1."""
    seed: int = 42
    """Random seed, 0 to 4294967295."""
    name: str | None = None
    """Name of the folder of results; by default made of the dump, the codes and further settings."""
    output_dir: OutputFolder = Path("analysis_results")
    """Folder that --name goes into."""

    @property
    def read_layer(self) -> str:
        """The layer whose activations the codes are found in and compared by."""
        return SEMANTIC_CODE if self.recorded else self.layer

    @property
    def thinning(self) -> Subsample:
        """Which records of each life to keep."""
        return Subsample(self.subsample, self.skip_first, self.seed)

    @property
    def run_folder(self) -> Path:
        """The run's folder, named after the dump, the codes and all other non-default settings."""
        codes = "recorded" if self.recorded else f"k{self.codes}"
        usual = "-".join([self.dump.resolve().name, "semantic", codes, *self._further_parts()])
        return self.output_dir / (self.name or usual)

    def _further_parts(self) -> Iterator[str]:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _IN_NAME and value != field.default:
                yield f"{_IN_NAME[field.name]}{str(value).replace(',', '+')}"

    @property
    def analysis(self) -> "CodeAnalysis":
        """The settings with which the codes are compared."""
        return CodeAnalysis(
            dump=self.dump, subsample=self.subsample, max_records=self.max_records, skip_first=self.skip_first,
            layer=self.read_layer, features=self.features, projection="pca",
            hdbscan_min_cluster=2, hdbscan_min_samples=1,
            permutations=self.permutations, bootstraps=self.bootstraps, confidence=self.confidence, seed=self.seed,
            output_dir=self.output_dir,
        )  # fmt: skip

    def check(self) -> None:
        """Refuse values that are invalid for any dump.

        Raises:
            UserError: names the option and the allowed values.
        """
        check(
            self, name=result_name(self.name), codes=between(self.codes, 2, MOST_CODES),
            plane_dimensions=between(self.plane_dimensions, 2, 3), steps=at_least(self.steps, 100),
            states=between(self.states, 16, 8192), pairwise_weight=at_least(self.pairwise_weight, 0),
            beta=at_least(self.beta, 0), seed=seed_value(self.seed),
        )  # fmt: skip
        self.analysis.check()

    def check_against(self, metadata: DumpMetadata) -> None:
        """Refuse settings that this dump cannot satisfy according to its metadata.

        Raises:
            UserError: the dump lacks the layer, or has too few records.
        """
        if self.recorded and SEMANTIC_CODE not in metadata.layers:
            raise UserError(
                f"{self.dump} holds no layer {SEMANTIC_CODE}: its policy has no codebook, so leave out --recorded to "
                f"fit one; if it has, {record_again(self.dump, metadata)}"
            )
        if self.recorded and SEMANTIC_PLANE not in metadata.layers:
            raise UserError(f"{self.dump} holds no layer {SEMANTIC_PLANE}: {record_again(self.dump, metadata)}")
        check_recorded(self.dump, metadata, self.read_layer)
        self.check_enough(self.thinning.capacity(metadata.records, metadata.lives))

    def check_enough(self, states: int) -> None:
        """Refuse fewer states than the codes need.

        Raises:
            UserError: names both numbers.
        """
        needed = FEWEST_STATES_A_CODE * self.codes
        if not self.recorded and states < needed:
            raise UserError(
                f"too few states: --subsample {self.subsample} keeps at most {states} of {self.dump}, and --codes "
                f"{self.codes} needs {needed}; lower one of them or extract more episodes"
            )


class CodeAnalysis(AnalysisSettings):
    """The settings of an analysis whose clusters are codes."""

    @property
    def clustered_in(self) -> str:
        """A description of the space in which codes were found."""
        return "the semantic plane"


_IN_NAME = {
    "layer": "", "plane_dimensions": "d", "subsample": "sub", "skip_first": "skip", "steps": "steps",
    "states": "n", "pairwise_weight": "w", "beta": "beta", "features": "f-", "permutations": "perm",
    "bootstraps": "boot", "confidence": "ci", "seed": "seed",
}  # fmt: skip


@dataclass(frozen=True)
class RunArguments:
    """The run that a command works on."""

    run: tyro.conf.Positional[Path]
    """Run of `semantic_clusters.py fit`: a folder such as analysis_results/NAME-semantic-k8."""
    dump: Path | None = None
    """Activation dump that the run was made from, if it has been moved since."""


@dataclass(frozen=True)
class DescribeArguments(RunArguments):
    """Write a card for each code, a map of where they are, and labels.yaml for their names."""

    permutations: int = 199
    """Random orders of visits that what follows a code is compared with, at least 19."""
    bootstraps: int = 1000
    """Bootstrap resamples of episodes and lives for each interval, at least 100."""
    seed: int = 42
    """Random seed, 0 to 4294967295."""

    def check(self) -> None:
        """Refuse values that are invalid for any run."""
        check(
            self, permutations=at_least(self.permutations, 19), bootstraps=at_least(self.bootstraps, 100),
            seed=seed_value(self.seed),
        )  # fmt: skip


@dataclass(frozen=True)
class PlotArguments(RunArguments):
    """Draw the plane beside t-SNE and UMAP, and measure how well each keeps neighbourhoods."""

    on: Path | None = None
    """Another dump of the same policy to show, such as one of other maps; by default the run's own."""
    states: int = 3000
    """Maximum number of states, of whole lives drawn at random, 60 to 20000; time and memory grow with its square."""
    bootstraps: int = 1000
    """Bootstrap resamples of lives for each interval, at least 100."""

    def check(self) -> None:
        """Refuse values that are invalid for any run."""
        check(self, states=between(self.states, 60, 20_000), bootstraps=at_least(self.bootstraps, 100))


@dataclass(frozen=True)
class VideoArguments(RunArguments):
    """Write a film of each code, and one of all codes in a grid."""

    source: Annotated[Literal["best", "all"], tyro.conf.arg(name="from")] = "best"
    """Lives to show. best: the fifth with the highest sum of rewards, as in the paper; all: every life, since the best
    hide failures."""
    formats: str = "mp4,gif"
    """Comma-separated formats: mp4, gif."""
    seed: int = 42
    """Random seed of the stretches shown, 0 to 4294967295."""

    @property
    def format_names(self) -> tuple[str, ...]:
        """The formats."""
        return split(self.formats)

    def check(self) -> None:
        """Refuse values that are invalid for any run."""
        formats = self.format_names
        check(
            self,
            formats=(bool(formats) and set(formats) <= {"mp4", "gif"}, "mp4, gif or both"),
            seed=seed_value(self.seed),
        )


@dataclass(frozen=True)
class CompareArguments(RunArguments):
    """Measure the codes, and other ways to divide the same states."""

    states: int = 5000
    """Maximum number of states, of whole lives drawn at random, 200 to 100000."""
    bootstraps: int = 200
    """Bootstrap resamples of lives for each interval, at least 100."""
    name: str | None = None
    """Name of the folder of results in --output-dir."""
    output_dir: OutputPlace = None
    """Folder that --name goes into; without --name, that of the results; by default that of the run."""

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return result_folder(self.output_dir, self.name, self.run)

    def check(self) -> None:
        """Refuse values that are invalid for any run."""
        check(
            self,
            name=result_name(self.name),
            states=between(self.states, 200, 100_000),
            bootstraps=at_least(self.bootstraps, 100),
        )


@dataclass(frozen=True)
class AgreementArguments:
    """Show recorded lives to other trainings, and measure whether their codes divide them in the same way."""

    dump: tyro.conf.Positional[Path]
    """Activation dump of a policy with codes of its own, recorded with `--record standard`."""
    policies: str = ""
    """Comma-separated names of other trainings with codes, to see the same lives."""
    policies_dir: Path = Path("policies")
    """Folder of trained policies."""
    states: int = 5000
    """Maximum number of states to compare, one in ten of whole lives drawn at random, 200 to 100000."""
    bootstraps: int = 200
    """Bootstrap resamples of lives for each interval, at least 100."""
    seed: int = 42
    """Random seed of the lives, k-means and untrained networks, 0 to 4294967294."""
    name: str | None = None
    """Name of the folder of results; by default NAME-agreement."""
    output_dir: OutputPlace = None
    """Folder that --name goes into, by default analysis_results; without --name, that of the results."""

    @property
    def names(self) -> tuple[str, ...]:
        """The other trainings."""
        return split(self.policies)

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        usual = Path("analysis_results") / f"{self.dump.resolve().name}-agreement"
        return result_folder(self.output_dir, self.name, usual)

    def check(self) -> None:
        """Refuse values that are invalid for any dump."""
        check(
            self,
            name=result_name(self.name),
            states=between(self.states, 200, 100_000),
            bootstraps=at_least(self.bootstraps, 100),
            seed=between(self.seed, 0, SEEDS - 2),  # the second untrained network has the next one
        )
        if not self.names:
            raise UserError("name other trainings with --policies: codes of one training have none to agree with")


Command = (
    Annotated[FitSettings, tyro.conf.subcommand("fit")]
    | Annotated[DescribeArguments, tyro.conf.subcommand("describe")]
    | Annotated[PlotArguments, tyro.conf.subcommand("plot")]
    | Annotated[VideoArguments, tyro.conf.subcommand("videos")]
    | Annotated[CompareArguments, tyro.conf.subcommand("compare")]
    | Annotated[AgreementArguments, tyro.conf.subcommand("agreement")]
)
