"""Build a page that plays rollouts of a policy, real and simulated, beside what moves its memory in them.

    python panel.py analysis_results/RUN                                        # a run of analyze_dynamics.py
    python panel.py analysis_results/RUN --simulated activation_data/NAME-simulated -n 6000
    python panel.py analysis_results/RUN --saliency analysis_results/NAME-saliency-value-gradient -o panel.html

Runs of saliency.py and circuits beside RUN are shown too, and so is NAME-simulated beside the recorded dump NAME,
unless others are named. The page, RUN/panel.html by default, is a single file that works offline in any browser; see
docs/panel.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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
    """Runs of saliency.py of the recorded or the simulated dump, whose maps can be laid over views; by default those in
    the folder that holds RUN."""
    circuits: tuple[Path, ...] = ()
    """Runs of analyze_dynamics.py --circuit of the recorded dump, whose graphs are shown; by default those in the
    folder that holds RUN."""
    simulated: Path | None = None
    """Dump written by simulate.py; by default the one beside the recorded dump with -simulated after its name, if there
    is one of the same policy."""
    rollouts: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 6000
    """Maximum number of rollouts, at least 1, of up to 32 ticks each; with a simulated dump, half of them real."""
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

    from analysis.panel.content import find_circuits, find_saliency, find_sources, read_panel
    from analysis.panel.page import panel_page
    from analysis.runs.dynamics_run import read_dynamics
    from common.files import write_text
    from common.progress_view import step

    console = Console()
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    dynamics = read_dynamics(arguments.run, arguments.dump)
    sources = find_sources(dynamics, arguments.simulated, arguments.policy, say)
    saliency = find_saliency(dynamics, sources, arguments.saliency, say)
    circuits = find_circuits(dynamics, arguments.circuits, say)
    content = read_panel(dynamics, sources, saliency, circuits, arguments.rollouts, partial(step, console))
    with step(console, f"building the page of {len(content):,} rollouts, {len(content.ticks):,} ticks"):
        write_text(arguments.path, panel_page(content))
    say(f"{arguments.path}: {arguments.path.stat().st_size / 1e6:.1f} MB")


def check_values(arguments: Arguments) -> None:
    """Refuse invalid values before anything is read."""
    if arguments.path.suffix.lower() != ".html":
        raise UserError(f"-o {arguments.path} does not end in .html: the page is an HTML file")
    argument_checks.check(arguments, name=result_name(arguments.name), rollouts=at_least(arguments.rollouts, 1))


if __name__ == "__main__":
    command_line.run(main)
