"""The file of directions that a finished run of intervene.py edited along."""

from pathlib import Path

from activation_store.directions import Directions, read_directions
from activation_store.files import sha256
from analysis.runs.finished_files import FinishedFiles, RunDescription
from user_error import UserError


def directions_of_run(finished: FinishedFiles, run: RunDescription) -> Directions:
    """Read the file of directions that a run edited along.

    Args:
        finished: the run's folder.
        run: what its run.json says.

    Raises:
        UserError: the file is not there, or is no longer the one that the run read.
    """
    path = Path(str(run.arguments.get("directions")))
    if not path.exists():
        raise UserError(f"{finished.path} edited along a direction of {path}, which is not there: put it back")
    if sha256(path) != run.input.get("directions"):
        raise UserError(f"{path} is no longer the file that {finished.path} edited along: play that run again")
    return read_directions(path)
