"""What lies beside a run of analyze_dynamics.py and can be shown with it: saliency maps, circuits, simulated lives."""

from collections.abc import Callable, Sequence
from pathlib import Path

from activation_store.reader import read_metadata
from activation_store.schema import SOURCE_DUMP, STARTS
from analysis.dynamics.circuit_graph import CIRCUIT_SCRIPT, GRAPH_FILE
from analysis.explorer.simulated import is_simulated
from analysis.runs.dynamics_run import Dynamics
from analysis.runs.finished_files import finished_beside, open_finished
from analysis.runs.saliency_maps import MAPS_FILE, SALIENCY_SCRIPT
from common.user_error import UserError

Say = Callable[[str], None]


def find_saliency(dynamics: Dynamics, named: Sequence[Path], say: Say) -> list[Path]:
    """Return the runs of saliency.py that are named, or else lie beside the run; those of the value come first.

    Raises:
        UserError: a folder that was named is no such run.
    """
    paths = _named_or_beside(dynamics, named, MAPS_FILE, SALIENCY_SCRIPT, "saliency maps", say)
    # The value is defined in every state.
    return sorted(paths, key=lambda path: open_finished(path).description().arguments.get("of") != "value")


def find_circuits(dynamics: Dynamics, named: Sequence[Path], say: Say) -> list[Path]:
    """Return the circuits that are named, or else lie beside the run.

    Raises:
        UserError: a folder that was named is no circuit.
    """
    return _named_or_beside(dynamics, named, GRAPH_FILE, CIRCUIT_SCRIPT, "circuits", say)


def find_simulated(dynamics: Dynamics, named: Path | None, say: Say) -> list[Path]:
    """Return the dump of simulated lives that is named, or else lies beside the recorded one and goes on from it.

    Raises:
        UserError: the dump that was named was recorded in the game.
    """
    if named is not None:
        if not is_simulated(named):
            raise UserError(f"--simulated {named} holds no simulated lives: give a dump written by simulate.py")
        return [named]
    dump = dynamics.dump.resolve()
    beside = dump.with_name(f"{dump.name}-simulated")
    if not _goes_on(dynamics, beside):
        return []
    say(f"with the simulated lives in {beside}")
    return [beside]


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
