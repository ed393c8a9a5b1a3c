"""Numbers survive splitting into bytes and joining."""

import numpy as np
import pytest

from activation_store.formats.parquet_layout import join_planes as join
from activation_store.formats.parquet_layout import split_planes as split


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32"])
def test_every_number_survives(dtype: str) -> None:
    kind = np.dtype(dtype)
    bits = np.random.default_rng(0).integers(0, 256, (7, 5 * kind.itemsize), dtype=np.uint8)
    values = bits % 2 == 0 if dtype == "bool" else bits.view(kind)
    planes = split(values)
    assert [plane.shape for plane in planes] == [(7, 5)] * kind.itemsize
    joined = join(planes, kind)
    assert joined.dtype == kind and joined.tobytes() == values.tobytes()


def test_the_first_plane_is_the_least_significant() -> None:
    low, high = split(np.array([[0x1234, -1]], np.int16))
    assert low.tolist() == [[0x34, 0xFF]] and high.tolist() == [[0x12, 0xFF]]


def test_values_that_do_not_lie_together_and_no_records_are_split_as_well() -> None:
    values = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
    np.testing.assert_array_equal(join(split(values[:, :, 1]), np.dtype(np.int16)), values[:, :, 1])
    assert join(split(np.empty((0, 4), np.float32)), np.dtype(np.float32)).shape == (0, 4)
