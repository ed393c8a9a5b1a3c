"""Build an interactive page that links a run's embedding, agents' observations, their lives and the statistics.

    python explore.py analysis_results/RUN
    python explore.py analysis_results/RUN analysis_results/OTHER …     # what other runs of the dump say of its ticks
    python explore.py analysis_results/RUN activation_data/NAME-simulated    # what a world model expects beside it
    python explore.py analysis_results/NAME-lstm_cell-dynamics          # behaviours, and what moves the memory in them
    python explore.py analysis_results/RUN --dump where/the/dump/is/now -o elsewhere.html

The page, RUN/explorer.html by default, is a single file that works offline in any browser.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from dataclasses import dataclass
from pathlib import Path

import tyro

from common import argument_checks, command_line
from common.argument_checks import at_least, result_name
from common.result_places import OutputPlace, result_file
from common.user_error import UserError


@dataclass(frozen=True)
class Arguments:
    """Arguments of explore.py."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run of analyze_activations.py with an embedding and clusters, or of analyze_dynamics.py, such as
    analysis_results/RUN, and any further runs of the same dump whose clusters, codes, sparse features, directions,
    dynamics, circuits or saliency maps are shown beside it, or of intervene.py on its policy; and dumps that
    simulate.py wrote of lives that go on from it."""
    dump: Path | None = None
    """Activation dump that the runs analysed, if it has been moved since."""
    policy: Path | None = None
    """Checkpoint file of the policy, for the probabilities of actions; by default the one that a run of
    analyze_dynamics.py among the runs used."""
    name: str | None = None
    """Name of the page; by default explorer.html."""
    output: OutputPlace = None
    """Folder that the page goes into, by default RUN; or the page itself, such as page.html."""
    max_ticks: int = 400_000
    """Maximum number of ticks of each dump in the page, at least 1, about 40 bytes each. Larger dumps are sampled by
    whole lives."""
    max_tracks: int = 24
    """Maximum number of sparse features, or of directions, shown of each further run, at least 1, about 1 byte a tick
    each: the features that vary most, the first directions and components."""

    @property
    def path(self) -> Path:
        """Path of the page."""
        return result_file(self.output, self.name, self.runs[0] / "explorer.html")


def main() -> None:
    """Parse, check, read, build, and print where the page is."""
    arguments = command_line.parse(Arguments, __doc__)
    check_values(arguments)

    from rich.console import Console

    from common.progress_view import step

    console = Console()
    first, *others = arguments.runs
    with step(console, "loading the libraries"):
        from analysis.explorer.page.build import build_page, open_base
    limits = (arguments.max_ticks, arguments.max_tracks)
    build_page(open_base(first, arguments.dump), others, arguments.policy, limits, "explorer", arguments.path, console)


def check_values(arguments: Arguments) -> None:
    """Refuse invalid values before anything is read."""
    if not arguments.runs:
        raise UserError("name a run, for example: python explore.py analysis_results/RUN")
    if arguments.path.suffix.lower() != ".html":
        raise UserError(f"-o {arguments.path} does not end in .html: the page is an HTML file")
    argument_checks.check(
        arguments, name=result_name(arguments.name), max_ticks=at_least(arguments.max_ticks, 1),
        max_tracks=at_least(arguments.max_tracks, 1),
    )  # fmt: skip


if __name__ == "__main__":
    command_line.run(main)
