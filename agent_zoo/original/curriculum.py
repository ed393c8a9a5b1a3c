"""Read the tasks and their embeddings from a curriculum of the original repository, without running its pickle."""

from pathlib import Path
from typing import Any

import numpy as np

from agent_zoo.original.inert_pickle import MOST_PICKLE_BYTES, Global, Record, load
from common.files import read_bytes
from common.user_error import UserError

_REBUILD = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_FROM_BUFFER = ("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer")
_DILL = "dill._dill._create_array"
_TYPES = ("f2", "f4", "f8")
_LONGEST_NAME = 512
_MOST_TASKS = 1 << 14
_MOST_NUMBERS = 1 << 13


def read_curriculum(path: Path) -> dict[str, np.ndarray]:
    """Return the embedding of each task by its name, (size,) float16 each, in the order of the file.

    Of tasks with the same name the first counts.

    Raises:
        UserError: the file is missing, damaged, larger than any curriculum, or no list of tasks with embeddings.
    """
    try:
        value, _ = load(read_bytes(path, MOST_PICKLE_BYTES))
        if not isinstance(value, list) or not value:
            raise ValueError("it is not a list of tasks")
        if len(value) > _MOST_TASKS:
            raise ValueError(f"it has {len(value):,} tasks, more than {_MOST_TASKS:,}")
        vectors: dict[str, np.ndarray] = {}
        for number, task in enumerate(value):
            name, vector = _task(number, task)
            vectors.setdefault(name, vector)
    except ValueError as error:
        raise UserError(f"{path} cannot be read as a curriculum of the original: {error}") from None
    sizes = sorted({len(vector) for vector in vectors.values()})
    if len(sizes) > 1 or not sizes[0]:
        raise UserError(f"{path}: its embeddings have different sizes ({sizes[0]} and {sizes[-1]} numbers)")
    return vectors


def _task(number: int, task: Any) -> tuple[str, np.ndarray]:
    state = task.state if isinstance(task, Record) and isinstance(task.state, dict) else {}
    name = state.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(f"its task number {number} has no name")
    if state.get("embedding") is None:
        raise ValueError(f"its task {name} has no embedding")
    try:
        vector = _vector(state["embedding"])
    except (ValueError, TypeError, IndexError, AttributeError):
        raise ValueError(f"the embedding of its task {name} is not a list of numbers") from None
    if not np.isfinite(vector).all():
        raise ValueError(f"the embedding of its task {name} has numbers that are too large or none")
    return name, vector


def _vector(value: Any) -> np.ndarray:
    """Return an array of numpy from what the pickle says of it, (size,) float16.

    Its shape, its type and its bytes are elsewhere in each way of pickling. Protocol 2 writes bytes as a text and the
    codec that turns it into bytes.
    """
    if not isinstance(value, Record):
        raise ValueError("it is not an array")
    if value.of in _FROM_BUFFER:
        content, dtype, shape = value.arguments[:3]
    else:
        state = value.state
        if value.of == _DILL and isinstance(value.arguments[0], Global) and value.arguments[0].name in _REBUILD:
            state = value.arguments[2]
        elif value.of not in _REBUILD:
            raise ValueError("it is not an array")
        _, shape, dtype, _, content = state
        if isinstance(content, Record) and content.of == "_codecs.encode" and content.arguments[1:] == ("latin1",):
            content = content.arguments[0].encode("latin-1")
        elif isinstance(content, str):
            content = content.encode("latin-1")
    if not (isinstance(dtype, Record) and dtype.of == "numpy.dtype" and dtype.arguments[0] in _TYPES):
        raise ValueError("its numbers are of another type")
    big = isinstance(dtype.state, tuple) and dtype.state[1] == ">"
    vector = np.frombuffer(content, np.dtype((">" if big else "<") + dtype.arguments[0]))
    if shape != (len(vector),) or len(vector) > _MOST_NUMBERS:
        raise ValueError("it has another shape")
    with np.errstate(over="ignore"):
        return vector.astype(np.float16)
