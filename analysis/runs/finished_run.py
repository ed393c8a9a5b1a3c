"""Read a finished run with an embedding and clusters, verified to be complete and from the given dump."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from activation_store.schema import METADATA_FILE
from analysis.runs.cluster_run import LABELS_FILE, ClusterRun, read_cluster_run
from analysis.runs.codebook_rule import read_names
from analysis.runs.finished_files import FinishedFiles, RunDescription, open_finished
from analysis.runs.run_folder import RUN_FILE
from common.array_files import array_of
from common.user_error import UserError

EMBEDDING_FILE = "embedding.npy"
SUMMARY_FILE = "summary.json"
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class _Feature:  # here and below: what readers of summary.json use of it
    name: str
    unit: str
    definition: str


@dataclass(frozen=True)
class _Effect:
    survives: bool
    survives_given_time: bool


@dataclass(frozen=True)
class _Cluster:
    label: Count
    records: Count
    share: float
    description: str
    effects: list[_Effect]


@dataclass(frozen=True)
class _Method:
    permutations: Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class _Summary:
    policy: str
    layer: str
    noise_records: Count
    surviving_given_time: Count
    method: _Method
    features: list[_Feature]
    clusters: list[_Cluster]


@dataclass(frozen=True)
class FinishedRun:
    """The results of a run. N records."""

    clusters: ClusterRun
    dump: Path
    seed: int
    summary: dict[str, Any]
    embedding: np.ndarray  # (N, 2) float32

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
        UserError: the folder is missing or no finished run, a file is missing, damaged or of another version, is not
            what was written, or the dump is not there, or is another one.
    """
    finished = open_finished(path)
    for name in (EMBEDDING_FILE, LABELS_FILE):
        if name not in finished:
            raise UserError(f"{path} holds no {name}: only a run with an embedding and clusters can be explored")
    run = finished.description()
    folder = recorded_dump(path, run, dump)
    clusters = read_cluster_run(path, folder)
    content, summary = finished.read_json(SUMMARY_FILE, _Summary)
    if sorted(cluster.label for cluster in summary.clusters) != clusters.clusters:
        raise UserError(f"{path / SUMMARY_FILE} and {LABELS_FILE} do not match: analyse the dump again")
    names = read_names(path)
    for cluster in content["clusters"]:
        if cluster["label"] in names:  # that a person gave
            cluster["description"] = f"{names[cluster['label']]}: {cluster['description']}"
    embedding = _embedding(finished)
    if embedding.shape != (len(clusters.label), 2):
        raise UserError(f"{path / EMBEDDING_FILE} and {LABELS_FILE} do not match: analyse the dump again")
    return FinishedRun(clusters, folder, run.seed, content, embedding)


def recorded_dump(path: Path, run: RunDescription, dump: Path | None = None) -> Path:
    """Return the folder of the dump that a run was made from, as its run.json names it.

    Args:
        dump: where the user says that it is now, if so.

    Raises:
        UserError: it names none, or the dump is no longer there; or there is none where the user says.
    """
    if dump:
        if not (dump / METADATA_FILE).is_file():
            raise UserError(f"--dump {dump} is not an activation dump: it holds no {METADATA_FILE}")
        return dump
    recorded = run.arguments.get("dump")
    if not isinstance(recorded, str):
        raise UserError(f"{path / RUN_FILE} does not name the run's dump: give its folder with --dump")
    if not os.path.isfile(Path(recorded) / METADATA_FILE):  # noqa: PTH113 (a path that no system allows is no file)
        raise UserError(f"the dump of {path} is no longer at {recorded}: give its folder with --dump")
    return Path(recorded)


def _embedding(finished: FinishedFiles) -> np.ndarray:
    content = finished.read(EMBEDDING_FILE)
    try:
        embedding = array_of(content)
    except ValueError:
        embedding = np.empty(0, object)
    if embedding.dtype.kind != "f" or not np.isfinite(embedding).all():
        raise UserError(f"{finished.path / EMBEDDING_FILE} is not an embedding: analyse the dump again")
    return embedding
