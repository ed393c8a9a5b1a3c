"""Embed tasks as vectors for the policy.

The structural encoder needs no download. It sums one fixed random direction per part of a task: the predicate, and each
argument's name and value. Tasks that share parts share directions, so learning transfers between related tasks. A
number is encoded by sines and cosines of its logarithm, like positions in transformers (Vaswani et al. 2017, section
3.5): 5 and 6 of an item are nearly the same, 5 and 50 are not.
"""

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from nmmo.task.task_spec import TaskSpec

from common.argument_checks import did_you_mean
from common.array_files import Kind, read_tensors, write_tensors
from common.files import sha256
from common.progress_view import Progress, no_progress
from common.user_error import UserError
from reinforcement_learning.settings import TaskSettings

_FREQUENCIES = (1, 2, 4, 8)  # radians for each factor of e


def encode_tasks(specs: Sequence[TaskSpec], task: TaskSettings, progress: Progress = no_progress) -> None:
    """Set each task's embedding, using the encoder named in the settings.

    Raises:
        UserError: the language model cannot be used (see `language_model_embeddings`), or the file of embeddings does
            not fit (see `file_embeddings`).
    """
    if task.encoder == "structural":
        for spec in specs:
            spec.embedding = encode_task(spec, task.embedding_size)
        return
    if task.encoder == "file":
        for spec, embedding in zip(specs, file_embeddings([spec.name for spec in specs], task), strict=True):
            spec.embedding = embedding
        return
    from reinforcement_learning.game.language_model_encoder import language_model_embeddings

    for spec, embedding in zip(specs, language_model_embeddings(specs, task, progress), strict=True):
        spec.embedding = embedding


def encode_task(spec: TaskSpec, size: int) -> np.ndarray:
    """Return the embedding of a task, (size,) float16, of unit length; identical on all machines and processes."""
    total = np.zeros(size)
    for token, weight in _parts(spec):
        total += weight * _direction(token, size)
    return (total / np.linalg.norm(total)).astype(np.float16)


def _parts(spec: TaskSpec) -> Iterator[tuple[str, float]]:
    yield f"predicate={spec.eval_fn.__name__}", 1.0
    for name, value in sorted(spec.eval_fn_kwargs.items()):
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{name}={getattr(value, '__name__', value)}", 1.0
        else:
            for frequency in _FREQUENCIES:
                angle = frequency * math.log1p(value)
                yield f"cos {frequency} {name}", math.cos(angle) / math.sqrt(len(_FREQUENCIES))
                yield f"sin {frequency} {name}", math.sin(angle) / math.sqrt(len(_FREQUENCIES))


@functools.cache
def _direction(token: str, size: int) -> np.ndarray:
    """Return a random direction of expected length one that depends only on the token; tasks share most of theirs."""
    seed = int.from_bytes(hashlib.sha256(token.encode()).digest()[:8])
    direction = np.random.default_rng(seed).standard_normal(size) / math.sqrt(size)
    direction.flags.writeable = False
    return direction


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
