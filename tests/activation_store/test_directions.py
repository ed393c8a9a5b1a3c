"""Files of directions are read back as written; damaged, foreign or unusable files are refused in one line."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file

from activation_store.directions import (
    DIRECTIONS_FILE,
    FORMAT_VERSION,
    Direction,
    Source,
    read_directions,
    write_directions,
)
from common.array_files import read_tensors, write_tensors
from tests.command import assert_refuses

UNITS = 7
SOURCE = Source("probe", "a-probes", "a", "a_3M", "0" * 64)


def direction(name: str, *, seed: int = 0, units: int = UNITS) -> Direction:
    weight = np.random.default_rng(seed).normal(size=units).astype(np.float32)
    return Direction(name, "lstm_cell", weight, 0.1, "points", 4.5, 2.0, 100, 10, 3, SOURCE)


WRITTEN = (direction("a/lstm_cell/self_food"), direction("a/lstm_cell/tick", seed=1), direction("cluster_0", seed=2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_directions(tmp_path / DIRECTIONS_FILE, WRITTEN)
    return tmp_path / DIRECTIONS_FILE


def refused(path: Path) -> str:
    return assert_refuses([str(path)], read_directions, path)


def test_what_is_written_is_read_back_also_by_any_reader_of_safetensors(path: Path, tmp_path: Path) -> None:
    result = read_directions(path)
    assert len(result) == len(WRITTEN) and result.path == path
    for one, other in zip(result, WRITTEN, strict=True):
        assert {**vars(one), "weight": None} == {**vars(other), "weight": None}
        np.testing.assert_array_equal(one.weight, other.weight)
        assert one.weight.dtype == np.float32
    write_directions(tmp_path / "again", WRITTEN)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    arrays = load_file(path)
    np.testing.assert_array_equal(arrays["cluster_0/weight"], WRITTEN[2].weight)
    assert arrays["cluster_0/bias"] == 0.1
    write_directions(tmp_path / "none", [])
    assert len(read_directions(tmp_path / "none")) == 0


def test_read_out_is_the_weighted_sum_and_the_bias_however_large_they_are() -> None:
    one = replace(direction("x", units=3), weight=np.array([1, -2, 0.5], np.float32), bias=10.0)
    assert one.read_out(np.array([[1, 1, 2], [0, 0, 0]], np.float32)).tolist() == [10, 10]
    with pytest.raises(ValueError):
        one.read_out(np.zeros((2, 4), np.float32))
    one = replace(direction("x", units=1), weight=np.array([1e6], np.float32), bias=-900_000.0)
    activation = np.array([[0.9]], np.float32)
    assert one.read_out(activation)[0] == pytest.approx(float(activation[0, 0]) * 1e6 - 900_000, abs=1e-6)


def test_a_direction_is_found_by_how_its_name_ends_and_is_named_once(path: Path, tmp_path: Path) -> None:
    result = read_directions(path)
    for name in ("a/lstm_cell/tick", "lstm_cell/tick", "tick"):
        assert result.named(name).name == "a/lstm_cell/tick"
    assert_refuses(r"no direction 'self_foot': did you mean 'self_food'\?", result.named, "self_foot")
    assert_refuses("it holds a/lstm_cell/self_food, a/lstm_cell/tick, cluster_0", result.named, "zzz")
    write_directions(tmp_path / "two", [direction("a/lstm_cell/tick"), direction("a/lstm_hidden/tick")])
    message = "holds 2 directions 'tick': name one of a/lstm_cell/tick, a/lstm_hidden/tick"
    assert_refuses(message, read_directions(tmp_path / "two").named, "tick")
    full = result.named("tick").name
    others = [item.name for item in result if item.name != full]
    assert [item.name for item in result.all_named(["tick", *others])] == [full, *others]
    assert_refuses(f"{full}.* is named twice", result.all_named, ["tick", *others, full])


@pytest.mark.parametrize("text", ["{}", "[1]", "not JSON", '{"kind": "checkpoint", "version": 1}'])
def test_a_file_of_another_kind(tmp_path: Path, text: str) -> None:
    for kind, message in (
        ("directions", "does not hold directions"),
        ("policy", "is a policy, but a file of directions is needed here"),
    ):
        write_tensors(tmp_path / kind, {"weight": np.zeros(3, np.float32)}, text, kind)
        assert message in refused(tmp_path / kind)
    assert "does not exist" in refused(tmp_path / "nowhere")


def rewrite(path: Path, change: Callable[[dict, dict], None]) -> None:
    """Change what a file says and holds, with a hash that fits."""
    arrays, text = read_tensors(path, "directions")
    header = orjson.loads(text)
    change(header, arrays)
    write_tensors(path, arrays, orjson.dumps(header).decode(), "directions")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, _: header.update(version=FORMAT_VERSION + 1), "this toolkit reads version 1"),
        (lambda header, _: header.pop("directions"), "is damaged"),
        (lambda header, _: header["directions"].pop(), "its arrays are not those"),
        (lambda header, _: header["directions"][1].update(units=UNITS + 1), "weight of shape (7,)"),
        (lambda header, _: header["directions"][1].update(mean=None), "'1.mean': Input should be a valid number"),
        (lambda header, _: header["directions"][1]["source"].update(kind="guess"), "'1.source.kind'"),
        (lambda header, _: header["directions"][1].update(spread=-1.0), "its spread is negative"),
        (lambda header, _: header["directions"][1].update(lives=200), "200 lives"),
        (lambda header, _: header["directions"][1].update(unit=""), "unit is not named"),
        (lambda _, arrays: arrays.update({"cluster_0/weight": np.zeros((1, UNITS), np.float32)}), "of shape (1, 7)"),
        (lambda _, arrays: arrays.update({"cluster_0/weight": np.zeros(UNITS, np.float32)}), "points nowhere"),
        (lambda _, arrays: arrays.update({"cluster_0/weight": np.ones(UNITS)}), "float64"),
        (lambda _, arrays: arrays["cluster_0/weight"].__setitem__(3, np.nan), "NaN or infinity"),
        (lambda _, arrays: arrays.update({"cluster_0/bias": np.array(np.inf)}), "NaN or infinity"),
        (lambda _, arrays: arrays.pop("cluster_0/bias"), "its arrays are not those"),
    ],
)
def test_what_cannot_be_used_is_refused(path: Path, change: Callable[[dict, dict], None], message: str) -> None:
    rewrite(path, change)
    assert message in refused(path)


@pytest.mark.parametrize(
    "bad",
    [
        {"weight": np.ones(UNITS)},
        {"bias": float("inf")},
        {"records": 2},
        {"name": "two\nlines"},
    ],
)
def test_what_cannot_be_used_is_not_written(tmp_path: Path, bad: dict) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        write_directions(tmp_path / "bad", [replace(WRITTEN[0], **bad)])
    with pytest.raises(ValueError, match="two directions are called 'cluster_0'"):
        write_directions(tmp_path / "bad", [WRITTEN[2], WRITTEN[2]])
    assert not (tmp_path / "bad").exists()
