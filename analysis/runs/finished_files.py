"""The files of a finished run: none is read unless it is what `DONE.json` says was written."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from activation_store.directions import DIRECTIONS_FILE, Directions, read_directions
from activation_store.schema import METADATA_FILE
from analysis.runs.run_folder import DONE_FILE, RUN_FILE
from analysis.statistics.resampling import Estimate
from common.checked_json import first_fault, read_small_json
from common.files import read_bytes, sha256
from common.user_error import UserError

Content = TypeVar("Content")

EFFECTS_FILE = "effects.json"


@dataclass(frozen=True)
class StoredEstimate:
    """An estimate as effects.json of intervene.py has it; null stands for what is not finite."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    def estimate(self) -> Estimate:
        """Return it with infinity for what is not finite."""
        return Estimate(*(float("inf") if number is None else number for number in (self.value, self.low, self.high)))


@dataclass(frozen=True)
class RunDescription:
    """What run.json says of a run, as far as others need it."""

    input: dict[str, str] = field(default_factory=dict)  # SHA-256 of the files that it was made from, by name
    arguments: dict[str, Any] = field(default_factory=dict)  # of its command line, by name
    seed: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True)
class FinishedFiles:
    """A folder whose run was completed, with the SHA-256 of each file that the run wrote, by name."""

    path: Path
    sha256: dict[str, str]

    def __contains__(self, name: str) -> bool:
        """Tell whether the run wrote a file of that name."""
        return name in self.sha256

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            UserError: the run wrote no such file, or it is missing, or its content is not what was written.
        """
        if name not in self:
            raise UserError(f"{self.path} holds no {name} that its {DONE_FILE} lists: analyse the dump again")
        content = read_bytes(self.path / name)
        if hashlib.sha256(content).hexdigest() != self.sha256[name]:
            raise UserError(
                f"{self.path / name} does not match its SHA-256 in {DONE_FILE}: it is damaged or was edited; analyse "
                "the dump again"
            )
        return content

    def read_json(self, name: str, shape: type[Content]) -> tuple[dict[str, Any], Content]:
        """Return the content of a JSON file, and the same as a data class; keys that it does not know are ignored.

        Raises:
            UserError: as `read`; or the content is not JSON, or does not fit the data class.
        """
        path, content = self.path / name, self.read(name)
        try:
            checked = TypeAdapter(shape).validate_json(content, strict=True)
            return orjson.loads(content), checked
        except (ValidationError, orjson.JSONDecodeError) as error:
            fault = first_fault(error) if isinstance(error, ValidationError) else "it is not JSON"
            raise UserError(
                f"{path} is damaged or of another version of this toolkit ({fault}): analyse the dump again"
            ) from None

    def directions(self) -> Directions:
        """Return the run's directions (UserError: as `read`; or the file holds no directions)."""
        self.read(DIRECTIONS_FILE)  # refuses one that was changed
        return read_directions(self.path / DIRECTIONS_FILE)

    def input_file(self, run: RunDescription, option: Literal["directions", "features"]) -> Path:
        """Return a file that an intervention was given by an option.

        Raises:
            UserError: the file is not there, or is no longer the one that the run read.
        """
        path = Path(str(run.arguments.get(option)))
        if not path.exists():
            edited = {"directions": "edited along a direction", "features": "edited sparse features"}[option]
            raise UserError(f"{self.path} {edited} of {path}, which is not there: put it back")
        if sha256(path) != run.input.get(option):
            raise UserError(f"{path} is no longer the file that {self.path} used: play that run again")
        return path

    def description(self) -> RunDescription:
        """Return what run.json says (UserError: as `read_json`)."""
        return self.read_json(RUN_FILE, RunDescription)[1]


def open_finished(path: Path, script: str = "") -> FinishedFiles:
    """Open the folder of a finished run.

    Args:
        script: that writes such folders, for messages; by default that for clusters.

    Raises:
        UserError: there is no such folder, its run did not end, or its DONE.json is damaged.
    """
    if not (path / DONE_FILE).is_file():
        if (path / RUN_FILE).is_file():
            begun_by = script or "the script that began it"
            raise UserError(f"{path} is not a finished run: let {begun_by} end, or repeat it")
        state = "is not a finished run" if path.exists() else "does not exist"
        raise UserError(f"{path} {state}: give a folder that {script or 'analyze_activations.py'} wrote")
    done: Any = read_small_json(path / DONE_FILE)
    try:
        return FinishedFiles(path, {str(name): str(proof["sha256"]) for name, proof in done["files"].items()})
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{path / DONE_FILE} is damaged: analyse the dump again") from None


def finished_beside(run: Path, script: str, file: str, dump_sha256: str) -> list[Path]:
    """Return the folders beside a run that are finished runs of a script on a dump, by name.

    Args:
        file: that tells such runs from others.
        dump_sha256: of the dump's metadata.
    """
    folders = []
    for path in sorted(run.resolve().parent.iterdir()):
        if not (path / DONE_FILE).is_file() or not (path / file).is_file():
            continue
        try:
            made_from = open_finished(path, script).description().input.get(METADATA_FILE)
        except UserError:
            continue
        if made_from == dump_sha256:
            folders.append(path)
    return folders
