"""Embeddings of tasks in a file, by the tasks' names: what another project computed, used as it is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from common.argument_checks import did_you_mean
from common.files import sha256
from common.tensor_file import Kind, read_tensors, write_tensors
from common.user_error import UserError
from reinforcement_learning.settings import TaskSettings

_KIND: Kind = "task embeddings"


def write_embeddings(path: Path, vectors: Mapping[str, np.ndarray], source: str) -> None:
    """Write embeddings by task name, (size,) each, and where they come from."""
    write_tensors(path, vectors, source, _KIND)


def pin_embeddings(task: TaskSettings) -> TaskSettings:
    """Return the settings with the hash of the file of embeddings and their size; unchanged if none is used.

    Raises:
        UserError: as `file_embeddings`.
    """
    if task.encoder != "file":
        return task
    path, vectors = _read(task)
    size = len(next(iter(vectors.values())))
    return replace(task, embeddings_sha256=sha256(path), embedding_size=size)


def file_embeddings(names: Sequence[str], task: TaskSettings) -> np.ndarray:
    """Return the embeddings of the named tasks, (tasks, embedding_size) float16.

    Raises:
        UserError: no file is named, it is missing, of another kind, another one than was recorded, lacks a task, or its
            embeddings have another size.
    """
    path, vectors = _read(task)
    for name in names:
        if name not in vectors:
            hint = did_you_mean(name, vectors)
            raise UserError(f"{path} has no embedding of the task {name}: choose a curriculum of its tasks{hint}")
    size = len(next(iter(vectors.values())))
    if size != task.embedding_size:
        raise UserError(
            f"{path} has embeddings of {size} numbers, and {task.embedding_size} are needed: give another file, or "
            f"train with --task.embedding-size {size}"
        )
    return np.stack([vectors[name] for name in names]).astype(np.float16)


def _read(task: TaskSettings) -> tuple[Path, dict[str, np.ndarray]]:
    """Return the path of the file, and its embeddings by name, all of one size."""
    path = _path(task)
    vectors, _ = read_tensors(path, _KIND)
    if task.embeddings_sha256 is not None and sha256(path) != task.embeddings_sha256:
        raise UserError(
            f"{path} is not the file of task embeddings that was recorded (SHA-256 {task.embeddings_sha256[:12]}...): "
            "give that one with --task.embeddings"
        )
    sizes = {vector.shape for vector in vectors.values()}
    finite = all(
        vector.dtype.kind == "f" and np.isfinite(vector.astype(np.float16)).all() for vector in vectors.values()
    )
    if len(sizes) != 1 or len(next(iter(sizes))) != 1 or not finite:
        raise UserError(f"{path} is no file of task embeddings: its entries are not finite numbers of one length")
    return path, vectors


def _path(task: TaskSettings) -> Path:
    if task.embeddings is None:
        raise UserError(
            "task.encoder file needs a file of task embeddings: give --task.embeddings FILE, or import the policy "
            "again with --task-embeddings FILE.pkl, a curriculum of the original"
        )
    path = Path(task.embeddings)
    in_folder = task.embeddings_dir / path.name
    if not path.exists() and not in_folder.exists():
        raise UserError(
            f"the file of task embeddings {path} is neither here nor in {task.embeddings_dir}: name the folder that "
            "has it with --embeddings-dir, or make it again with import_policy.py --task-embeddings FILE.pkl"
        )
    return path if path.exists() else in_folder
