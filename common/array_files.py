"""Files of arrays, which never run code when they are opened.

Arrays and a text in one safetensors file, with a hash over both, are read and written without torch, so packages that
do not use it can read weights from such a file. Of numpy's own files only what the bytes hold is read, whatever they
claim to hold.
"""

import hashlib
import json
import math
import tokenize
import zipfile
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import orjson
import safetensors
from numpy.lib import format as npy
from safetensors.numpy import load, save

from common.files import read_bytes, write_bytes
from common.user_error import UserError

Kind = Literal[
    "policy", "training state", "directions", "task embeddings", "state moments", "sparse dictionary",
    "autoencoder training", "world model", "world model training",
]  # fmt: skip

_HEADER_KEY = "nmmo_interpretability"
_PICKLE_STARTS = (b"PK\x03\x04", b"\x80")
_LENGTH_BYTES = 8
_CALLED = {
    "policy": "a policy",
    "training state": "a training state",
    "directions": "a file of directions",
    "task embeddings": "a cache of task embeddings",
    "state moments": "a file of moments of hidden states",
    "sparse dictionary": "a dictionary of sparse features",
    "autoencoder training": "the unfinished training of a sparse autoencoder",
    "world model": "a world model",
    "world model training": "the unfinished training of a world model",
}
_KEYS_OF_OLDER: dict[str, set[str]] = {
    "policy": {"agent", "layout"},
    "training state": {"updates", "worlds"},
    "directions": {"kind", "directions"},
}
"""Keys of the JSON texts in files that were written before kinds were."""

_LONGEST_SHOWN = 40
_SUFFIX = ".npy"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], info: str, kind: Kind) -> None:
    """Write arrays and a text, whole or not at all; the same content makes the same file."""
    contiguous = {name: np.ascontiguousarray(tensor).reshape(tensor.shape) for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in random order.
    entry = {"kind": kind, "info": info, "sha256": _sha256(info, contiguous, kind)}
    write_bytes(path, save(contiguous, metadata={_HEADER_KEY: json.dumps(entry)}))


def read_tensors(path: Path, kind: Kind, *, bare: bool = False) -> tuple[dict[str, np.ndarray], str]:
    """Return a file's arrays, by name, and its text, once the hash has proved both.

    Args:
        bare: whether to read a file that has arrays only, which nothing proves; its text is empty.

    Raises:
        UserError: the file is missing, no plain file, a pickle, truncated, altered, of another kind, or not written by
            `write_tensors`.
    """
    content = read_bytes(path)
    tensors, texts = _parse(path, content)
    if _HEADER_KEY not in texts:
        if bare:
            return tensors, ""
        raise UserError(f"{path} was not saved by this project: its header lacks {_HEADER_KEY}")
    info, sha256, own_kind = _entry(path, texts[_HEADER_KEY])
    said = own_kind or _kind_of_older(info)
    if said is not None and said != kind:
        called = _CALLED.get(said, f"of the unknown kind {said[:_LONGEST_SHOWN]!r}")
        raise UserError(f"{path} is {called}, but {_CALLED[kind]} is needed here: give another file")
    if _sha256(info, tensors, own_kind) != sha256:
        raise UserError(f"{path} is damaged: its content does not have the hash it was saved with; copy it again")
    return tensors, info


def _parse(path: Path, content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
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


def _entry(path: Path, text: str) -> tuple[str, str, str | None]:
    """Return text, hash and kind, as the header says; files of earlier versions say no kind."""
    try:
        entry = orjson.loads(text)
        info, sha256, kind = entry["info"], entry["sha256"], entry.get("kind")
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} has a damaged header ({error}): copy it again") from None
    if not all(isinstance(field, str) for field in (info, sha256, kind or "")):
        raise UserError(f"{path} has a damaged header: its text, kind or hash is not a string; copy it again")
    return info, sha256, kind


def _kind_of_older(info: str) -> str | None:
    """Tell the kind of a file that does not say it from its text; None where the text is of no known kind."""
    try:
        content = orjson.loads(info)
    except orjson.JSONDecodeError:
        return None
    keys = content.keys() if isinstance(content, dict) else set()
    return next((kind for kind, needed in _KEYS_OF_OLDER.items() if needed <= keys), None)


def _sha256(info: str, tensors: Mapping[str, np.ndarray], kind: str | None) -> str:
    text = info if kind is None else f"{kind}\n{info}"
    digest = hashlib.sha256(text.encode(errors="surrogatepass"))  # a damaged text may not be one
    for name, tensor in sorted(tensors.items()):
        # Types are written with torch's names, as in the hashes of the first files.
        digest.update(f"{name} torch.{tensor.dtype.name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def array_of(content: bytes) -> np.ndarray:
    """Return the array of an .npy file.

    Raises:
        ValueError: the bytes are no such file, hold Python objects, or are more or fewer than its shape and type need.
    """
    file = BytesIO(content)
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"it is of version {version}")
    try:
        shape, fortran, dtype = _HEADERS[version](file)
    except (tokenize.TokenError, SyntaxError, RecursionError, TypeError) as error:  # the header is a Python literal
        raise ValueError(f"its header is damaged: {error}") from None
    there, needed = len(content) - file.tell(), math.prod(shape) * dtype.itemsize
    if dtype.hasobject or there != needed or min(shape, default=0) < 0:
        raise ValueError(f"it claims {needed} bytes of {dtype}, and has {there}")
    return np.frombuffer(content, dtype, offset=file.tell()).reshape(shape, order="F" if fortran else "C").copy()


def arrays_of(content: bytes, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return arrays of an uncompressed .npz file, by name.

    Raises:
        ValueError: the bytes are no such file, one is missing, or one is not as `array_of` wants it.
    """
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            members = {name: archive.getinfo(name + _SUFFIX) for name in names}
            if packed := [name for name, member in members.items() if member.compress_type != zipfile.ZIP_STORED]:
                raise ValueError(f"{packed[0]} is compressed")
            return {name: array_of(archive.read(member)) for name, member in members.items()}
    except (KeyError, EOFError, OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise ValueError(str(error)) from None
