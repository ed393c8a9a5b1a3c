"""Read a finished run with an embedding and clusters, verified to be complete and from the given dump."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.files import read_json, sha256
from activation_store.schema import METADATA_FILE
from analysis.runs.cluster_run import LABELS_FILE, ClusterRun, read_cluster_run
from analysis.runs.run_folder import DONE_FILE, RUN_FILE
from user_error import UserError

EMBEDDING_FILE = "embedding.npy"
SUMMARY_FILE = "summary.json"
_NEEDED = {"features", "clusters", "method", "noise_records", "surviving_given_time"}


@dataclass(frozen=True)
class FinishedRun:
    """The results of a run. N records.

    Attributes:
        clusters: the labels, and the identity of each record.
        dump: current folder of the dump that it was made from.
        seed: of the run.
        summary: content of summary.json.
        embedding: (N, 2) float32.
    """

    clusters: ClusterRun
    dump: Path
    seed: int
    summary: dict[str, Any]
    embedding: np.ndarray

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.clusters.path.resolve().name

    @property
    def permutations(self) -> int:
        """Permutations in each of the run's tests."""
        return int(self.summary["method"]["permutations"])


def read_run(path: Path, dump: Path | None) -> FinishedRun:
    """Read a run and find its dump, at its original path or at `dump`.

    Raises:
        UserError: the folder is missing or not a finished run; a file is missing, damaged or of another version; or the
            dump is missing or a different one.
    """
    if not (path / DONE_FILE).is_file():
        state = "is not a finished run" if path.exists() else "does not exist"
        raise UserError(f"{path} {state}: give a folder that analyze_activations.py wrote")
    for name in (EMBEDDING_FILE, LABELS_FILE):
        if not (path / name).is_file():
            raise UserError(f"{path} holds no {name}: only a run with an embedding and clusters can be explored")
    run: Any = read_json(path / RUN_FILE)
    folder = dump or _recorded_dump(path, run)
    if not (folder / METADATA_FILE).is_file():
        raise UserError(f"--dump {folder} is not an activation dump: it holds no {METADATA_FILE}")
    clusters = read_cluster_run(path, folder)
    summary = read_json(path / SUMMARY_FILE)
    if not isinstance(summary, dict) or not summary.keys() >= _NEEDED:
        raise UserError(f"{path / SUMMARY_FILE} is of another version of this toolkit: analyse the dump again")
    embedding = _embedding(path)
    if embedding.shape != (len(clusters.label), 2):
        raise UserError(f"{path / EMBEDDING_FILE} and {LABELS_FILE} do not match: analyse the dump again")
    return FinishedRun(clusters, folder, int(run.get("seed", 0)), summary, embedding)


def _recorded_dump(path: Path, run: Any) -> Path:
    try:
        folder = Path(run["arguments"]["dump"])
    except (KeyError, TypeError):
        raise UserError(f"{path / RUN_FILE} does not name the run's dump: give its folder with --dump") from None
    if not (folder / METADATA_FILE).is_file():
        raise UserError(f"the dump of {path} is no longer at {folder}: give its folder with --dump")
    return folder


def _embedding(path: Path) -> np.ndarray:
    """Return the embedding, after verifying its hash in DONE.json."""
    try:
        proof = read_json(path / DONE_FILE)["files"][EMBEDDING_FILE]["sha256"]  # type: ignore[index]
        if sha256(path / EMBEDDING_FILE) != proof:
            raise UserError(
                f"{path / EMBEDDING_FILE} does not match its SHA-256: it is damaged; analyse the dump again"
            )
        return np.load(BytesIO((path / EMBEDDING_FILE).read_bytes()), allow_pickle=False)
    except (KeyError, TypeError, ValueError, OSError, EOFError):
        raise UserError(f"{path / EMBEDDING_FILE} is not an embedding: analyse the dump again") from None
