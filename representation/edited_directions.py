"""The files of directions and of sparse features that a finished run of intervene.py edited along."""

from pathlib import Path

from activation_store.directions import Directions, read_directions
from activation_store.files import sha256
from activation_store.sparse_dictionary import SparseDictionary, read_dictionary
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
    return read_directions(_file_of_run(finished, run, "directions", "edited along a direction"))


def dictionary_of_run(finished: FinishedFiles, run: RunDescription) -> SparseDictionary:
    """Read the dictionary of sparse features that a run edited; arguments and errors as for `directions_of_run`."""
    return read_dictionary(_file_of_run(finished, run, "features", "edited sparse features"))


def _file_of_run(finished: FinishedFiles, run: RunDescription, option: str, said: str) -> Path:
    path = Path(str(run.arguments.get(option)))
    if not path.exists():
        raise UserError(f"{finished.path} {said} of {path}, which is not there: put it back")
    if sha256(path) != run.input.get(option):
        raise UserError(f"{path} is no longer the file that {finished.path} used: play that run again")
    return path
