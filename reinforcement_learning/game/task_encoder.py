"""Embed tasks as vectors for the policy.

The structural encoder needs no download. It sums one fixed random direction per part of a task: the predicate, and each
argument's name and value. Tasks that share parts share directions, so learning transfers between related tasks. A
number is encoded by sines and cosines of its logarithm, like positions in transformers (Vaswani et al. 2017, section
3.5): 5 and 6 of an item are nearly the same, 5 and 50 are not.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
from nmmo.task.task_spec import TaskSpec

from reinforcement_learning.game.embedding_file import file_embeddings
from reinforcement_learning.progress import Progress, no_progress
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


def _direction(token: str, size: int) -> np.ndarray:
    """Return a random direction of expected length one that depends only on the token."""
    seed = int.from_bytes(hashlib.sha256(token.encode()).digest()[:8])
    return np.random.default_rng(seed).standard_normal(size) / math.sqrt(size)
