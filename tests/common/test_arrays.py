"""Arrays of runs hold what their bytes hold, whatever they claim."""

import io
from typing import Any

import numpy as np
import pytest

from common.arrays import array_of, arrays_of
from tests.fuzz import limited


def npy(array: np.ndarray, **header: Any) -> bytes:
    """An .npy file that may claim to be more than it is."""
    file = io.BytesIO()
    claimed = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | header
    np.lib.format.write_array_header_1_0(file, claimed)
    return file.getvalue() + array.tobytes()


def npz(save: Any = np.savez, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3), np.zeros((0, 2), np.int8), np.array(3), np.eye(3)[:, :2].T]
)
def test_arrays_come_back(array: np.ndarray) -> None:
    file = io.BytesIO()
    np.save(file, array)
    result = array_of(file.getvalue())
    assert result.dtype == array.dtype and result.shape == array.shape and (result == array).all()
    (result,) = arrays_of(npz(a=array, b=np.ones(2)), ["a"]).values()
    assert result.shape == array.shape and (result == array).all()


BAD = {
    "7 TiB": npy(np.zeros(4), shape=(1 << 40,)),
    "too many bytes": npy(np.zeros(4), shape=(3,)),
    "negative": npy(np.zeros(4), shape=(-2, -2)),
    "objects": npy(np.zeros(4), descr="|O"),
    "an npz": npz(a=np.zeros(2)),
    "no end of the header": npy(np.zeros(4)).replace(b"(4,)", b"(((("),
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_array_is_refused(name: str) -> None:
    with pytest.raises(ValueError), limited():
        array_of(BAD[name])


def test_what_is_no_archive_is_refused() -> None:
    for content in (npz(np.savez_compressed, a=np.zeros(9)), npz(b=np.zeros(9)), b"PK\x03\x04", npy(np.zeros(3))):
        with pytest.raises(ValueError), limited():
            arrays_of(content, ["a"])
