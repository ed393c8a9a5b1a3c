"""Arrays and a text in one safetensors file, with a hash that proves both; opening one never runs code.

Reading and writing need no torch, so that rooms without it can read the weights that lie in such a file.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import orjson
import safetensors
from safetensors.numpy import load, save

from activation_store.files import read_bytes, write_bytes
from user_error import UserError

_HEADER_KEY = "nmmo_interpretability"
_PICKLE_STARTS = (b"PK\x03\x04", b"\x80")
_LENGTH_BYTES = 8


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], info: str) -> None:
    """Write arrays and a text, whole or not at all; the same content makes the same file."""
    contiguous = {name: np.ascontiguousarray(tensor).reshape(tensor.shape) for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in random order.
    header = {_HEADER_KEY: json.dumps({"info": info, "sha256": _sha256(info, contiguous)})}
    write_bytes(path, save(contiguous, metadata=header))


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """Return a file's arrays, by name, and its text, once the hash has proved both.

    Raises:
        UserError: the file is missing, no plain file, a pickle, truncated, altered, or not written by `write_tensors`.
    """
    content = read_bytes(path)
    tensors, header = _parse(path, content)
    info, sha256 = _entry(path, header)
    if _sha256(info, tensors) != sha256:
        raise UserError(f"{path} is damaged: its content does not have the hash it was saved with; copy it again")
    return tensors, info


def _parse(path: Path, content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays and the header's texts."""
    try:
        tensors = load(content)
    except KeyError as error:
        raise UserError(f"{path} holds numbers of a type that this project never writes ({error})") from None
    except (safetensors.SafetensorError, ValueError, OverflowError) as error:
        # Only now: a good file starts with its header's length, which may begin with the same byte as a pickle.
        if content.startswith(_PICKLE_STARTS):
            raise UserError(
                f"{path} is a pickle: opening it would run whatever code it holds, so it is refused; "
                "save what it holds as safetensors instead"
            ) from None
        raise UserError(f"{path} is not a whole safetensors file ({error}): copy it again") from None
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    try:
        header = orjson.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + length])
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path} has a damaged header ({error}): copy it again") from None
    return tensors, header.get("__metadata__") or {}


def _entry(path: Path, header: Mapping[str, str]) -> tuple[str, str]:
    """Return the text and the hash that the header's entry of this project holds."""
    if _HEADER_KEY not in header:
        raise UserError(f"{path} was not saved by this project: its header lacks {_HEADER_KEY}")
    try:
        entry = orjson.loads(header[_HEADER_KEY])
        info, sha256 = entry["info"], entry["sha256"]
    except (orjson.JSONDecodeError, TypeError, KeyError) as error:
        raise UserError(f"{path} has a damaged header ({error}): copy it again") from None
    if not (isinstance(info, str) and isinstance(sha256, str)):
        raise UserError(f"{path} has a damaged header: its text or its hash is no text; copy it again")
    return info, sha256


def _sha256(info: str, tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(info.encode())
    for name, tensor in sorted(tensors.items()):
        # Types are written as torch calls them, which is what the first files were hashed with.
        digest.update(f"{name} torch.{tensor.dtype.name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()
