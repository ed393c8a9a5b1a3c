"""Task embeddings from a file: used as they are, and only where they fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reinforcement_learning.game.task_encoder import pin_embeddings, write_embeddings
from reinforcement_learning.game.tasks import evaluation_tasks, offered_tasks
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings, task_record
from tests.command import assert_refuses

NAMES = [spec.name for spec in evaluation_tasks()]
VECTORS = {name: np.full(16, number, np.float16) for number, name in enumerate(NAMES)}


@pytest.fixture
def task(tmp_path: Path) -> TaskSettings:
    path = tmp_path / "folder" / "tasks.safetensors"
    write_embeddings(path, VECTORS, "tasks.pkl")
    return TaskSettings(curriculum="evaluation", encoder="file", embeddings=str(path), embedding_size=16)


def refused(task: TaskSettings) -> str:
    return assert_refuses((), offered_tasks, task, EnvironmentSettings())


def test_tasks_have_the_embeddings_of_the_file_wherever_it_has_moved(task: TaskSettings) -> None:
    specs = offered_tasks(task, EnvironmentSettings())
    assert all(np.array_equal(spec.embedding, VECTORS[spec.name]) for spec in specs)
    folder = Path(str(task.embeddings)).parent
    moved = replace(task, embeddings="somewhere/tasks.safetensors", embeddings_dir=folder)
    assert len(offered_tasks(moved, EnvironmentSettings())) == len(NAMES)


def test_the_hash_and_the_size_are_recorded_where_there_is_a_file(task: TaskSettings) -> None:
    pinned = pin_embeddings(replace(task, embedding_size=8))
    assert pinned.embedding_size == 16 and len(pinned.embeddings_sha256 or "") == 64
    assert TaskSettings(**task_record(pinned)) == pinned
    write_embeddings(Path(str(task.embeddings)), {name: 2 * vector for name, vector in VECTORS.items()}, "other.pkl")
    assert "is not the file of task embeddings that was recorded" in refused(pinned)
    assert task_record(TaskSettings()).keys().isdisjoint({"embeddings", "embeddings_sha256", "embeddings_dir"})


def test_what_does_not_fit_is_refused(task: TaskSettings, tmp_path: Path) -> None:
    assert "--task.embeddings FILE" in refused(replace(task, embeddings=None))
    lost = refused(replace(task, embeddings="nowhere.safetensors"))
    assert "nowhere.safetensors is neither here nor in task_embeddings" in lost and "--embeddings-dir" in lost
    assert "embeddings of 16 numbers, and 8 are needed" in refused(replace(task, embedding_size=8))
    assert "has no embedding of the task" in refused(replace(task, curriculum="training"))
    for damaged in ({"a": np.ones((2, 2))}, {"a": np.full(2, np.nan)}, {"a": np.ones(2), "b": np.ones(3)}, {}):
        path = tmp_path / "damaged.safetensors"
        write_embeddings(path, damaged, "")
        assert "no file of task embeddings" in refused(replace(task, embeddings=str(path)))
