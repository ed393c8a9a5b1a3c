"""Embeddings: distinct for tasks, close for related ones, equal everywhere; language models, files, no pickle."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from reinforcement_learning.game.task_encoder import (
    describe_task,
    encode_task,
    language_model_embeddings,
    pin_embeddings,
    pin_language_model,
    write_embeddings,
)
from reinforcement_learning.game.tasks import curriculum, evaluation_tasks, find_task, offered_tasks
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings, task_record
from tests.command import ROOT, assert_refuses, python
from tests.tiny_language_model import make_language_model


def all_tasks() -> list:
    return [spec for name in ("training", "evaluation") for spec in curriculum(TaskSettings(curriculum=name), ENV)]


ENV = EnvironmentSettings()


def test_structural_embeddings_are_apart_of_unit_length_and_stay_what_policies_were_trained_with() -> None:
    vectors = np.stack([encode_task(spec, 128) for spec in all_tasks()]).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=2e-3)
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, 0)
    assert likeness.max() < 0.99
    names = [spec.eval_fn.__name__ for spec in all_tasks()]
    related = np.equal.outer(names, names) & ~np.eye(len(names), dtype=bool)
    assert likeness[related].mean() > 0.3 > 0.1 > abs(likeness[~related].mean())
    # Policies were trained on these embeddings: changing them would invalidate all existing checkpoints.
    spec = find_task(all_tasks(), "Task_CountEvent_(event:PLAYER_KILL_N:20)_reward_to:agent")
    np.testing.assert_allclose(encode_task(spec, 128)[:4], [-0.05817, 0.01686, -0.12238, -0.04889], atol=1e-4)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    make_language_model(folder, [describe_task(spec) for spec in all_tasks()])
    return folder


@pytest.fixture
def task(model_folder: Path, tmp_path: Path) -> TaskSettings:
    return TaskSettings(
        encoder="language-model", language_model=str(model_folder), embedding_size=16, embeddings_dir=tmp_path
    )


def test_descriptions_say_everything() -> None:
    texts = [describe_task(spec) for spec in all_tasks()]
    assert len(set(texts)) == len(texts)
    assert any(
        text.startswith("AttainSkill(skill=Melee, level=10, num_agent=1)  # True if the number") for text in texts
    )


def test_embeddings_are_the_models_mean_hidden_states_and_projection_keeps_their_angles(
    task: TaskSettings, model_folder: Path
) -> None:
    import transformers

    specs = all_tasks()[::40]
    ours = language_model_embeddings(specs, task)  # 16 hidden units: no projection
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    model = transformers.AutoModel.from_pretrained(model_folder).eval()
    for spec, embedding in zip(specs, ours, strict=True):
        with torch.no_grad():
            hidden = model(**tokenizer(describe_task(spec), return_tensors="pt")).last_hidden_state[0].mean(dim=0)
        np.testing.assert_allclose(embedding, (hidden / hidden.norm()).numpy(), atol=1e-3)
    assert ours.dtype == np.float16 and len({row.tobytes() for row in ours}) == len(specs)
    specs = all_tasks()[::10]
    small, large = (
        language_model_embeddings(specs, replace(task, embedding_size=size)).astype(float) for size in (16, 1024)
    )
    assert large.shape == (len(specs), 1024)
    np.testing.assert_allclose(large @ large.T, small @ small.T, atol=0.2)


def test_the_model_is_read_once(task: TaskSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    read: list[tuple[int, int]] = []
    first = offered_tasks(replace(task, curriculum="evaluation"), ENV, lambda *done: read.append(done))
    assert read[-1] == (63, 63)
    (kept,) = task.embeddings_dir.iterdir()
    assert len(safetensors.numpy.load_file(kept)) == 63
    pinned = pin_language_model(task)
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", lambda *_, **__: pytest.fail("loaded again"))
    again = offered_tasks(replace(pinned, curriculum="evaluation"), ENV, lambda *_: pytest.fail("read again"))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.embedding, other.embedding)


def test_loading_a_model_leaves_random_numbers_alone_and_without_transformers_the_extra_is_named(
    task: TaskSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    language_model_embeddings(all_tasks()[:2], task)
    assert torch.equal(torch.rand(3), expected)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert_refuses("uv sync --inexact --extra language-model", pin_language_model, task)


def test_another_model_a_damaged_cache_and_weights_as_pickle_are_refused(
    task: TaskSettings, model_folder: Path, tmp_path: Path
) -> None:
    other = replace(task, language_model_revision="abc")
    message = "language_model_revision is abc, the folder's is"
    assert_refuses(message, language_model_embeddings, all_tasks()[:2], other)
    language_model_embeddings(all_tasks()[:2], task)
    (kept,) = task.embeddings_dir.iterdir()
    kept.write_bytes(kept.read_bytes()[:-5])
    assert_refuses(f"{kept.name} is not a whole .* remove it", language_model_embeddings, all_tasks()[:2], task)
    folder = tmp_path / "pickled"
    shutil.copytree(model_folder, folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    pickled = replace(task, language_model=str(folder))
    assert_refuses("cannot be loaded", language_model_embeddings, all_tasks()[:2], pickled)


@pytest.mark.slow
def test_a_model_that_cannot_be_reached_is_one_line(task: TaskSettings, tmp_path: Path) -> None:
    code = (
        "from reinforcement_learning.settings import TaskSettings;"
        "from reinforcement_learning.game.task_encoder import pin_language_model;"
        "pin_language_model(TaskSettings(encoder='language-model', language_model='nobody/nothing'))"
    )
    done = python("-c", code, code=1, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "empty"))
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("common.user_error.UserError: the language model 'nobody/nothing' cannot"), done.stderr


def test_a_cache_of_earlier_versions_is_read_and_other_files_are_refused(
    task: TaskSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    specs = all_tasks()[:3]
    expected = language_model_embeddings(specs, task)
    (kept,) = task.embeddings_dir.iterdir()
    kept.write_bytes(safetensors.numpy.save(safetensors.numpy.load_file(kept)))  # they wrote the arrays alone
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", lambda *_, **__: pytest.fail("loaded again"))
    np.testing.assert_array_equal(language_model_embeddings(specs, task), expected)
    kept.write_bytes((ROOT / "policies" / "takeru_10M.safetensors").read_bytes())
    assert_refuses("is a policy, but a cache of task embeddings is needed here", language_model_embeddings, specs, task)
    kept.write_bytes(safetensors.numpy.save({"weight": np.zeros(3, np.float32)}))
    assert_refuses("is not a cache of task embeddings", language_model_embeddings, specs, task)


NAMES = [spec.name for spec in evaluation_tasks()]
VECTORS = {name: np.full(16, number, np.float16) for number, name in enumerate(NAMES)}


@pytest.fixture
def filed(tmp_path: Path) -> TaskSettings:
    path = tmp_path / "folder" / "tasks.safetensors"
    write_embeddings(path, VECTORS, "tasks.pkl")
    return TaskSettings(curriculum="evaluation", encoder="file", embeddings=str(path), embedding_size=16)


def refused(task: TaskSettings) -> str:
    return assert_refuses((), offered_tasks, task, ENV)


def test_tasks_have_the_embeddings_of_the_file_whose_hash_and_size_are_recorded(filed: TaskSettings) -> None:
    specs = offered_tasks(filed, ENV)
    assert all(np.array_equal(spec.embedding, VECTORS[spec.name]) for spec in specs)
    folder = Path(str(filed.embeddings)).parent
    moved = replace(filed, embeddings="somewhere/tasks.safetensors", embeddings_dir=folder)
    assert len(offered_tasks(moved, ENV)) == len(NAMES)
    pinned = pin_embeddings(replace(filed, embedding_size=8))
    assert pinned.embedding_size == 16 and len(pinned.embeddings_sha256 or "") == 64
    assert TaskSettings(**task_record(pinned)) == pinned
    write_embeddings(Path(str(filed.embeddings)), {name: 2 * vector for name, vector in VECTORS.items()}, "other.pkl")
    assert "is not the file of task embeddings that was recorded" in refused(pinned)
    assert task_record(TaskSettings()).keys().isdisjoint({"embeddings", "embeddings_sha256", "embeddings_dir"})


def test_what_does_not_fit_is_refused(filed: TaskSettings, tmp_path: Path) -> None:
    assert "--task.embeddings FILE" in refused(replace(filed, embeddings=None))
    lost = refused(replace(filed, embeddings="nowhere.safetensors"))
    assert "nowhere.safetensors is neither here nor in task_embeddings" in lost and "--embeddings-dir" in lost
    assert "embeddings of 16 numbers, and 8 are needed" in refused(replace(filed, embedding_size=8))
    assert "has no embedding of the task" in refused(replace(filed, curriculum="training"))
    for damaged in ({"a": np.ones((2, 2))}, {"a": np.full(2, np.nan)}, {"a": np.ones(2), "b": np.ones(3)}, {}):
        path = tmp_path / "damaged.safetensors"
        write_embeddings(path, damaged, "")
        assert "not a file of task embeddings" in refused(replace(filed, embeddings=str(path)))
