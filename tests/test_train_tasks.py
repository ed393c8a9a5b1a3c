"""Tasks from the command line: lists, custom curricula, automatic curricula, and language-model embeddings."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from activation_store.reader import read_dump, read_metadata
from agent_zoo.checkpoint import load_checkpoint
from reinforcement_learning.game.task_encoder import describe_task
from reinforcement_learning.game.tasks import curriculum, offered_tasks
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import assert_refused, run_here, run_well
from tests.test_train import SMALL, TWO_UPDATES, folders, metrics_of
from tests.tiny_language_model import make_language_model

pytestmark = pytest.mark.usefixtures("without_curves")
MINE = """
- {predicate: TickGE, arguments: {num_tick: 2}}
- {predicate: CountEvent, arguments: {event: EAT_FOOD, N: 1}, weight: 3}
"""
FIRST = "Task_TickGE_(num_tick:2)_reward_to:agent"


def test_tasks_are_listed_plainly_into_a_pipe(tmp_path: Path) -> None:
    result = run_here("train.py", "--list-tasks", "-c", "evaluation", *folders(tmp_path))
    lines = result.stdout.splitlines()
    assert result.returncode == 0 and len(lines) == 64 and result.stderr == ""
    assert lines[0].split("\t") == ["number", "task", "share of draws"]
    assert lines[2].split("\t") == ["1", "Task_CountEvent_(event:PLAYER_KILL_N:20)_reward_to:agent", "1.59%"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("-c", "trianing"), ("no curriculum 'trianing'", "training, evaluation, survival")),
        (("--curriculum", "nowhere.yaml"), ("nowhere.yaml does not exist", "-c")),
        (("-t", "nonsense"), ("no tasks of the curriculum contain 'nonsense'", "Task_TickGE_(num_tick:50)")),
        (("-c", "evaluation", "--task", "63"), ("no task number 63",)),
        (("-t", "0", "--syllabus", "learning_progress"), ("nothing to choose from",)),
        (("-t", "0", "--syllabus"), ("nothing to choose from",)),
        (
            ("--task.encoder", "language-model", "--task.language-model", "./nowhere"),
            ("the language model './nowhere' cannot be loaded",),
        ),
    ],
)
def test_what_names_nothing_is_refused_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    assert_refused(run_here("train.py", *SMALL, *folders(tmp_path), *arguments), *parts)
    assert list(tmp_path.iterdir()) == [], "something was left behind"


@pytest.fixture(scope="module")
def trained(maps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a policy was trained on a curriculum of one's own, read by a language model, chosen by PLR."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "mine.yaml").write_text(MINE)
    specs = curriculum(TaskSettings(curriculum=str(folder / "mine.yaml")), EnvironmentSettings())
    make_language_model(folder / "model", [describe_task(spec) for spec in specs])
    result = run_well(
        "train.py", *TWO_UPDATES, "-n", "reader", *folders(folder, maps.parent), "-c", folder / "mine.yaml",
        "--syllabus", "prioritized_level_replay", "--task.encoder", "language-model", "--task.language-model",
        folder / "model", "--task.embedding-size", 24, "--task.embeddings-dir", folder / "embeddings",
    )  # fmt: skip
    assert result.stderr == ""
    assert "reading tasks with the language model: 2" in result.stdout
    return folder


def test_training_writes_down_what_was_drawn_and_the_checkpoint_says_who_read_the_tasks(trained: Path) -> None:
    metrics = metrics_of(trained / "runs" / "reader")
    weights = json.loads((trained / "runs" / "reader" / "task_weights.json").read_text())
    assert metrics[-1][f"curriculum/weight/{FIRST}"] == weights[FIRST]
    assert 0 < metrics[-1]["curriculum/entropy"] <= np.log(2)
    _, info = load_checkpoint(trained / "policies" / "reader.safetensors")
    assert info.task["encoder"] == "language-model" and info.task["language_model"] == str(trained / "model")
    assert len(info.task["language_model_revision"]) == 64 and info.layout.task_size == 24
    task = TaskSettings(**info.task, embeddings_dir=trained / "rebuilt")
    (kept,) = (trained / "embeddings").iterdir()
    again = offered_tasks(task, EnvironmentSettings())
    known = offered_tasks(TaskSettings(**info.task, embeddings_dir=kept.parent), EnvironmentSettings())
    for one, other in zip(again, known, strict=True):
        np.testing.assert_array_equal(one.embedding, other.embedding)


def test_activations_are_extracted_with_the_same_reader_even_without_its_files(
    trained: Path, maps: Path, tmp_path: Path
) -> None:
    shutil.move(trained / "model", tmp_path / "model")
    shared = (
        "-p", "reader", "-n", "1", "--max-steps", "4", "--policies-dir", trained / "policies",
        "--maps-dir", maps.parent, "--embeddings-dir", trained / "embeddings", "-o", tmp_path,
    )  # fmt: skip
    run_well("extract_activations.py", "pve", *shared)
    assert len(read_dump(tmp_path / "reader")) > 32
    assert read_metadata(tmp_path / "reader").environment["task"]["language_model"] == str(trained / "model")
    shutil.rmtree(tmp_path / "reader")
    unread = run_here("extract_activations.py", "pve", *shared, "-c", "evaluation", "-t", "0")
    assert_refused(unread, "the language model")
    shutil.move(tmp_path / "model", trained / "model")
    run_well("extract_activations.py", "pve", *shared, "-c", "evaluation", "-t", "0")
    assert read_metadata(tmp_path / "reader").environment["task"]["only"] == "0"
