"""Numbers taken apart into bytes of one significance each: what hardly varies then lies together and compresses well.

A plane of vectors is no list of numbers to Parquet but one value a record, which reads as fast as memory is copied.
"""

from collections.abc import Sequence

import numpy as np


def split(values: np.ndarray) -> list[np.ndarray]:
    """Take vectors apart.

    Args:
        values: (B, width), of any type of fixed size.

    Returns:
        A plane for each byte of a number, the least significant first, (B, width) uint8 each and contiguous.
    """
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    in_bytes = little.view(np.uint8).reshape(*values.shape, little.itemsize)  # (B, width, bytes)
    return [np.ascontiguousarray(in_bytes[:, :, i]) for i in range(little.itemsize)]


def join(planes: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Put vectors together again from their planes: the inverse of `split`.

    Args:
        planes: (B, width) uint8 each, the least significant first; as many as a number has bytes.
        dtype: of the numbers.

    Returns:
        (B, width) of `dtype`.
    """
    if len(planes) == 1:
        return planes[0].astype(bool) if dtype.kind == "b" else planes[0].view(dtype)
    values = np.empty(planes[0].shape, dtype.newbyteorder("<"))
    in_bytes = values.view(np.uint8).reshape(*values.shape, len(planes))  # (B, width, bytes)
    for i, plane in enumerate(planes):
        in_bytes[:, :, i] = plane
    return values.astype(dtype, copy=False)
