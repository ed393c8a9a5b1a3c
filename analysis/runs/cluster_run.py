"""Read the labels of a finished cluster run, verified to be complete and from the given dump."""

import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.files import read_json, sha256
from activation_store.schema import IDENTITY, METADATA_FILE
from activation_store.subsample import Subsample
from analysis.runs.run_folder import DONE_FILE, RUN_FILE
from user_error import UserError

LABELS_FILE = "cluster_labels.npz"
_DIGITS_SHOWN = 12


@dataclass(frozen=True)
class ClusterRun:
    """The labels found by analyze_activations.py. N labelled records.

    Attributes:
        path: folder of the run.
        arguments: of the run, as in its run.json.
        dump_sha256: of the dump's metadata.json, which in turn lists the hash of every file of that dump.
        labels_sha256: of the file of labels.
        places: identity of each labelled record, the columns of `IDENTITY`, (N,) int64 each.
        label: cluster from 0, or `clustering.NOISE`, (N,) int64.
    """

    path: Path
    arguments: dict[str, Any]
    dump_sha256: str
    labels_sha256: str
    places: dict[str, np.ndarray]
    label: np.ndarray

    @property
    def clusters(self) -> list[int]:
        """Clusters that the run found, excluding noise."""
        return [int(label) for label in np.unique(self.label) if label >= 0]

    @property
    def layer(self) -> str:
        """The layer whose activations were clustered.

        Raises:
            UserError: run.json does not say.
        """
        return str(self._argument("layer"))

    @property
    def subsample(self) -> Subsample:
        """Which records of each life were kept.

        Raises:
            UserError: run.json does not say.
        """
        return Subsample(*(int(self._argument(name)) for name in ("subsample", "skip_first", "seed")))

    def _argument(self, name: str) -> Any:
        if name not in self.arguments:
            raise UserError(f"{self.path / RUN_FILE} does not name the run's {name}: analyse the dump again")
        return self.arguments[name]


def read_cluster_run(path: Path, dump: Path) -> ClusterRun:
    """Read a finished run's labels, after verifying their hash and that they are from this dump.

    Args:
        path: folder of analyze_activations.py.
        dump: folder of extract_activations.py.

    Raises:
        UserError: the run is unfinished or damaged, holds no labels, or was made from another dump.
    """
    if not (path / DONE_FILE).is_file():
        raise UserError(f"{path} is not a finished run: give a folder that analyze_activations.py wrote")
    try:
        proof = read_json(path / DONE_FILE)["files"][LABELS_FILE]["sha256"]  # type: ignore[index]
        run: Any = read_json(path / RUN_FILE)
        made_from, arguments = run["input"][METADATA_FILE], dict(run.get("arguments", {}))
        content = (path / LABELS_FILE).read_bytes()
    except (KeyError, TypeError, ValueError, AttributeError, OSError):
        raise UserError(
            f"{path} lacks {LABELS_FILE} or its checksum: give a run of analyze_activations.py that clusters (with "
            "--metric-only it does not), or analyse the dump again"
        ) from None
    if sha256(path / LABELS_FILE) != proof:
        raise UserError(f"{path / LABELS_FILE} does not match its SHA-256: it is damaged; analyse the dump again")
    _check_dump(path, dump, made_from, arguments)
    arrays = _labels(path / LABELS_FILE, content)
    label = arrays.pop("label")
    return ClusterRun(path, arguments, made_from, proof, arrays, label)


def _check_dump(path: Path, dump: Path, made_from: str, arguments: dict[str, Any]) -> None:
    given = sha256(dump / METADATA_FILE)
    if given == made_from:
        return
    raise UserError(
        f"{path} was made from another dump ({arguments.get('dump', 'unnamed')}, SHA-256 of its {METADATA_FILE} "
        f"{str(made_from)[:_DIGITS_SHOWN]}...) than {dump} ({given[:_DIGITS_SHOWN]}...), or from one before it was "
        "converted: give the dump that it was made from, or analyse this one"
    )


def _labels(path: Path, content: bytes) -> dict[str, np.ndarray]:
    try:
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            labels = {name: arrays[name] for name in (*IDENTITY, "label")}
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile):
        raise UserError(f"{path} holds no labels of records: analyse the dump again") from None
    shapes = {array.shape for array in labels.values()}
    if len(shapes) > 1 or any(array.ndim != 1 or array.dtype.kind != "i" for array in labels.values()):
        raise UserError(f"{path} holds no labels of records: analyse the dump again")
    return labels
