"""Files of arrays say what they are; older ones, which do not, are read all the same."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from common.array_files import Kind, array_of, arrays_of, read_tensors, write_tensors
from tests.command import assert_refuses
from tests.fuzz import limited

ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(3, np.int64)}
KINDS: dict[Kind, str] = {
    "policy": '{"agent": "x", "layout": {}}',
    "training state": '{"updates": 1, "worlds": []}',
    "directions": '{"kind": "directions", "directions": []}',
}
"""A text as each kind has it."""


def write_older(path: Path, text: str) -> None:
    """Write a file as versions did that said no kind."""
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(ARRAYS.items()):
        digest.update(f"{name} torch.{array.dtype.name} {array.shape}\n".encode() + array.tobytes())
    entry = json.dumps({"info": text, "sha256": digest.hexdigest()})
    path.write_bytes(safetensors.numpy.save(ARRAYS, metadata={"nmmo_interpretability": entry}))


def check_read(path: Path, kind: Kind, text: str) -> None:
    arrays, metadata = read_tensors(path, kind)
    assert metadata == text
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", KINDS)
def test_a_file_is_read_as_what_it_is_only(tmp_path: Path, kind: Kind, wanted: Kind) -> None:
    write_tensors(tmp_path / "new", ARRAYS, KINDS[kind], kind)
    write_older(tmp_path / "older", KINDS[kind])
    for name in ("new", "older"):
        if kind == wanted:
            check_read(tmp_path / name, kind, KINDS[kind])
        else:
            assert_refuses([f"{tmp_path / name} is a", kind, wanted], read_tensors, tmp_path / name, wanted)


def test_unknown_kinds_are_named_kinds_are_proved_and_arrays_alone_are_read_where_asked_for(tmp_path: Path) -> None:
    write_tensors(tmp_path / "newer", ARRAYS, "{}", "dream")  # type: ignore[arg-type]
    assert_refuses("of the unknown kind 'dream'", read_tensors, tmp_path / "newer", "policy")
    path = tmp_path / "file"
    write_tensors(path, ARRAYS, "{}", "policy")
    path.write_bytes(path.read_bytes().replace(b'"kind\\"', b'"kine\\"', 1).replace(b'kind\\"', b'kine\\"', 1))
    assert_refuses("is damaged", read_tensors, path, "policy")
    path = tmp_path / "bare"
    path.write_bytes(safetensors.numpy.save(ARRAYS))
    arrays, text = read_tensors(path, "task embeddings", bare=True)
    assert arrays.keys() == ARRAYS.keys() and text == ""
    assert_refuses("bare", read_tensors, path, "task embeddings")


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
