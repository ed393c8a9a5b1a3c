"""Curricula of the original are read exactly; hostile ones run nothing."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_zoo.original.curriculum import read_curriculum
from tests.command import assert_refuses
from tests.fuzz import limited
from tests.original_files import Call, Code, Name, call, code, pickled, saved_array, saved_curriculum

VECTORS = {f"task {number}": np.arange(number, number + 5).astype(np.float16) for number in range(3)}


class TaskSpec:
    """Pickled by Python itself, as the original's of the same name."""

    def __init__(self, name: str, embedding: np.ndarray):
        self.name = name
        self.embedding = embedding


def read(path: Path, content: bytes) -> dict[str, np.ndarray]:
    path.write_bytes(content)
    with limited():
        return read_curriculum(path)


def check_equal(ours: dict[str, np.ndarray]) -> None:
    assert list(ours) == list(VECTORS)
    assert all(np.array_equal(ours[name], VECTORS[name]) and ours[name].dtype == np.float16 for name in VECTORS)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f8"])
def test_every_protocol_is_read(tmp_path: Path, protocol: int, dtype: str) -> None:
    tasks = [TaskSpec(name, vector.astype(dtype)) for name, vector in VECTORS.items()]
    check_equal(read(tmp_path / "a.pkl", pickle.dumps(tasks, protocol=protocol)))


def test_arrays_as_dill_writes_them_are_read_and_the_first_of_two_tasks_with_one_name(tmp_path: Path) -> None:
    arrays = {name: saved_array(vector) for name, vector in VECTORS.items()}
    by_dill = {
        name: call("dill._dill", "_create_array", array.of, array.arguments, array.state, None)
        for name, array in arrays.items()
    }
    check_equal(read(tmp_path / "a.pkl", saved_curriculum(by_dill)))
    tasks = [TaskSpec("a", np.zeros(2, np.float16)), TaskSpec("a", np.ones(2, np.float16))]
    assert read(tmp_path / "a.pkl", pickle.dumps(tasks))["a"].tolist() == [0, 0]


def mkdir(canary: Path) -> Call:
    return call("posix", "mkdir", str(canary))


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "the whole file": (mkdir, "not a list of tasks"),
    "a task": (lambda c: [mkdir(c)], "task number 0 has no name"),
    "a task's state": (lambda c: [call("nmmo", "TaskSpec", state=mkdir(c))], "has no name"),
    "a name": (lambda c: [call("nmmo", "TaskSpec", state={"name": mkdir(c)})], "has no name"),
    "an embedding": (lambda c: saved_curriculum({"a": mkdir(c)}), "of its task a is not a list of numbers"),
    "bytes": (lambda c: with_state((1, (2,), half(), False, mkdir(c))), "not a list of numbers"),
    "a shape": (lambda c: with_state((1, mkdir(c), half(), False, bytes(4))), "not a list of numbers"),
    "a type": (lambda c: with_state((1, (2,), mkdir(c), False, bytes(4))), "not a list of numbers"),
    "a type's name": (lambda c: with_state((1, (2,), half("O"), False, bytes(4))), "not a list of numbers"),
    "a codec": (
        lambda c: with_state((1, (2,), half(), False, call("_codecs", "encode", mkdir(c), "latin1"))),
        "not a list of numbers",
    ),
    "no embedding": (lambda c: saved_curriculum({"a": None}), "task a has no embedding"),
    "infinite": (lambda c: saved_curriculum({"a": np.full(2, np.inf)}), "too large or none"),
    "too large for half precision": (lambda c: saved_curriculum({"a": np.full(2, 1e9)}), "too large or none"),
    "different sizes": (
        lambda c: saved_curriculum({"a": np.ones(2), "b": np.ones(3)}), r"different sizes \(2 and 3 numbers\)",
    ),
    "empty embeddings": (lambda c: saved_curriculum({"a": np.ones(0)}), "different sizes"),
    "a table": (lambda c: saved_curriculum({"a": np.ones((2, 2))}), "not a list of numbers"),
    "no tasks": (lambda c: [], "not a list of tasks"),
    "many tasks": (lambda c: Code(b"](" + b"N" * 20_000 + b"e"), "more than 16,384"),
    "an escape code": (lambda c: saved_curriculum({"\x1b[31m": np.ones(2)}), "has no name"),
    "no pickle": (lambda c: b"not a pickle", "damaged"),
    "a text with an escape that is none": (lambda c: b"S'\\\xab'\n.", "list of tasks|damaged"),
    "a file inside": (lambda c: [call("dill", "load", call("builtins", "open", str(c)))], "has no name"),
}  # fmt: skip


def half(name: str = "f2") -> Call:
    return call("numpy", "dtype", name, False, True, state=(3, "<", None, None, None, -1, -1, 0))


def with_state(state: Any) -> bytes:
    empty = saved_array(np.ones(2, np.float16))
    return saved_curriculum({"a": Call(empty.of, empty.arguments, state)})


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_curriculum_is_refused_and_runs_nothing(tmp_path: Path, what: str) -> None:
    make, message = REFUSED[what]
    content = make(tmp_path / "canary")
    content = content if isinstance(content, bytes) else pickled(content)
    assert "a.pkl" in assert_refuses(message, read, tmp_path / "a.pkl", content)
    assert not (tmp_path / "canary").exists()


def test_what_stands_beside_names_and_embeddings_stays_inert(tmp_path: Path) -> None:
    vector = saved_array(VECTORS["task 0"])
    state = {"name": "a", "embedding": vector, "eval_fn": mkdir(tmp_path / "canary"), "tags": Name("os", "mkdir")}
    content = code([call("nmmo", "TaskSpec", state=state)])
    assert read(tmp_path / "a.pkl", b"\x80\x02" + content + b".")["a"].tolist() == [0, 1, 2, 3, 4]
    assert not (tmp_path / "canary").exists()
