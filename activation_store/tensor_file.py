"""Arrays and a text in one safetensors file, with a hash that proves both; opening one never runs code.

Reading and writing need no torch, so that rooms without it can read the weights that lie in such a file.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import safetensors
from safetensors.numpy import load, save

from activation_store.files import write_bytes
from user_error import UserError

Kind = Literal["policy", "training state", "directions", "task embeddings"]

_HEADER_KEY = "nmmo_interpretability"
_PICKLE_STARTS = (b"PK\x03\x04", b"\x80")
_CALLED = {
    "policy": "a policy",
    "training state": "a training state",
    "directions": "a file of directions",
    "task embeddings": "a cache of task embeddings",
}
_KEYS_OF_OLDER: dict[str, set[str]] = {
    "policy": {"agent", "layout"},
    "training state": {"updates", "worlds"},
    "directions": {"kind", "directions"},
}
"""What the texts of files from before kinds were written hold, as JSON objects."""
_LONGEST_SHOWN = 40


@dataclass(frozen=True)
class _Header:
    """What the header of a file says; files of earlier versions say no kind."""

    info: str
    sha256: str
    kind: str | None


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], info: str, kind: Kind) -> None:
    """Write arrays and a text, whole or not at all; the same content makes the same file."""
    contiguous = {name: np.ascontiguousarray(tensor).reshape(tensor.shape) for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in random order.
    entry = {"kind": kind, "info": info, "sha256": _sha256(info, contiguous, kind)}
    write_bytes(path, save(contiguous, metadata={_HEADER_KEY: json.dumps(entry)}))


def read_text(path: Path, kind: Kind) -> str:
    """Return a file's text without looking at its arrays.

    Raises:
        UserError: as `read_tensors`, for what the header shows.
    """
    header = _read_header(path)
    if header is None:
        raise _foreign(path)
    _check_kind(path, header, kind)
    return header.info


def read_tensors(path: Path, kind: Kind, *, bare: bool = False) -> tuple[dict[str, np.ndarray], str]:
    """Return a file's arrays, by name, and its text.

    Args:
        path: of the file.
        kind: that it must be of.
        bare: whether to read a file that has arrays only, which nothing proves; its text is empty.

    Raises:
        UserError: the file is missing, a pickle, truncated, altered, of another kind, or not written by
            `write_tensors`.
    """
    header = _read_header(path)
    if header is None and not bare:
        raise _foreign(path)
    if header is not None:
        _check_kind(path, header, kind)
    try:
        tensors = load(path.read_bytes())
    except (KeyError, TypeError, safetensors.SafetensorError):
        raise UserError(f"{path} is damaged, or holds numbers of a type that is not read here: copy it again") from None
    if header is None:
        return tensors, ""
    if _sha256(header.info, tensors, header.kind) != header.sha256:
        raise UserError(f"{path} is damaged: its content does not have the hash it was saved with; copy it again")
    return tensors, header.info


def _read_header(path: Path) -> _Header | None:
    """Return what the header says, or None where it has no entry of ours."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
    except safetensors.SafetensorError as error:
        # Only now: a good file starts with its header's length, which may begin with the same byte as a pickle.
        if start.startswith(_PICKLE_STARTS):
            raise UserError(
                f"{path} is a pickle: opening it would run whatever code it holds, so it is refused; "
                "save what it holds as safetensors instead"
            ) from None
        raise UserError(f"{path} is not a whole safetensors file ({error}): copy it again") from None
    if _HEADER_KEY not in metadata:
        return None
    try:
        entry = json.loads(metadata[_HEADER_KEY])
        return _Header(str(entry["info"]), str(entry["sha256"]), str(entry["kind"]) if "kind" in entry else None)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{path} has a damaged header ({error}): copy it again") from None


def _foreign(path: Path) -> UserError:
    return UserError(f"{path} was not saved by this project: its header lacks {_HEADER_KEY}")


def _check_kind(path: Path, header: _Header, wanted: Kind) -> None:
    kind = header.kind or _kind_of_older(header.info)
    if kind is not None and kind != wanted:
        found = _CALLED.get(kind, f"of the unknown kind {kind[:_LONGEST_SHOWN]!r}")
        raise UserError(f"{path} is {found}, but {_CALLED[wanted]} is needed here: give another file")


def _kind_of_older(info: str) -> str | None:
    """Tell the kind of a file that does not say it from its text; None where the text is of no known kind."""
    try:
        content = json.loads(info)
    except (ValueError, RecursionError):
        return None
    keys = content.keys() if isinstance(content, dict) else set()
    return next((kind for kind, needed in _KEYS_OF_OLDER.items() if needed <= keys), None)


def _sha256(info: str, tensors: Mapping[str, np.ndarray], kind: str | None) -> str:
    text = info if kind is None else f"{kind}\n{info}"
    digest = hashlib.sha256(text.encode(errors="surrogatepass"))  # a damaged text may not be one
    for name, tensor in sorted(tensors.items()):
        # Types are written as torch calls them, which is what the first files were hashed with.
        digest.update(f"{name} torch.{tensor.dtype.name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()
