"""Saliency maps of runs of saliency.py that lie over views: of what a target owes to the observation of its tick."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.schema import IDENTITY, TILES_IN_VIEW
from analysis.runs.finished_files import open_finished
from common.array_files import arrays_of
from common.user_error import UserError

MAPS_FILE = "maps.npz"
SANITY_FILE = "sanity.json"
PARTS = ("tiles", "entities", "own row", "inventory", "task")
SALIENCY_SCRIPT = "saliency.py"
_ARRAYS = ("sample", "value", "tiles", "entities", "own", "inventory", "task")


@dataclass(frozen=True)
class _Sanity:
    failures: list[str]
    checks: dict[str, Any] | None = None  # missing in runs that only judged random orders and the last shuffling

    @property
    def warnings(self) -> tuple[str, ...]:
        older = "an older version checked them, too leniently: run saliency.py again"
        return tuple(self.failures) if self.checks is not None else (*self.failures, older)


@dataclass(frozen=True, eq=False)
class SaliencyMaps:
    """How the observation of a tick raises or lowers a target in that tick. M mapped ticks."""

    path: Path
    of: str  # what is attributed, as given to saliency.py
    method: str
    failures: tuple[str, ...]  # sanity checks that failed, or why they are not enough
    places: dict[str, np.ndarray]  # of the mapped ticks, (M,) each
    value: np.ndarray  # of the target at each of them, (M,); NaN where it is not defined
    tiles: np.ndarray  # of the tick's tiles, (M, 225)
    entities: np.ndarray  # by row of the tick's record, (M, E)
    parts: np.ndarray  # summed |attribution| of `PARTS`, (M, parts); NaN of those that the method says nothing of

    @property
    def facts(self) -> dict[str, Any]:
        """What pages say of them."""
        return {"run": self.path.resolve().name, "of": self.of, "failures": self.failures}


def read_saliency(path: Path) -> SaliencyMaps:
    """Read a run of saliency.py (UserError: it is no finished run of saliency.py, or damaged)."""
    finished = open_finished(path, SALIENCY_SCRIPT)
    if MAPS_FILE not in finished:
        raise UserError(f"{path} holds no {MAPS_FILE}: give a run of {SALIENCY_SCRIPT}")
    run = finished.description()
    try:
        arrays = arrays_of(finished.read(MAPS_FILE), (*IDENTITY, *_ARRAYS))
    except ValueError as error:
        raise UserError(f"{path / MAPS_FILE} is not as {SALIENCY_SCRIPT} writes it ({error}): run it again") from None
    if not _fits(arrays):
        raise UserError(f"{path / MAPS_FILE} holds no maps of {TILES_IN_VIEW} tiles: run {SALIENCY_SCRIPT} again")
    _, sanity = finished.read_json(SANITY_FILE, _Sanity)
    now = {name: arrays[name][:, -1].astype(np.float32) for name in ("tiles", "entities", "own", "inventory", "task")}
    tiles, entities, inventory = (np.nansum(np.abs(now[name]), axis=1) for name in ("tiles", "entities", "inventory"))
    parts = np.stack([tiles, entities, np.abs(now["own"]).sum(axis=1), inventory, np.abs(now["task"])], axis=1)
    return SaliencyMaps(
        path, str(run.arguments.get("of", "")), str(run.arguments.get("method", "")), sanity.warnings,
        {name: arrays[name] for name in IDENTITY}, arrays["value"], now["tiles"], now["entities"], parts,
    )  # fmt: skip


def _fits(arrays: dict[str, np.ndarray]) -> bool:
    """Tell whether arrays have the types and shapes that saliency.py gives them."""
    dimensions = dict.fromkeys((*IDENTITY, "sample", "value"), 1) | {"task": 2}
    tiles = arrays["tiles"]
    return (
        all(array.dtype.kind in "iuf" and array.ndim == dimensions.get(name, 3) for name, array in arrays.items())
        and all(len(array) == len(tiles) > 0 for array in arrays.values())
        and all(arrays[name].dtype.kind == "i" for name in (*IDENTITY, "sample"))
        and all(array.shape[1] == tiles.shape[1] > 0 for array in arrays.values() if array.ndim > 1)
        and tiles.shape[2] == TILES_IN_VIEW
        and arrays["entities"].shape[2] > 0
    )
