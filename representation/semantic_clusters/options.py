"""Options of the commands of semantic_clusters.py that work on a run, and their ranges."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

import argument_checks
from argument_checks import SEEDS, at_least, between, seed_value, split
from user_error import UserError


@dataclass(frozen=True)
class RunArguments:
    """The run that a command works on."""

    run: tyro.conf.Positional[Path]
    """Run of `semantic_clusters.py fit`: a folder such as analysis_results/NAME-semantic-k8."""
    dump: Path | None = None
    """Activation dump that the run was made from, if it has been moved since."""

    def check(self) -> None:
        """Refuse values that are invalid for any run."""


@dataclass(frozen=True)
class DescribeArguments(RunArguments):
    """Arguments of `semantic_clusters.py describe`."""

    permutations: int = 199
    """Random orders of visits that what follows a code is compared with, at least 19."""
    bootstraps: int = 1000
    """Bootstrap resamples of episodes and lives for each interval, at least 100."""
    seed: int = 42
    """Random seed, 0 to 4294967295."""

    def check(self) -> None:
        """Refuse values that are invalid for any run."""
        argument_checks.check(
            self, permutations=at_least(self.permutations, 19), bootstraps=at_least(self.bootstraps, 100),
            seed=seed_value(self.seed),
        )  # fmt: skip


@dataclass(frozen=True)
class PlotArguments(RunArguments):
    """Arguments of `semantic_clusters.py plot`."""

    on: Path | None = None
    """Another dump of the same policy to show, such as one of other maps; by default the run's own."""
    states: int = 3000
    """Maximum number of states, of whole lives drawn at random, 60 to 20000; time and memory grow with its square."""
    bootstraps: int = 1000
    """Bootstrap resamples of lives for each interval, at least 100."""

    def check(self) -> None:
        """Refuse values that are invalid for any run."""
        argument_checks.check(self, states=between(self.states, 60, 20_000), bootstraps=at_least(self.bootstraps, 100))


@dataclass(frozen=True)
class VideoArguments(RunArguments):
    """Arguments of `semantic_clusters.py videos`."""

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
        argument_checks.check(
            self,
            formats=(bool(formats) and set(formats) <= {"mp4", "gif"}, "mp4, gif or both"),
            seed=seed_value(self.seed),
        )


@dataclass(frozen=True)
class HoverArguments(RunArguments):
    """Arguments of `semantic_clusters.py hover`."""

    max_ticks: int = 400_000
    """Maximum number of ticks in the page, at least 1, about 40 bytes each. Larger dumps are sampled by whole lives."""

    def check(self) -> None:
        """Refuse values that are invalid for any run."""
        argument_checks.check(self, max_ticks=at_least(self.max_ticks, 1))


@dataclass(frozen=True)
class CompareArguments(RunArguments):
    """Arguments of `semantic_clusters.py compare`."""

    states: int = 5000
    """Maximum number of states, of whole lives drawn at random, 200 to 100000."""
    bootstraps: int = 200
    """Bootstrap resamples of lives for each interval, at least 100."""
    output_dir: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder of the results, created if missing; by default that of the run."""

    def check(self) -> None:
        """Refuse values that are invalid for any run."""
        argument_checks.check(
            self, states=between(self.states, 200, 100_000), bootstraps=at_least(self.bootstraps, 100)
        )


@dataclass(frozen=True)
class AgreementArguments:
    """Arguments of `semantic_clusters.py agreement`."""

    dump: tyro.conf.Positional[Path]
    """Activation dump of a policy with codes of its own, recorded with `--layers all` and
    `--fields Market,Task,ActionTargets`."""
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
    output_dir: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder of the results, created if missing; by default analysis_results/NAME-agreement."""

    @property
    def names(self) -> tuple[str, ...]:
        """The other trainings."""
        return split(self.policies)

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.output_dir or Path("analysis_results") / f"{self.dump.resolve().name}-agreement"

    def check(self) -> None:
        """Refuse values that are invalid for any dump."""
        argument_checks.check(
            self,
            states=between(self.states, 200, 100_000),
            bootstraps=at_least(self.bootstraps, 100),
            seed=between(self.seed, 0, SEEDS - 2),  # the second untrained network has the next one
        )
        if not self.names:
            raise UserError("name other trainings with --policies: codes of one training have none to agree with")
