"""Read the labels of a finished cluster run, or its embedding too, verified to be complete and from the given dump."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field

from activation_store.schema import IDENTITY, METADATA_FILE
from activation_store.selection import Subsample
from analysis.labels import NOISE
from analysis.runs.codebook_rule import read_names
from analysis.runs.finished_files import RunDescription, open_finished
from analysis.runs.run_folder import RUN_FILE
from common.array_files import array_of, arrays_of
from common.files import sha256
from common.user_error import UserError

LABELS_FILE = "cluster_labels.npz"
BEHAVIOURS_FILE = "behaviour_labels.npz"
"""As `LABELS_FILE`, with the behaviour of each tick of the lives that analyze_dynamics.py drew."""
EMBEDDING_FILE = "embedding.npy"
SUMMARY_FILE = "summary.json"
_DIGITS_SHOWN = 12

Count = Annotated[int, Field(ge=0)]
Value = TypeVar("Value")


@dataclass(frozen=True)
class ClusterRun:
    """The labels found by analyze_activations.py. N labelled records."""

    path: Path
    arguments: dict[str, Any]  # of the run, as its run.json has them
    dump_sha256: str  # of the metadata.json that it was made from, which in turn proves every file of that dump
    labels_sha256: str  # of the file that the labels are from
    places: dict[str, np.ndarray]  # who and when each labelled record is, the columns of `IDENTITY`, (N,) int64 each
    label: np.ndarray

    @property
    def clusters(self) -> list[int]:
        """Clusters that the run found, excluding noise."""
        return [int(label) for label in np.unique(self.label) if label >= 0]

    @property
    def layer(self) -> str:
        """The layer whose activations were clustered (UserError: run.json does not say)."""
        return self._argument("layer", str)

    @property
    def subsample(self) -> Subsample:
        """Which records of each life were kept (UserError: run.json does not say)."""
        kept = Subsample(*(self._argument(name, int) for name in ("subsample", "skip_first", "seed")))
        try:
            kept.check()
        except UserError as error:
            raise UserError(f"{self.path / RUN_FILE}: {error}") from None
        return kept

    def _argument(self, name: str, kind: type[Value]) -> Value:
        value = self.arguments.get(name)
        if not isinstance(value, kind):
            raise UserError(f"{self.path / RUN_FILE} does not name the run's {name}: analyse the dump again")
        return value


def read_cluster_run(path: Path, dump: Path, file: str = LABELS_FILE) -> ClusterRun:
    """Read a finished run's labels, after verifying their hash and that they are from this dump.

    Raises:
        UserError: the run is unfinished or damaged, holds no labels, or was made from another dump.
    """
    finished = open_finished(path)
    if file not in finished:
        raise UserError(
            f"{path} holds no {file}: give a run of analyze_activations.py that clusters (with --metric-only it "
            "does not)"
        )
    run = finished.description()
    content = finished.read(file)
    if METADATA_FILE not in run.input:
        raise UserError(f"{path / RUN_FILE} does not name the run's dump: analyse the dump again")
    made_from = run.input[METADATA_FILE]
    if (given := sha256(dump / METADATA_FILE)) != made_from:
        recorded = run.arguments.get("dump", "unnamed")
        raise UserError(
            f"{path} was made from another dump ({recorded}, SHA-256 of its {METADATA_FILE} "
            f"{made_from[:_DIGITS_SHOWN]}...) than {dump} ({given[:_DIGITS_SHOWN]}...), or from one before it was "
            "converted: give the dump that it was made from, or analyse this one"
        )
    arrays = _labels(path / file, content)
    label = arrays.pop("label")
    return ClusterRun(path, run.arguments, made_from, finished.sha256[file], arrays, label)


def _labels(path: Path, content: bytes) -> dict[str, np.ndarray]:
    try:
        labels = arrays_of(content, (*IDENTITY, "label"))
    except ValueError:
        raise UserError(f"{path} holds no labels of records: analyse the dump again") from None
    shapes = {array.shape for array in labels.values()}
    if len(shapes) > 1 or any(array.ndim != 1 or array.dtype.kind != "i" for array in labels.values()):
        raise UserError(f"{path} holds no labels of records: analyse the dump again")
    if labels["label"].min(initial=NOISE) < NOISE:
        raise UserError(f"{path} holds labels that are neither clusters nor noise: analyse the dump again")
    return labels


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
    embedded = finished.read(EMBEDDING_FILE)
    try:
        embedding = array_of(embedded)
    except ValueError:
        embedding = np.empty(0, object)
    if embedding.dtype.kind != "f" or not np.isfinite(embedding).all():
        raise UserError(f"{path / EMBEDDING_FILE} is not an embedding: analyse the dump again")
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
