"""Split numbers into planes of bytes of equal significance: bytes that hardly vary are then adjacent and compress well.

Parquet stores a plane of vectors as one value per record, not as a list of numbers, so reading is as fast as a copy.
"""

from collections.abc import Sequence

import numpy as np


def split(values: np.ndarray) -> list[np.ndarray]:
    """Split vectors into byte planes.

    Args:
        values: (B, width), of any fixed-size type.

    Returns:
        One plane per byte of a number, least significant first, each (B, width) uint8 and contiguous.
    """
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    in_bytes = little.view(np.uint8).reshape(*values.shape, little.itemsize)  # (B, width, bytes)
    return [np.ascontiguousarray(in_bytes[:, :, i]) for i in range(little.itemsize)]


def join(planes: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Rebuild vectors from their planes: the inverse of `split`.

    Args:
        planes: (B, width) uint8 each, least significant first; one per byte of a number.

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
