"""Automatic curricula on the real game: worlds draw tasks as the library's algorithms prescribe."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import agent_zoo
from reinforcement_learning.game.environment import make_environment, observation_layout
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.game.vectorization import first_episodes, make_worlds
from reinforcement_learning.play.stepper import EpisodeJournal, Stepper, Stopwatch
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, Settings, TaskSettings
from reinforcement_learning.training.automatic_curriculum import start_curriculum
from reinforcement_learning.training.rollout import Rollout, RolloutCollector
from tests.conftest import AGENT

EASY = "Task_TickGE_(num_tick:2)_reward_to:agent"
TASKS = """
- {predicate: TickGE, arguments: {num_tick: 2}}
- {predicate: AttainSkill, arguments: {skill: Melee, level: 10, num_agent: 1}, weight: 3}
- {predicate: HoardGold, arguments: {amount: 100000}}
- {predicate: CountEvent, arguments: {event: BUY_ITEM, N: 100}}
"""


@pytest.fixture
def task(tmp_path: Path) -> TaskSettings:
    """One task that every agent completes at once, and three that none ever completes."""
    (tmp_path / "tasks.yaml").write_text(TASKS)
    return TaskSettings(curriculum=str(tmp_path / "tasks.yaml"), embedding_size=16)


def play(
    task: TaskSettings, env: EnvironmentSettings, maps: Path, file: Path, rollouts: int, rollout: RolloutSettings
) -> list[tuple[Rollout, dict[str, float], dict[str, float]]]:
    """Alternate between collecting and learning as in training; return rollouts with metrics and weights after each."""
    curriculum = start_curriculum(Settings(env=env, task=task), file, {})
    assert curriculum is not None
    layout = observation_layout(make_environment(AGENT, env, task, maps))
    torch.manual_seed(0)
    agent = agent_zoo.load(AGENT)
    starts = first_episodes(0, rollout.num_envs)
    worlds = make_worlds(AGENT, env, task, rollout, maps, starts, file)
    try:
        policy = agent.Recurrent(agent.Policy(layout, hidden_size=16))
        player = Stepper(worlds, policy, layout, Stopwatch(), EpisodeJournal(starts))
        player.reset()
        collector = RolloutCollector([player], 8, gamma=0.99, gae_lambda=0.95)
        done = []
        for _ in range(rollouts):
            played = collector.collect(1_500, on_tick=lambda _: None)
            metrics = curriculum.learn_and_save(played, file)
            done.append((played, metrics, json.loads(file.read_text())))
        return done
    finally:
        worlds.close()


SERIAL = RolloutSettings(num_envs=2, vectorization="serial")


@pytest.mark.slow
def test_learning_progress_turns_to_what_succeeds(task, small_world, maps, tmp_path: Path) -> None:
    """As in the library: three quarters for tasks with any success, one quarter spread over all tasks."""
    rollouts = play(replace(task, syllabus="learning_progress"), small_world, maps, tmp_path / "w.json", 4, SERIAL)
    for _, metrics, weights in rollouts[1:]:
        assert weights[EASY] == pytest.approx(0.75 + 0.25 / 4)
        assert sum(weights.values()) == pytest.approx(1)
        assert metrics[f"curriculum/weight/{EASY}"] == weights[EASY]
        expected = -sum(weight * np.log(weight) for weight in weights.values())
        assert metrics["curriculum/entropy"] == pytest.approx(expected)
    lives = [Counter(life.task for life in played.lives) for played, _, _ in rollouts]
    early, late = lives[0], lives[-1]
    assert early[EASY] / early.total() < 0.5 < late[EASY] / late.total(), (early, late)


@pytest.mark.slow
def test_worker_processes_are_given_the_same_tasks(task, small_world, maps, tmp_path: Path) -> None:
    settings = replace(task, syllabus="learning_progress")
    spread = RolloutSettings(num_envs=2, vectorization="multiprocessing", num_workers=2)
    serial, processes = (
        play(settings, small_world, maps, tmp_path / f"{how.vectorization}.json", 3, how) for how in (SERIAL, spread)
    )
    for (one, _, weights), (other, _, other_weights) in zip(serial, processes, strict=True):
        assert one.lives == other.lives and len(one.lives) > 10
        assert weights == other_weights


def test_domain_randomization_ignores_weights(task, small_world, maps, tmp_path: Path) -> None:
    ((played, _, weights),) = play(
        replace(task, syllabus="domain_randomization"), small_world, maps, tmp_path / "w.json", 1, SERIAL
    )
    assert list(weights.values()) == [0.25] * 4
    assert len({life.task for life in played.lives}) == 4


def test_prioritized_level_replay_ranks_by_value_error(task, small_world, maps, tmp_path: Path) -> None:
    """Planted errors: a task of rank r gets weight 1/r within nine tenths; the rest is by staleness, zero for all."""
    settings = replace(task, syllabus="prioritized_level_replay")
    file = tmp_path / "w.json"
    ((played, _, _),) = play(settings, small_world, maps, file, 1, SERIAL)
    specs = offered_tasks(settings, small_world)
    planted = torch.zeros(len(played))
    for number, error in enumerate((-0.1, 4.0, 0.5, -2.0)):  # ranks 4, 1, 3, 2
        rows = (played.observation.task == torch.from_numpy(specs[number].embedding)).all(dim=1)
        assert rows.sum() > 20, "nobody was given this task"
        planted[rows] = error
    assert (planted != 0).all(), "somebody was given a task that is none"
    curriculum = start_curriculum(Settings(env=small_world, task=settings), file, {})
    assert curriculum is not None
    curriculum.learn_and_save(replace(played, advantage=planted), file)
    rank = 1 / np.array([4, 1, 3, 2])
    expected = 0.9 * rank / rank.sum() + 0.1 / 4
    np.testing.assert_allclose(list(json.loads(file.read_text()).values()), expected, rtol=1e-5)


def test_prioritized_level_replay_draws_unseen_tasks_first(task, small_world, maps, tmp_path: Path) -> None:
    settings = replace(task, syllabus="prioritized_level_replay")
    ((played, _, weights),) = play(settings, small_world, maps, tmp_path / "w.json", 1, SERIAL)
    assert all(weights.values()), "after a rollout all four have been seen"
    specs = offered_tasks(settings, small_world)
    first = torch.from_numpy(specs[0].embedding)
    rows = (played.observation.task == first).all(dim=1)
    alone = replace(played.observation, task=first.expand_as(played.observation.task))
    curriculum = start_curriculum(Settings(env=small_world, task=settings), tmp_path / "w.json", {})
    assert curriculum is not None and rows.any()
    curriculum.learn(replace(played, observation=alone))
    np.testing.assert_allclose(curriculum.weights(), [0, 1 / 3, 1 / 3, 1 / 3])


@pytest.mark.parametrize("syllabus", ["learning_progress", "prioritized_level_replay"])
def test_a_curriculum_goes_on_from_its_state(syllabus, task, small_world, maps, tmp_path: Path) -> None:
    task = replace(task, syllabus=syllabus)
    ((played, _, _),) = play(task, small_world, maps, tmp_path / "w.json", 1, SERIAL)

    def start():
        return start_curriculum(Settings(env=small_world, task=task), tmp_path / "w.json", {})

    straight, taken_up, forgetful = start(), start(), start()
    straight.learn(played)
    taken_up.restore(straight.state())
    of_one = torch.from_numpy(straight.specs[0].embedding).expand_as(played.observation.task)
    later = replace(played, lives=played.lives[:5], observation=replace(played.observation, task=of_one))
    for curriculum in (straight, taken_up, forgetful):
        curriculum.learn(later)
    assert straight.weights().tolist() == taken_up.weights().tolist() != forgetful.weights().tolist()


def test_the_library_leaves_numpy_as_it_was(task, small_world, tmp_path: Path) -> None:
    before = np.geterr()
    settings = Settings(env=small_world, task=replace(task, syllabus="learning_progress"))
    start_curriculum(settings, tmp_path / "w.json", {})
    assert np.geterr() == before
