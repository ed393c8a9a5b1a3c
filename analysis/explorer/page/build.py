"""How a page is built: from the run that it is about, and from what else is shown in it.

Beside a run of analyze_dynamics.py lie saliency maps, circuits and simulated lives that can be shown with it.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from activation_store.layers import LSTM_HIDDEN
from activation_store.reader import read_metadata
from activation_store.records import Records
from activation_store.schema import SOURCE_DUMP, STARTS
from analysis.dynamics.circuit_graph import CIRCUIT_SCRIPT, GRAPH_FILE
from analysis.explorer.base import NothingOfThePage, cluster_base
from analysis.explorer.behaviours import behaviour_base
from analysis.explorer.content import Explored, explored, is_simulated
from analysis.explorer.page.page import Layout, explorer_page
from analysis.explorer.tracks import everywhere, open_further, read_further
from analysis.runs.cluster_run import FinishedRun, read_run
from analysis.runs.dynamics_run import MOTION_FILE, Dynamics, read_dynamics
from analysis.runs.finished_files import FinishedFiles, finished_beside, open_finished
from analysis.runs.saliency_maps import MAPS_FILE, SALIENCY_SCRIPT
from common.files import write_text
from common.progress_view import Step, step
from common.user_error import UserError

if TYPE_CHECKING:
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
    odds = None
    if loaded or further.motions:
        try:
            odds = odds_of(content, loaded, show)
        except UserError as error:  # of the chosen actions alone, where a dump does not hold what others need
            say(f"{_WITHOUT}: {error}")
            odds = odds_of(content, None, show)
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
    from analysis.dynamics.tracks import load_policy_of  # imported here: other pages need no torch

    arguments = moving[0].arguments if moving else {}
    of_run, folder = arguments.get("policy"), arguments.get("policies_dir")
    path = named or (Path(of_run) if isinstance(of_run, str) else None)
    try:
        return load_policy_of(read_metadata(dump), dump, path, Path(str(folder or "policies")))[0]
    except UserError as error:
        if named is not None:
            raise
        say(f"{_WITHOUT}: {error}")
        return None


def odds_of(content: Explored, policy: "RecurrentPolicy | None", step: Step) -> dict[str, np.ndarray]:
    """Return the probabilities of what was chosen, and, with a policy, of its options, at the T + S ticks of a page.

    Simulated ticks come last. Under "", what was chosen in each action head, (T + S, heads) float32, NaN where it was
    not recorded; under names of heads, their options, (T + S, options) float32.

    Raises:
        UserError: a dump does not hold what they are computed from.
    """
    records = [content.seen.records, *(lives.seen.records for lives in content.simulated)]
    chosen = np.exp(np.concatenate([some.log_probability for some in records]))
    if policy is None:
        return {"": chosen}
    from analysis.recorded.recorded_observation import missing_for_probabilities, probabilities_of

    for dump in (content.run.dump, *(lives.dump for lives in content.simulated)):
        if missing := missing_for_probabilities(dump, read_metadata(dump)):
            raise UserError(missing)
    sizes: dict[str, int] = {}

    def shares(batch: Records) -> np.ndarray:
        odds = probabilities_of(policy, batch, content.seen.metadata)
        sizes.update({head: part.shape[1] for head, part in odds.items()})
        return np.concatenate([np.empty((len(batch), 0)), *odds.values()], axis=1)

    with step("probabilities of actions") as report:
        together = everywhere(content, shares, LSTM_HIDDEN, report, ("legal",))
    parts = np.split(together, np.cumsum(list(sizes.values()))[:-1], axis=1)
    return {"": chosen, **dict(zip(sizes, parts, strict=True))}


def companions(
    dynamics: Dynamics, saliency: Sequence[Path], circuits: Sequence[Path], simulated: Path | None, say: Say
) -> list[Path]:
    """Return the runs and dumps that are named, or else lie beside a run of analyze_dynamics.py.

    They are runs of saliency.py, those of the value first, circuits, and a dump of simulated lives that go on from the
    recorded one.

    Raises:
        UserError: a folder that was named is of another kind.
    """
    maps = _named_or_beside(dynamics, saliency, MAPS_FILE, SALIENCY_SCRIPT, "saliency maps", say)
    # The value is defined in every state.
    maps.sort(key=lambda path: open_finished(path).description().arguments.get("of") != "value")
    graphs = _named_or_beside(dynamics, circuits, GRAPH_FILE, CIRCUIT_SCRIPT, "circuits", say)
    if simulated is not None:
        if not is_simulated(simulated):
            raise UserError(f"--simulated {simulated} holds no simulated lives: give a dump written by simulate.py")
        return [*maps, *graphs, simulated]
    dump = dynamics.dump.resolve()
    beside = dump.with_name(f"{dump.name}-simulated")
    if not _goes_on(dynamics, beside):
        return [*maps, *graphs]
    say(f"with the simulated lives in {beside}")
    return [*maps, *graphs, beside]


def _named_or_beside(
    dynamics: Dynamics, named: Sequence[Path], file: str, script: str, what: str, say: Say
) -> list[Path]:  # fmt: skip
    for path in named:
        if file not in open_finished(path, script):
            raise UserError(f"{path} holds no {file}: give a run of {script} with {what}")
    if named:
        return list(named)
    paths = finished_beside(dynamics.path, script, file, dynamics.dump_sha256)
    if paths:
        say(f"with the {what} in {', '.join(path.name for path in paths)}")
    return paths


def _goes_on(dynamics: Dynamics, dump: Path) -> bool:
    """Tell whether a dump holds lives that go on from the run's dump, and the layers that the run is about."""
    try:
        if not is_simulated(dump):
            return False
        metadata = read_metadata(dump)
    except UserError:
        return False
    described = metadata.environment.get("simulated")
    return (
        isinstance(described, dict)
        and described.get(SOURCE_DUMP) == dynamics.dump_sha256
        and all(STARTS in episode for episode in metadata.episodes)
        and all(metadata.layers.get(layer) == units for layer, units in dynamics.units.items())
    )
