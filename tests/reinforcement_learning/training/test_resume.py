"""A stopped run resumes bit for bit as if uninterrupted, and every part of its saved state is needed."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from activation_store.layers import MemoryCell
from agent_zoo.checkpoint import load_checkpoint
from agent_zoo.memory import MemoryState
from common.array_files import read_tensors, write_tensors
from reinforcement_learning.game.environment import EpisodeStart
from reinforcement_learning.processes import StopSignal
from reinforcement_learning.settings import PolicySettings, RolloutSettings, Settings, TaskSettings, TrainSettings
from reinforcement_learning.training.opponents import Ratings
from reinforcement_learning.training.run_folder import STATE_FILE, TrainingFolder, TrainingState
from reinforcement_learning.training.trainer import Metrics, Session, checkpoints_due, train
from tests.command import assert_refuses
from tests.conftest import AGENT

pytestmark = pytest.mark.usefixtures("without_curves")
UPDATES_BEFORE, UPDATES = 3, 5
SHIPPED = Path(__file__).parents[3] / "policies" / "start_kit_3M.safetensors"


class StopAfter(StopSignal):
    """Requests a stop in the middle of the update after a given one."""

    def __init__(self, updates: int):
        super().__init__()
        self.left = updates

    def count(self, metrics: Metrics) -> None:
        self.left -= 1
        self.received = 2 if self.left == 0 else None


@pytest.fixture(scope="module")
def settings(small_world, task) -> Settings:
    return Settings(
        env=replace(small_world, horizon=20),
        task=task,
        policy=PolicySettings(hidden_size=16),
        rollout=RolloutSettings(num_envs=2, vectorization="serial"),
        train=TrainSettings(
            total_agent_steps=UPDATES * 384, batch_size=384, minibatch_rows=16, bptt_horizon=8, update_epochs=1,
            num_checkpoints=2,
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def play(settings: Settings, maps: Path) -> Callable[..., dict[str, torch.Tensor]]:
    """Train in a folder and return the final weights."""

    def play(
        folder: Path, stop: StopAfter, state: TrainingState | None = None, settings: Settings = settings
    ) -> dict[str, torch.Tensor]:
        folder.mkdir(exist_ok=True)
        path = train("one", AGENT, settings, maps, Session(TrainingFolder(folder), stop, on_update=stop.count), state)
        return dict(load_checkpoint(path)[0].state_dict())

    return play


@pytest.fixture(scope="module")
def straight(play, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return play(tmp_path_factory.mktemp("straight"), StopAfter(-1))


@pytest.fixture(scope="module")
def stopped(play, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was stopped in the middle of an update."""
    folder = tmp_path_factory.mktemp("stopped")
    play(folder, StopAfter(UPDATES_BEFORE))
    return folder


@pytest.fixture
def again(stopped: Path, tmp_path: Path) -> tuple[Path, TrainingState]:
    """A copy of that folder, and its state."""
    folder = shutil.copytree(stopped, tmp_path / "run")
    return folder, TrainingState.load(folder / STATE_FILE)


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_goes_on_bit_for_bit(play, straight, again: tuple[Path, TrainingState]) -> None:
    folder, state = again
    assert state.updates == UPDATES_BEFORE
    assert any(start.number > 0 for start in state.worlds), "no world is past its first episode: too easy"
    assert any(len(start.actions) > 3 for start in state.worlds), "no world is inside an episode: too easy"
    assert equal(play(folder, StopAfter(-1), state), straight)


def test_lines_of_updates_are_on_the_disk_before_the_state_that_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut must not keep a state of five updates beside lines of four: the file would lack one for good."""
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    TrainingFolder(tmp_path).append_metrics({"update": 1})
    Ratings().save(tmp_path, "one")
    for name in ("metrics.jsonl", "elo.jsonl"):
        assert (tmp_path / name).stat().st_ino in synced, name


def test_a_world_with_fog_reports_deaths_in_it_also_where_there_are_none(
    play, settings: Settings, tmp_path: Path
) -> None:
    """Means over updates, of curves and comparisons, would otherwise be over those alone in which the fog killed."""
    foggy = replace(settings, env=replace(settings.env, horizon=64, death_fog_tick=1000))
    foggy = replace(foggy, train=replace(foggy.train, total_agent_steps=UPDATES * 384))
    play(tmp_path / "foggy", StopAfter(-1), settings=foggy)
    updates = [json.loads(line) for line in (tmp_path / "foggy" / "metrics.jsonl").read_text().splitlines()]
    of_deaths = [update for update in updates if "death/starved" in update]
    assert of_deaths and all(update["death/fog"] == 0 for update in of_deaths)


def test_a_run_with_opponents_goes_on_bit_for_bit_and_with_its_ratings(
    play, settings: Settings, tmp_path: Path
) -> None:
    opposed = replace(settings, train=replace(settings.train, pool_kernel="0,0,1", checkpoint_interval=1))
    opposed = replace(opposed, train=replace(opposed.train, total_agent_steps=3 * 384))
    straight = play(tmp_path / "straight", StopAfter(-1), settings=opposed)
    play(tmp_path / "stopped", StopAfter(1), settings=opposed)
    state = TrainingState.load(tmp_path / "stopped" / STATE_FILE)
    assert equal(play(tmp_path / "stopped", StopAfter(-1), state, settings=opposed), straight)
    tables = [(tmp_path / folder / "elo.tsv").read_text() for folder in ("straight", "stopped")]
    assert tables[0] == tables[1] and tables[0].count("one_0") >= 2
    rated = [json.loads(line) for line in (tmp_path / "stopped" / "metrics.jsonl").read_text().splitlines()]
    assert {"opponents/rating", "opponents/lives"} <= rated[-1].keys() and len(rated) == 3


def drop_memory(state: TrainingState) -> TrainingState:
    assert state.memory.hidden.abs().sum() > 0
    return replace(
        state, memory=MemoryState(torch.zeros_like(state.memory.hidden), torch.zeros_like(state.memory.cell))
    )


def drop_one_moment(name: str) -> Callable[[TrainingState], TrainingState]:
    def drop(state: TrainingState) -> TrainingState:
        tensors = {
            key: torch.zeros_like(tensor) if key.endswith(name) else tensor for key, tensor in state.optimizer.items()
        }
        assert not equal(tensors, state.optimizer)
        return replace(state, optimizer=tensors)

    return drop


DROPPED = {
    "steps": lambda state: replace(state, steps=0),
    "policy": lambda state: replace(
        state, policy={name: tensor + 1e-3 if "critic" in name else tensor for name, tensor in state.policy.items()}
    ),
    "exp_avg": drop_one_moment("exp_avg"),
    "exp_avg_sq": drop_one_moment("exp_avg_sq"),
    "optimizer step": drop_one_moment("step"),
    "memory": drop_memory,
    "minibatch random": lambda state: replace(
        state, minibatch_random=torch.Generator().manual_seed(0).get_state().unsqueeze(0)
    ),
    "actions": lambda state: replace(
        state, worlds=[EpisodeStart(world.first_seed, world.number) for world in state.worlds]
    ),
    "episode": lambda state: replace(state, worlds=[replace(world, number=0) for world in state.worlds]),
}


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=() if part in ("memory", "actions") else pytest.mark.slow) for part in DROPPED]
)
def test_every_part_of_the_state_is_needed(play, straight, again: tuple[Path, TrainingState], part: str) -> None:
    folder, state = again
    assert not equal(play(folder, StopAfter(-1), DROPPED[part](state)), straight)


def test_with_another_number_of_worlds_training_goes_on_in_new_episodes(
    play, settings: Settings, stopped: Path, again: tuple[Path, TrainingState]
) -> None:
    folder, state = again
    train = replace(settings.train, total_agent_steps=state.steps + 1)  # one more update
    play(folder, StopAfter(-1), state, replace(settings, rollout=replace(settings.rollout, num_envs=3), train=train))
    after = TrainingState.load(folder / STATE_FILE)
    assert (after.updates, len(after.worlds)) == (UPDATES_BEFORE + 1, 3) and after.steps > state.steps
    assert not {world.first_seed for world in after.worlds} & {world.first_seed for world in state.worlds}
    before = TrainingState.load(stopped / STATE_FILE)  # the optimizer changed the other one's tensors
    assert after.optimizer["0/step"] > before.optimizer["0/step"] > 0


def test_with_fewer_agent_steps_than_were_trained_the_policy_is_the_last_one(
    play, settings: Settings, again: tuple[Path, TrainingState]
) -> None:
    folder, state = again
    fewer = replace(settings, train=replace(settings.train, total_agent_steps=384))
    assert equal(play(folder, StopAfter(-1), state, fewer), state.policy)


def test_the_first_episode_is_resumed_with_the_tasks_that_were_drawn(play, settings: Settings, tmp_path: Path) -> None:
    task = TaskSettings(curriculum="evaluation", syllabus="prioritized_level_replay", embedding_size=64)
    play(tmp_path, StopAfter(1), settings=replace(settings, task=task, env=replace(settings.env, horizon=1000)))
    worlds = TrainingState.load(tmp_path / STATE_FILE).worlds
    assert [world.number for world in worlds] == [0, 0]
    assert all(world.task_weights is not None for world in worlds)


def drop_episode_weights(state: TrainingState) -> TrainingState:
    assert all(world.task_weights is not None for world in state.worlds)
    return replace(state, worlds=[replace(world, task_weights=None) for world in state.worlds])


@pytest.fixture(scope="module")
def automatic(play, settings: Settings, tmp_path_factory: pytest.TempPathFactory):
    """Settings with an automatic curriculum, the weights of an uninterrupted run, and the folder of a stopped one."""
    task = TaskSettings(curriculum="evaluation", syllabus="prioritized_level_replay", embedding_size=64)
    settings, folder = replace(settings, task=task), tmp_path_factory.mktemp("automatic")
    straight = play(folder / "straight", StopAfter(-1), settings=settings)
    play(folder / "stopped", StopAfter(UPDATES_BEFORE), settings=settings)
    return settings, straight, folder / "stopped"


@pytest.mark.parametrize(
    ("same", "change"),
    [(True, lambda state: state), (False, lambda state: replace(state, curriculum={})), (False, drop_episode_weights)],
)
@pytest.mark.slow
def test_an_automatic_curriculum_goes_on_too(play, automatic, tmp_path: Path, same: bool, change) -> None:
    """Rewards depend on the tasks drawn, so the weights show whether the curriculum was resumed."""
    settings, straight, stopped = automatic
    folder = shutil.copytree(stopped, tmp_path / "run")
    state = change(TrainingState.load(folder / STATE_FILE))
    assert equal(play(folder, StopAfter(-1), state, settings), straight) == same


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "view_radius"), [("gru", 2), ("ema", 7)])
def test_other_memories_and_a_narrow_view_go_on_too(
    play, settings: Settings, tmp_path: Path, cell: MemoryCell, view_radius: int
) -> None:
    settings = replace(
        settings,
        env=replace(settings.env, view_radius=view_radius),
        policy=PolicySettings(hidden_size=16, lstm_layers=2, cell=cell),
        train=replace(settings.train, total_agent_steps=3 * 384),
    )
    straight = play(tmp_path / "straight", StopAfter(-1), settings=settings)
    play(tmp_path / "stopped", StopAfter(1), settings=settings)
    state = TrainingState.load(tmp_path / "stopped" / STATE_FILE)
    assert state.updates == 1 and state.memory.cell.shape[0] == 0 and state.memory.hidden.abs().sum() > 0
    untrained = load_checkpoint(min((tmp_path / "stopped" / "checkpoints").iterdir()))[0].state_dict()
    names = [name for name in straight if name.startswith(f"{cell}.")]
    assert names and not any(torch.equal(untrained[name], straight[name]) for name in names)
    forgetful = shutil.copytree(tmp_path / "stopped", tmp_path / "forgetful")
    assert equal(play(tmp_path / "stopped", StopAfter(-1), state, settings), straight)
    assert not equal(play(forgetful, StopAfter(-1), drop_memory(state), settings), straight)


def test_a_state_of_an_older_format_without_its_parts_or_a_policy_in_its_place_is_refused(
    stopped: Path, tmp_path: Path
) -> None:
    tensors, text = read_tensors(stopped / STATE_FILE, "training state")
    path = tmp_path / STATE_FILE
    for header, message in (
        (json.dumps(json.loads(text) | {"format_version": 1}), "format version 1, and only version 2 can be resumed"),
        ('{"format_version": 2}', "is a damaged training state: "),
    ):
        write_tensors(path, tensors, header, "training state")
        assert str(path) in assert_refuses(message, TrainingState.load, path)
    (policy, *_) = sorted((stopped / "checkpoints").iterdir())
    path = tmp_path / STATE_FILE
    for source in (policy, SHIPPED):  # the latter is from before files said their kind
        shutil.copy(source, path)
        assert_refuses(f"{path} is a policy, but a training state is needed here", TrainingState.load, path)


def test_a_state_of_another_network_is_refused(play, again: tuple[Path, TrainingState]) -> None:
    folder, state = again
    other = replace(state, policy={name: tensor[..., :1] for name, tensor in state.policy.items()})
    assert_refuses("it is the training state of another run", play, folder, StopAfter(-1), other)


def test_one_process_at_a_time_holds_a_run(stopped: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    held = TrainingFolder(folder)
    assert_refuses("another process is training in", TrainingFolder, folder)
    assert held


@pytest.mark.parametrize(
    ("spacing", "first_steps_of_each"),
    [("even", [200_000, 400_000, 600_000, 800_000]), ("doubling", [100_000, 200_000, 400_000, 800_000])],
)
def test_checkpoints_are_spaced(spacing, first_steps_of_each):
    train = TrainSettings(total_agent_steps=800_000, num_checkpoints=4, checkpoint_spacing=spacing)
    for number, steps in enumerate(first_steps_of_each):
        assert [checkpoints_due(steps - 1, train), checkpoints_due(steps, train)] == [number, number + 1]
    assert (checkpoints_due(0, train), checkpoints_due(900_000, train)) == (0, 4)
