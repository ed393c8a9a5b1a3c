"""Reads numpy's files of arrays: only what the bytes hold, whatever they claim to hold."""

import math
import tokenize
import zipfile
from collections.abc import Iterable
from io import BytesIO

import numpy as np
from numpy.lib import format as npy

_SUFFIX = ".npy"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


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
