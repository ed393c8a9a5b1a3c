"""Arrays and a text in one safetensors file, with a hash over both; opening one never runs code.

Reading and writing do not need torch, so packages that do not use it can read weights from such a file.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
from safetensors.numpy import load, save

from activation_store.files import write_bytes
from user_error import UserError

_HEADER_KEY = "nmmo_interpretability"
_PICKLE_STARTS = (b"PK\x03\x04", b"\x80")


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], info: str) -> None:
    """Write arrays and a text atomically; equal content gives identical files."""
    contiguous = {name: np.ascontiguousarray(tensor).reshape(tensor.shape) for name, tensor in tensors.items()}
    # A single entry: safetensors writes several in random order.
    header = {_HEADER_KEY: json.dumps({"info": info, "sha256": _sha256(info, contiguous)})}
    write_bytes(path, save(contiguous, metadata=header))


def read_text(path: Path) -> str:
    """Return a file's text without reading its arrays.

    Raises:
        UserError: as `read_tensors`, as far as the header shows.
    """
    return _read_header(path)[0]


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """Return a file's arrays, by name, and its text.

    Raises:
        UserError: the file is missing, a pickle, truncated, altered, or not written by `write_tensors`.
    """
    info, sha256 = _read_header(path)
    tensors = load(path.read_bytes())
    if _sha256(info, tensors) != sha256:
        raise UserError(f"{path} is damaged: its content does not have the hash it was saved with; copy it again")
    return tensors, info


def _read_header(path: Path) -> tuple[str, str]:
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
    except safetensors.SafetensorError as error:
        # Checked last: a valid file starts with its header's length, whose first byte may equal a pickle's.
        if start.startswith(_PICKLE_STARTS):
            raise UserError(
                f"{path} is a pickle: opening it would run whatever code it holds, so it is refused; "
                "save what it holds as safetensors instead"
            ) from None
        raise UserError(f"{path} is not a whole safetensors file ({error}): copy it again") from None
    if _HEADER_KEY not in header:
        raise UserError(f"{path} was not saved by this project: its header lacks {_HEADER_KEY}")
    try:
        entry = json.loads(header[_HEADER_KEY])
        return str(entry["info"]), str(entry["sha256"])
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} has a damaged header ({error}): copy it again") from None


def _sha256(info: str, tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(info.encode())
    for name, tensor in sorted(tensors.items()):
        # Types are written with torch's names, as in the hashes of the first files.
        digest.update(f"{name} torch.{tensor.dtype.name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()
