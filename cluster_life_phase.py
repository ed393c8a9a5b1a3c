"""Test whether clusters follow the phases of a life: shares over life and ticks, dwell times and transitions.

    python cluster_life_phase.py activation_data/NAME --cluster-dir analysis_results/RUN
    python cluster_life_phase.py activation_data/NAME --cluster-dir analysis_results/RUN --n-bins 20 --min-lifespan 50

Figures, life_phase.txt and life_phase.json are written to analysis_results/RUN-life_phase-..., named after the
settings.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from activation_store.reader import read_identity, read_metadata
from common import argument_checks, command_line
from common.argument_checks import at_least, between, result_name, seed_value
from common.progress_view import say, step
from common.result_places import OutputFolder
from common.user_error import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.life.phases.results import LifePhases
    from analysis.runs.run_folder import RunFolder


@dataclass(frozen=True)
class Arguments:
    """Arguments of cluster_life_phase.py."""

    dump: tyro.conf.Positional[Path]
    """Dump: a folder written by extract_activations.py, such as activation_data/NAME."""
    cluster_dir: Path
    """Run of analyze_activations.py on this dump, with clusters."""
    n_bins: int = 20
    """Number of bins for each life and for the episode, 2 to 1000."""
    min_lifespan: int = 50
    """Shortest life to include, in ticks, at least 1."""
    permutations: int = 1000
    """Random shifts and orders that estimate chance, at least 19. The smallest possible p is 1 / (permutations + 1)."""
    bootstraps: int = 1000
    """Bootstrap resamples of episodes and lives for each interval, at least 100."""
    seed: int = 42
    """Random seed, 0 to 4294967295."""
    name: str | None = None
    """Name of the folder of results; by default made of the clusters and the settings."""
    output: OutputFolder = Path("analysis_results")
    """Folder that --name goes into."""

    @property
    def folder(self) -> Path:
        """Folder of results."""
        return self.output / (self.name or self.run_name)

    @property
    def run_name(self) -> str:
        """Name of the folder of results, from the cluster run, the bins, the shortest life and non-default settings."""
        named = {"permutations": "p", "bootstraps": "r", "seed": "seed"}
        changed = [
            f"-{mark}{getattr(self, name)}"
            for name, mark in named.items()
            if getattr(self, name) != getattr(Arguments, name)
        ]
        return "".join([f"{self.cluster_dir.resolve().name}-life_phase-b{self.n_bins}-l{self.min_lifespan}", *changed])


def main() -> None:
    """Parse, check, propagate labels, count, test, draw, and print where the results are."""
    arguments = command_line.parse(Arguments, __doc__)
    check_values(arguments)
    metadata = read_metadata(arguments.dump)

    from rich.console import Console

    from analysis.life.phases.results import as_text, life_phases
    from analysis.runs.cluster_run import read_cluster_run
    from analysis.runs.propagated_labels import label_records
    from analysis.runs.run_folder import RunFolder, description
    from analysis.statistics.resampling import Bootstrap

    console = Console()
    run = read_cluster_run(arguments.cluster_dir, arguments.dump)
    lives = check_lifespans(arguments)
    bootstrap = Bootstrap(resamples=arguments.bootstraps, seed=arguments.seed)
    described = description(arguments, arguments.dump, metadata, cluster_labels_sha256=run.labels_sha256)
    with RunFolder(arguments.folder, described) as folder:
        propagated = label_records(run, arguments.dump, folder, console)
        with step(console, f"testing against {arguments.permutations:,} random shifts and orders") as report:
            results = life_phases(
                propagated, lives, arguments.n_bins, arguments.min_lifespan, arguments.permutations, bootstrap, report
            )
        draw(results, f"{metadata.policy}: clusters of {run.path.resolve().name}", folder, console)
        folder.save_json("life_phase.json", results.to_json())
        folder.save_text("life_phase.txt", as_text(results))
    say(console, as_text(results))
    say(console, f"figures and numbers: {folder.path}")


def check_values(arguments: Arguments) -> None:
    """Refuse values that are invalid for any dump."""
    argument_checks.check(
        arguments,
        name=result_name(arguments.name),
        n_bins=between(arguments.n_bins, 2, 1000),
        min_lifespan=at_least(arguments.min_lifespan, 1),
        permutations=at_least(arguments.permutations, 19),
        bootstraps=at_least(arguments.bootstraps, 100),
        seed=seed_value(arguments.seed),
    )


def check_lifespans(arguments: Arguments) -> int:
    """Refuse a dump without a life that is long enough; return its number of lives."""
    from analysis.life.selection import life_spans

    lives, ticks = life_spans(read_identity(arguments.dump))
    if ticks[-1] < arguments.min_lifespan:
        raise UserError(
            f"no life of {arguments.dump} lasts --min-lifespan {arguments.min_lifespan} ticks: the longest of "
            f"{len(lives)} lasts {ticks[-1]}; lower it"
        )
    return len(lives)


def draw(results: "LifePhases", heading: str, folder: "RunFolder", console: "Console") -> None:
    """Draw the three figures."""
    from analysis.life.phases.figure import life_phase_figure, transitions_figure
    from analysis.life.phases.results import caption

    labels = results.sequences.labels
    with step(console, "drawing"):
        for name, course, time in (
            ("life_phase.png", results.by_phase, "share of the life elapsed"),
            ("life_tick.png", results.by_tick, "tick of the episode"),
        ):
            figure = life_phase_figure(
                course.shares, course.association, labels, time, heading, caption(results, course)
            )
            folder.save_figure(name, figure)
        text = "from one tick to the next; noise is a state of its own"
        folder.save_figure(
            "transitions.png", transitions_figure(results.transitions, results.dwelling, labels, heading, text)
        )


if __name__ == "__main__":
    command_line.run(main)
