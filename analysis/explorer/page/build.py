"""How a page is built: from the run that it is about, and from what else is shown in it."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from analysis.explorer.base import NothingOfThePage, cluster_base
from analysis.explorer.behaviours import behaviour_base
from analysis.explorer.content import Explored, explored
from analysis.explorer.page.page import Layout, explorer_page
from analysis.explorer.simulated import is_simulated
from analysis.explorer.tracks import open_further, read_further
from analysis.runs.dynamics_run import MOTION_FILE, Dynamics, read_dynamics
from analysis.runs.finished_files import FinishedFiles, RunDescription, open_finished
from analysis.runs.finished_run import FinishedRun, read_run
from common.files import write_text
from common.progress_view import Step, step
from common.user_error import UserError

if TYPE_CHECKING:
    import numpy as np

    from agent_zoo.base import RecurrentPolicy

Say = Callable[[str], None]
_WITHOUT = "without the probabilities of actions"


def open_base(path: Path, dump: Path | None) -> FinishedRun | Dynamics:
    """Open the run that a page is about: one with an embedding and clusters, or one of analyze_dynamics.py.

    Raises:
        UserError: as `read_run` and `read_dynamics`.
    """
    return read_dynamics(path, dump) if MOTION_FILE in open_finished(path) else read_run(path, dump)


def build_page(
    opened: FinishedRun | Dynamics, others: Sequence[Path], policy: Path | None, limits: tuple[int, int],
    layout: Layout, path: Path, console: Console, unnamed: Collection[Path] = (),
) -> None:  # fmt: skip
    """Build and write a page, and print where it is.

    Args:
        others: further runs, and dumps of simulated lives.
        unnamed: those of them that nobody named; they are left out where they say nothing of the page's lives.
        limits: how many ticks of each dump the page holds, and how many numbers of each further run.
        policy: checkpoint for the probabilities of actions; None for the one that a run of analyze_dynamics.py used.

    Raises:
        UserError: a run or dump cannot be read, or does not belong to the others.
    """
    show: Step = partial(step, console)
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    run = opened.path if isinstance(opened, Dynamics) else opened.clusters.path
    simulated = [other for other in others if is_simulated(other)]
    finished = open_further(run, opened.dump, [other for other in others if other not in simulated], simulated)
    if isinstance(opened, Dynamics):
        finished = [open_finished(run), *finished]
    loaded = _policy(finished, opened.dump, policy, say)
    base = behaviour_base(opened, show) if isinstance(opened, Dynamics) else cluster_base(opened, show)

    def left_out(other: Path, error: NothingOfThePage) -> None:
        if other not in unnamed:
            raise error
        say(f"without {other.name}: {error}")

    most_ticks, most_tracks = limits
    content = explored(base, most_ticks, show, simulated, left_out)
    further = read_further(finished, content, most_tracks, show, left_out)
    odds = _odds(content, loaded, show, say) if loaded or further.motions else None
    with show(f"building the page of {len(content.rows):,} points and {len(content.seen):,} ticks"):
        write_text(path, explorer_page(content, further, odds, layout))
    if len(content.lives) < content.lives_of_run:
        say(f"--max-ticks: {len(content.lives):,} of {content.lives_of_run:,} lives fit")
    say(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def _policy(finished: Sequence[FinishedFiles], dump: Path, named: Path | None, say: Say) -> "RecurrentPolicy | None":
    """Load the policy that was named, or the one that a run of analyze_dynamics.py used, if there is such a run."""
    moving = [run.description() for run in finished if MOTION_FILE in run]
    if named is None and not moving:
        return None
    from analysis.explorer.odds import policy_for  # imported here: other pages need no torch

    try:
        return policy_for(moving[0] if moving else RunDescription(), dump, named)
    except UserError as error:
        if named is not None:
            raise
        say(f"{_WITHOUT}: {error}")
        return None


def _odds(content: Explored, policy: "RecurrentPolicy | None", show: Step, say: Say) -> "dict[str, np.ndarray]":
    """Return the probabilities of actions; of the chosen ones alone where a dump does not hold what others need."""
    from analysis.explorer.odds import odds_of

    try:
        return odds_of(content, policy, show)
    except UserError as error:
        say(f"{_WITHOUT}: {error}")
        return odds_of(content, None, show)
