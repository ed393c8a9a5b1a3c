"""Build a page that plays lives of a policy, recorded and simulated, beside what moves its memory in them.

    python panel.py analysis_results/RUN                                        # a run of analyze_dynamics.py
    python panel.py analysis_results/RUN --simulated activation_data/NAME-simulated
    python panel.py analysis_results/RUN --saliency analysis_results/NAME-saliency-value-gradient -o panel.html

Runs of saliency.py and circuits beside RUN are shown too, and so is NAME-simulated beside the recorded dump NAME,
unless others are named. The page, RUN/panel.html by default, is that of explore.py in another layout: a single file
that works offline in any browser; see docs/panel.md.
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
    """Arguments of panel.py."""

    run: tyro.conf.Positional[Path]
    """Run of analyze_dynamics.py, such as analysis_results/NAME-lstm_cell-dynamics."""
    saliency: tuple[Path, ...] = ()
    """Runs of saliency.py of the recorded dump, whose maps can be laid over views; by default those in the folder that
    holds RUN."""
    circuits: tuple[Path, ...] = ()
    """Runs of analyze_dynamics.py --circuit of the recorded dump, whose graphs are shown; by default those in the
    folder that holds RUN."""
    simulated: Path | None = None
    """Dump written by simulate.py, of lives that go on from the recorded one; by default the one beside it with
    -simulated after its name, if there is one."""
    max_ticks: int = 400_000
    """Maximum number of ticks of each dump in the page, at least 1, about 40 bytes each. Larger dumps are sampled by
    whole lives."""
    max_components: int = 24
    """Maximum number of components in the page, at least 1, about 1 byte a tick each."""
    dump: Path | None = None
    """Recorded dump that the run was made from, if it has been moved since."""
    policy: Path | None = None
    """Checkpoint file of the policy, for the probabilities of actions; by default the one that the run used."""
    name: str | None = None
    """Name of the page; by default panel.html."""
    output: OutputPlace = None
    """Folder that the page goes into, by default RUN; or the page itself, such as page.html."""

    @property
    def path(self) -> Path:
        """Path of the page."""
        return result_file(self.output, self.name, self.run / "panel.html")


def main() -> None:
    """Parse, check, read, build, and print where the page is."""
    arguments = command_line.parse(Arguments, __doc__)
    check_values(arguments)

    from functools import partial

    from rich.console import Console

    from analysis.runs.dynamics_run import read_dynamics
    from common.progress_view import step

    console = Console()
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    dynamics = read_dynamics(arguments.run, arguments.dump)
    with step(console, "loading the libraries"):
        from analysis.explorer.page.build import build_page, companions
    beside = companions(dynamics, arguments.saliency, arguments.circuits, arguments.simulated, say)
    named = {*arguments.saliency, *arguments.circuits, arguments.simulated}
    unnamed = [path for path in beside if path not in named]
    limits = (arguments.max_ticks, arguments.max_components)
    build_page(dynamics, beside, arguments.policy, limits, "panel", arguments.path, console, unnamed)


def check_values(arguments: Arguments) -> None:
    """Refuse invalid values before anything is read."""
    if arguments.path.suffix.lower() != ".html":
        raise UserError(f"-o {arguments.path} does not end in .html: the page is an HTML file")
    argument_checks.check(
        arguments, name=result_name(arguments.name), max_ticks=at_least(arguments.max_ticks, 1),
        max_components=at_least(arguments.max_components, 1),
    )  # fmt: skip


if __name__ == "__main__":
    command_line.run(main)
