"""Files of dictionaries: what is written is read, and nothing else is accepted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from activation_store.directions import read_directions
from activation_store.sparse_dictionary import SparseDictionary, read_dictionary, write_dictionary
from common.array_files import read_tensors, write_tensors
from tests.command import assert_refuses
from tests.planted_features import SOURCE


def dictionary(kind: str = "topk", features: int = 6, units: int = 4) -> SparseDictionary:
    random = np.random.default_rng(0)
    decoder = random.standard_normal((features, units))
    decoder = (decoder / np.linalg.norm(decoder, axis=1, keepdims=True)).astype(np.float32)
    centre = random.standard_normal(units).astype(np.float32)
    if kind == "pca":
        return SparseDictionary(kind, 2, decoder, centre, SOURCE)
    flat = np.zeros(features, np.float32)
    return SparseDictionary(kind, 2, decoder, centre, SOURCE, decoder.copy(), flat, flat + 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["topk", "jumprelu", "pca"])
def test_what_is_written_is_read(tmp_path: Path, kind: str) -> None:
    path, written = tmp_path / "x.safetensors", dictionary(kind)
    write_dictionary(path, written)
    result = read_dictionary(path)
    assert (result.kind, result.k, result.source) == (written.kind, written.k, written.source)
    assert result.arrays.keys() == written.arrays.keys()
    assert all(np.array_equal(result.arrays[name], array) for name, array in written.arrays.items())
    again = tmp_path / "y.safetensors"
    write_dictionary(again, result)
    assert again.read_bytes() == path.read_bytes()


def test_features_have_names() -> None:
    assert dictionary().number("feature_5") == 5
    for name in ("feature_6", "feature_", "feature_1e1", "self_food", "feature_00000000001"):
        assert_refuses("it has feature_0 to feature_5", dictionary().number, name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"decoder": np.ones((6, 4), np.float32)}, "length 1"),
        ({"decoder": dictionary().decoder.astype(np.float64)}, "float32"),
        ({"centre": np.zeros(3, np.float32)}, "shapes"),
        ({"encoder": None}, "arrays of the kind topk"),
        ({"threshold": np.full(6, -1, np.float32)}, "negative"),
        ({"encoder_bias": np.full(6, np.nan, np.float32)}, "NaN"),
        ({"k": 7}, "7 of 6 features"),
    ],
)
def test_what_cannot_be_used_is_neither_written_nor_read(tmp_path: Path, change: dict, reason: str) -> None:
    broken, path = replace(dictionary(), **change), tmp_path / "x.safetensors"
    with pytest.raises(ValueError, match=reason):
        write_dictionary(path, broken)
    assert not path.exists()
    header = {"version": 1, "kind": broken.kind, "k": broken.k, "source": vars(broken.source)}
    write_tensors(path, broken.arrays, orjson.dumps(header).decode(), "sparse dictionary")
    assert_refuses(reason, read_dictionary, path)


def test_other_files_and_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_dictionary(path, dictionary())
    assert_refuses("is a dictionary of sparse features, but a file of directions is needed", read_directions, path)
    arrays, text = read_tensors(path, "sparse dictionary")
    write_tensors(path, arrays, text.replace('"version":1', '"version":2'), "sparse dictionary")
    assert_refuses("version 2", read_dictionary, path)
