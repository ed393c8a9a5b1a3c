"""What a finished intervention run was: its run.json, and the files of directions or features that it edited along."""

from dataclasses import dataclass, fields
from pathlib import Path

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError

from activation_store.directions import Directions, read_directions
from activation_store.interventions import Arm, Readability
from activation_store.sparse_dictionary import SparseDictionary, read_dictionary
from analysis.interventions.effects.pairs import check_arms
from analysis.runs.finished_files import FinishedFiles, RunDescription
from common.checked_json import first_fault, read_small_json, without_checksum
from common.user_error import UserError


@dataclass(frozen=True)
class PlayedRun:
    """What the analysis needs of run.json."""

    __pydantic_config__ = ConfigDict(strict=True)

    seed: int
    arms: tuple[Arm, ...]
    erased: tuple[Readability, ...] = ()  # how well what its edits erased can be read
    equivalent_within: str = ""  # margins that were given before it was played, as the user wrote them
    through: tuple[str, ...] = ()  # paths along which its edits acted, if not along all


def read_run_file(path: Path) -> PlayedRun:
    """Read run.json; parts that the analysis does not need are ignored.

    Raises:
        UserError: it is missing, damaged or edited, is no intervention run's, or its arms cannot be analysed together.
    """
    content = read_small_json(path)
    if not isinstance(content, dict) or not {"seed", "arms"} <= set(content):
        raise UserError(f"{path} is not the run.json of an intervention run: it lists no arms")
    checked = without_checksum(content, str(path))
    try:
        names = [field.name for field in fields(PlayedRun)]
        needed = orjson.dumps({name: checked[name] for name in names if name in checked})
        run = TypeAdapter(PlayedRun).validate_json(needed)
    except ValidationError as error:
        raise UserError(f"{path} is damaged: {first_fault(error)}") from None
    if run.seed < 0:
        raise UserError(f"{path} is damaged: the seed {run.seed} is negative")
    try:
        check_arms(run.arms)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return run


def directions_of_run(finished: FinishedFiles, run: RunDescription) -> Directions:
    """Read the file of directions that a run edited along.

    Raises:
        UserError: the file is not there, or is no longer the one that the run read.
    """
    return read_directions(finished.input_file(run, "directions", "edited along a direction"))


def dictionary_of_run(finished: FinishedFiles, run: RunDescription) -> SparseDictionary:
    """Read the dictionary of sparse features that a run edited; arguments and errors as for `directions_of_run`."""
    return read_dictionary(finished.input_file(run, "features", "edited sparse features"))
