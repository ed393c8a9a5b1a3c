"""What is in the folders of results: dumps, runs and trainings, with their size, age and the command that made them."""

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from activation_store.reader import read_metadata
from activation_store.recording import command_of_dump
from activation_store.schema import COMMAND, METADATA_FILE
from common.checked_json import read_small_json
from common.files import visible
from common.user_error import UserError

FOLDERS = (
    "activation_data", "analysis_results", "interventions", "world_models", "agent_plots", "runs", "demo",
    "study_results",
)  # fmt: skip
"""Where scripts write by default."""
_DONE, _RUN, _TRAINING, _MODEL = "DONE.json", "run.json", "settings.json", "model.safetensors"
_DEEPEST = 3
_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60))


Row = tuple[str, str, str, str, str]
"""Of one folder of results: its path, its kind, the size of all its files, the age of the newest, and the command that
made it, "" if nothing says so."""


def rows(folders: Sequence[Path]) -> list[Row]:
    """Return all dumps, runs, world models and trainings in some folders, and in those inside of them, by name."""
    now = time.time()
    return [row for folder in folders for row in _inside(folder, _DEEPEST, now)]


def _inside(folder: Path, depth: int, now: float) -> Iterator[Row]:
    if not folder.is_dir():
        return
    if known := _known(folder):
        kind, command = known
        files = list(_files(folder))
        total = sum(file.st_size for file in files)
        made = max((file.st_mtime for file in files), default=folder.stat().st_mtime)
        size = f"{total / 1e9:.1f} GB" if total >= 1e9 else f"{total / 1e6:.1f} MB"
        yield str(folder), kind, size, _age(now - made), command
    elif depth:
        for path in visible(folder, "*"):
            yield from _inside(path, depth - 1, now)


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Yield what the system tells of a folder's files; one that goes meanwhile, as in a training, is left out."""
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                status = Path(place, name).stat()
                if stat.S_ISREG(status.st_mode):
                    yield status


def _known(folder: Path) -> tuple[str, str] | None:
    """Return what a folder holds, and the command that made it; None for no results."""
    try:
        if (folder / METADATA_FILE).is_file():
            metadata = read_metadata(folder)
            if metadata.origin == "simulated":
                return "simulated dump", str(metadata.environment.get(COMMAND) or "")
            return "dump", command_of_dump(folder, metadata)
        for name in (_DONE, _RUN):
            if (folder / name).is_file():
                return "run", str(_json(folder / name).get("command") or "")
        if (folder / _TRAINING).is_file():
            content = _json(folder / _TRAINING)
            return "training" if "agent" in content else "world model", str(content.get("command") or "")
        return ("world model", "") if (folder / _MODEL).is_file() else None
    except UserError as error:
        return "damaged", str(error)


def _json(path: Path) -> dict[str, Any]:
    content = read_small_json(path)
    return content if isinstance(content, dict) else {}


def _age(seconds: float) -> str:
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "just now"
