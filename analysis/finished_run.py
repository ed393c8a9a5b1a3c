"""A finished analysis run, read back: proved to be what was written, and held against the dump it was made from."""

import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.files import read_json, sha256
from activation_store.schema import IDENTITY, METADATA_FILE
from analysis.run_folder import DONE_FILE, RUN_FILE
from user_error import UserError

LABELS_FILE = "cluster_labels.npz"
EMBEDDING_FILE = "embedding.npy"
SUMMARY_FILE = "summary.json"
_DIGITS = 12


@dataclass(frozen=True)
class FinishedRun:
    """What a run found. N records.

    Attributes:
        path: its folder.
        run: content of run.json: arguments, seed, input, versions.
        summary: content of summary.json.
        embedding: (N, 2) float32.
        label: cluster of each record, negative for noise, (N,) int64.
        identity: who and when each record is, by name, (N,) int64 each.
    """

    path: Path
    run: dict[str, Any]
    summary: dict[str, Any]
    embedding: np.ndarray
    label: np.ndarray
    identity: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.label)

    @property
    def key(self) -> str:
        """What tells this run's clusters from all others: the SHA-256 of its labels."""
        return sha256(self.path / LABELS_FILE)


def read_run(path: Path) -> FinishedRun:
    """Read a run that has an embedding and clusters.

    Raises:
        UserError: the folder is missing or no finished run, a file is missing, damaged or not what it should be, or the
            run's arrays do not fit each other.
    """
    if not (path / DONE_FILE).is_file():
        state = "does not exist" if not path.exists() else "is not a finished run"
        raise UserError(f"{path} {state}: give a folder that analyze_activations.py wrote")
    proofs = read_json(path / DONE_FILE)
    contents = {name: _proved(path, name, proofs) for name in (RUN_FILE, SUMMARY_FILE, LABELS_FILE, EMBEDDING_FILE)}
    run, summary = (read_json(path / name) for name in (RUN_FILE, SUMMARY_FILE))
    if not isinstance(run, dict) or not isinstance(summary, dict) or "input" not in run or "clusters" not in summary:
        raise UserError(f"{path} is a run of another version of this toolkit: analyse the dump again")
    try:
        embedding = np.load(BytesIO(contents[EMBEDDING_FILE]), allow_pickle=False)
        with np.load(BytesIO(contents[LABELS_FILE]), allow_pickle=False) as arrays:
            columns = {name: arrays[name].astype(np.int64) for name in ("label", *IDENTITY)}
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile):
        raise UserError(f"{path} holds arrays of another version of this toolkit: analyse the dump again") from None
    records = len(columns["label"])
    if embedding.shape != (records, 2) or {array.shape for array in columns.values()} != {(records,)}:
        raise UserError(f"{path / EMBEDDING_FILE} and {LABELS_FILE} do not fit each other: analyse the dump again")
    return FinishedRun(path, run, summary, embedding, columns.pop("label"), columns)


def dump_of(run: FinishedRun, given: Path | None) -> Path:
    """Return the folder of the dump that a run was made from, `given` where it was moved.

    Raises:
        UserError: it is not where it was, or what is there or was given is another dump.
    """
    recorded = Path(str(run.run.get("arguments", {}).get("dump", "")))
    folder = given or recorded
    if not (folder / METADATA_FILE).is_file():
        if given is not None:
            raise UserError(f"--dump {given} is not an activation dump: it holds no {METADATA_FILE}")
        raise UserError(f"the dump of {run.path} is not at {recorded} any more: say with --dump where it lies")
    wanted, there = str(run.run["input"].get(METADATA_FILE)), sha256(folder / METADATA_FILE)
    if wanted != there:
        raise UserError(
            f"{run.path} was made from another dump ({recorded}, metadata {wanted[:_DIGITS]}) than {folder} (metadata "
            f"{there[:_DIGITS]}): give the dump that it was made from with --dump, or analyse this one"
        )
    return folder


def _proved(path: Path, name: str, proofs: Any) -> bytes:
    """Return a file's bytes, which must be those that DONE.json vouches for."""
    try:
        proof = proofs["files"][name]["sha256"]
    except (KeyError, TypeError):
        raise UserError(
            f"{path} holds no {name}: only a run with an embedding and clusters can be explored; analyse the dump again"
        ) from None
    try:
        if sha256(path / name) != proof:
            raise UserError(f"{path / name} does not match its SHA-256: it is damaged; analyse the dump again")
        return (path / name).read_bytes()
    except OSError as error:
        raise UserError(f"{path / name} cannot be read ({error.strerror}): analyse the dump again") from None
