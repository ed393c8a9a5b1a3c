"""Embed tasks as vectors for the policy.

The structural encoder needs no download. It sums one fixed random direction per part of a task: the predicate, and each
argument's name and value. Tasks that share parts share directions, so learning transfers between related tasks. A
number is encoded by sines and cosines of its logarithm, like positions in transformers (Vaswani et al. 2017, section
3.5): 5 and 6 of an item are nearly the same, 5 and 50 are not.

For a language model, a task is written as one line, the call of its predicate and the predicate's docstring; its
embedding is the mean of the model's last hidden states over the line's tokens. Embeddings are cached on disk, so that a
model is loaded once per new curriculum and not in every run.
"""

import functools
import hashlib
import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nmmo.task.task_spec import TaskSpec

from common.argument_checks import did_you_mean
from common.array_files import Kind, read_tensors, write_tensors
from common.files import sha256, visible
from common.progress_view import Progress, no_progress
from common.user_error import UserError
from reinforcement_learning.settings import TaskSettings

_FREQUENCIES = (1, 2, 4, 8)  # radians for each factor of e
_KEY = re.compile("[0-9a-f]{64}")
_MODEL_FILES = (".json", ".safetensors", ".txt", ".model")
_REVISION_SHOWN = 12


def encode_tasks(specs: Sequence[TaskSpec], task: TaskSettings, progress: Progress = no_progress) -> None:
    """Set each task's embedding, using the encoder named in the settings.

    Raises:
        UserError: the language model cannot be used (see `language_model_embeddings`), or the file of embeddings does
            not fit (see `file_embeddings`).
    """
    vectors: Iterable[np.ndarray]
    if task.encoder == "structural":
        vectors = [encode_task(spec, task.embedding_size) for spec in specs]
    elif task.encoder == "file":
        vectors = file_embeddings([spec.name for spec in specs], task)
    else:
        vectors = language_model_embeddings(specs, task, progress)
    for spec, embedding in zip(specs, vectors, strict=True):
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
    """Return the settings with the hash and size of the file of embeddings, if any (UserError: it cannot be used)."""
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
        raise UserError(f"{path} is not a file of task embeddings: its entries are not finite numbers of one length")
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


def describe_task(spec: TaskSpec) -> str:
    """Write a task as one line of text for a language model."""
    arguments = ", ".join(
        f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in spec.eval_fn_kwargs.items()
    )
    meaning = " ".join((inspect.getdoc(spec.eval_fn) or "").split())
    return f"{spec.eval_fn.__name__}({arguments})" + (f"  # {meaning}" if meaning else "")


def pin_language_model(task: TaskSettings) -> TaskSettings:
    """Return the settings with the exact version of the language model; unchanged if none is used.

    Raises:
        UserError: the extra is not installed, or the model cannot be reached.
    """
    if task.encoder != "language-model" or task.language_model_revision is not None:
        return task
    return replace(task, language_model_revision=_current_revision(task.language_model))


def language_model_embeddings(
    specs: Sequence[TaskSpec], task: TaskSettings, progress: Progress = no_progress
) -> np.ndarray:
    """Return the language model's embeddings of tasks, (tasks, embedding_size) float16, each of unit length.

    Hidden states of another size are multiplied by a fixed random matrix (Johnson and Lindenstrauss 1984), which nearly
    preserves the angles between tasks.

    Args:
        progress: called with (tasks done, tasks in total) while the model runs; never if all are cached.

    Raises:
        UserError: the extra is not installed, the model cannot be reached or differs from the one in the settings, or
            the cache is damaged.
    """
    task = pin_language_model(task)
    texts = [describe_task(spec) for spec in specs]
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", task.language_model.rstrip("/").split("/")[-1])
    path = task.embeddings_dir / f"{name}_{str(task.language_model_revision)[:_REVISION_SHOWN]}.safetensors"
    known = _read_cache(path)
    missing = [text for text in dict.fromkeys(texts) if _key(text) not in known]
    if missing:
        known |= {_key(text): states for text, states in zip(missing, _embedded(missing, task, progress), strict=True)}
        write_tensors(path, known, task.language_model, _KIND)
    hidden = np.stack([known[_key(text)] for text in texts]).astype(np.float64)  # (tasks, hidden units)
    units, size = hidden.shape[1], task.embedding_size
    if units == size:
        resized = hidden @ np.eye(units)
    else:
        resized = hidden @ (np.random.default_rng([units, size]).standard_normal((units, size)) / math.sqrt(size))
    return (resized / np.linalg.norm(resized, axis=1, keepdims=True)).astype(np.float16)


def _embedded(texts: list[str], task: TaskSettings, progress: Progress) -> list[np.ndarray]:
    """Embed each text separately, so that no embedding depends on other texts; (hidden units,) float32 each."""
    tokenizer, model = _load(task)
    states = []
    with torch.no_grad():
        for number, text in enumerate(texts, start=1):
            tokens = tokenizer(text, return_tensors="pt")
            last = model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).last_hidden_state
            states.append(last[0].mean(dim=0).numpy())
            progress(number, len(texts))
    return states


def _load(task: TaskSettings) -> tuple[Any, Any]:
    """Load tokenizer and model in single precision, from safetensors and without running code from the repository."""
    transformers = _transformers()
    name, wanted = task.language_model, task.language_model_revision
    revision = _current_revision(name) if Path(name).is_dir() else wanted
    if revision != wanted:
        raise UserError(
            f"the language model {name} has changed: task.language_model_revision is {wanted}, the folder's is "
            f"{revision}; give the folder that the policy was trained with"
        )
    options = {} if Path(name).is_dir() else {"revision": revision}
    try:
        with torch.random.fork_rng(devices=[]):  # caching must not affect training's random numbers
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
            model = transformers.AutoModel.from_pretrained(
                name, trust_remote_code=False, use_safetensors=True, dtype=torch.float32, **options
            )
    except (OSError, ValueError, ImportError) as error:
        raise _unreachable(name, error) from None
    return tokenizer, (model.get_encoder() if model.config.is_encoder_decoder else model).eval()


def _current_revision(name: str) -> str:
    """Return the hub's commit of a model, or the hash of a folder's files."""
    transformers = _transformers()
    if Path(name).is_dir():
        files = [path for path in visible(Path(name), "*") if path.suffix in _MODEL_FILES]
        listing = "".join(f"{path.name} {sha256(path)}\n" for path in files)
        return hashlib.sha256(listing.encode()).hexdigest()
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise _unreachable(name, error) from None
    return str(config._commit_hash)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise UserError(
            "task.encoder language-model needs transformers: `uv sync --inexact --extra language-model`, or use "
            "structural"
        ) from None
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _unreachable(name: str, error: Exception) -> UserError:
    reason = str(error).strip().splitlines()[0]
    return UserError(
        f"the language model {name!r} cannot be loaded ({reason}): name a folder or a model of the Hugging Face hub "
        "with task.language_model, or use task.encoder structural"
    )


def _read_cache(path: Path) -> dict[str, np.ndarray]:
    """Read what the model made of texts, by `_key`; earlier versions wrote the arrays alone."""
    if not path.exists():
        return {}
    try:
        known, _ = read_tensors(path, _KIND, bare=True)
    except UserError as error:
        raise UserError(f"{error}; or remove it: it will be computed again") from None
    if not all(_KEY.fullmatch(key) and states.ndim == 1 for key, states in known.items()):
        raise UserError(f"{path} is not a cache of task embeddings: remove it; it will be computed again")
    return known


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
