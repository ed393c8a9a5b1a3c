"""Paths and names of checkpoints; nothing here opens one, so torch is not needed."""

import re
from collections.abc import Sequence
from pathlib import Path

from common.argument_checks import did_you_mean
from common.files import sha256, visible
from common.user_error import UserError

SHIPPED = Path("policies")
OWN = Path("my_policies")
"""Where trainings put policies; names are looked up there too, beside the shipped ones."""
SUFFIX = ".safetensors"
ORIGINAL_SUFFIX = ".pt"
TRAINER_STATE = "trainer_state.pt"
"""Name of the original's file of the optimiser's state, which holds no network."""


def folders_of(folder: Path) -> tuple[Path, ...]:
    """Return the folders in which a name is looked up: with the shipped policies also one's own."""
    return (SHIPPED, OWN) if folder == SHIPPED else (folder,)


def policy_path(folder: Path, name: str) -> Path:
    """Return the file of a policy, which may not be there; with the shipped policies also one's own are looked up."""
    paths = [place / f"{name}{SUFFIX}" for place in folders_of(folder)]
    return next((path for path in paths if path.exists()), paths[0])


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, sorted by name."""
    return visible(folder, f"*{SUFFIX}")


def not_imported(folder: Path) -> list[Path]:
    """Return the checkpoints of the original in a folder that have no policy beside them, sorted by name."""
    originals = visible(folder, f"*{ORIGINAL_SUFFIX}")
    return [path for path in originals if path.name != TRAINER_STATE and not path.with_suffix(SUFFIX).exists()]


def import_hint(path: Path) -> str:
    """Say how to import a checkpoint of the original into its own folder."""
    return f"{path} is a checkpoint of the original: `python import_policy.py {path} -o {path.parent}` imports it"


def policy_names(folder: Path, only: Sequence[str] = ()) -> list[str]:
    """Return the names of a folder's policies, or only the requested ones, which may be one's own beside the shipped.

    Raises:
        UserError: the folder has no policies or lacks a requested one, one was requested twice, is a checkpoint of the
            original that has not been imported, or two policies have its name, a shipped one and one's own.
    """
    folders = [place for place in folders_of(folder) if place.is_dir()] if only else [folder]
    if not all(map(Path.is_dir, folders or [folder])):
        raise UserError(f"{folder} is not a folder: name one that holds policies (*{SUFFIX})")
    names = [path.name.removesuffix(SUFFIX) for place in folders for path in list_checkpoints(place)]
    originals = {path.stem: path for place in folders for path in not_imported(place)}
    for name in only:
        if name in originals:
            raise UserError(import_hint(originals[name]))
    if not names and originals:
        raise UserError(import_hint(next(iter(originals.values()))))
    if not names:
        raise UserError(f"there is no policy (*{SUFFIX}) in {folder}: train one with `python train.py`")
    for number, name in enumerate(only):
        if name not in names:
            hint = did_you_mean(name, names)
            raise UserError(f"there is no policy {name!r} in {_named(folders)}: it holds {', '.join(names)}{hint}")
        if name in only[:number]:
            raise UserError(f"the policy {name!r} is named twice: two in one world must differ in name")
        called = [path for place in folders if (path := place / f"{name}{SUFFIX}").exists()]
        if len(called) > 1 and len(set(map(sha256, called))) > 1:
            raise UserError(f"{' and '.join(map(str, called))} are different policies of the same name: rename yours")
    return list(only) or names


def _named(folders: Sequence[Path]) -> str:
    return " or ".join(map(str, folders))


def find_checkpoints(folders: Sequence[Path], name: str, steps: int | None) -> list[Path]:
    """Return a policy's training checkpoints in some folders: the one after `steps` agent-steps, or all if None.

    Raises:
        UserError: there is none.
    """
    pattern = re.compile(rf"{re.escape(name)}_(\d{{10}}){re.escape(SUFFIX)}")
    checkpoints: dict[int, Path] = {}
    for folder in folders:
        for path in list_checkpoints(folder):
            if match := pattern.fullmatch(path.name):
                checkpoints.setdefault(int(match[1]), path)
    if not checkpoints:
        there = sorted({re.sub(r"_\d{10}$", "", path.stem) for place in folders for path in list_checkpoints(place)})
        raise UserError(f"no such checkpoint of {name}: there are none in {_named(folders)}{did_you_mean(name, there)}")
    if steps is not None and steps not in checkpoints:
        raise UserError(
            f"no such checkpoint of {name}: there are {', '.join(f'{number:,}' for number in sorted(checkpoints))}"
        )
    return [checkpoints[number] for number in (sorted(checkpoints) if steps is None else [steps])]
