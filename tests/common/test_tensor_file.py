"""Files of arrays say what they are; older ones, which do not, are read all the same."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from common.tensor_file import Kind, read_tensors, write_tensors
from tests.command import assert_refuses

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


def test_a_kind_that_is_not_known_is_named_and_the_kind_is_proved_too(tmp_path: Path) -> None:
    write_tensors(tmp_path / "newer", ARRAYS, "{}", "dream")  # type: ignore[arg-type]
    assert_refuses("of the unknown kind 'dream'", read_tensors, tmp_path / "newer", "policy")
    path = tmp_path / "file"
    write_tensors(path, ARRAYS, "{}", "policy")
    path.write_bytes(path.read_bytes().replace(b'"kind\\"', b'"kine\\"', 1).replace(b'kind\\"', b'kine\\"', 1))
    assert_refuses("is damaged", read_tensors, path, "policy")


def test_arrays_alone_are_read_only_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "bare"
    path.write_bytes(safetensors.numpy.save(ARRAYS))
    arrays, text = read_tensors(path, "task embeddings", bare=True)
    assert arrays.keys() == ARRAYS.keys() and text == ""
    assert_refuses("bare", read_tensors, path, "task embeddings")
