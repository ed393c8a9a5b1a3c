"""Opponents from earlier checkpoints, in the real game, and their ratings."""

from pathlib import Path

import numpy as np
import pytest
import torch

from agent_zoo.checkpoint import save_checkpoint
from reinforcement_learning.game.vectorization import first_episodes, make_worlds
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.play.stepper import EpisodeJournal, Stepper, Stopwatch
from reinforcement_learning.settings import RolloutSettings, Settings
from reinforcement_learning.training.opponents import START, Opponents, Ratings
from reinforcement_learning.training.rollout import RolloutCollector
from tests.conftest import AGENT

KERNEL = (0, 0, 1)


@pytest.fixture
def opponents(small_world, task, maps, layout, tmp_path: Path) -> Opponents:
    settings = Settings(env=small_world, task=task)
    for seed in (1, 2):
        entrant = untrained_entrant(AGENT, settings, maps, seed)
        save_checkpoint(tmp_path / "checkpoints" / f"run_{seed:010d}.safetensors", entrant.policy, entrant.info)
    starts = first_episodes(0, 2)
    worlds = make_worlds(AGENT, small_world, task, RolloutSettings(num_envs=2, vectorization="serial"), maps, starts)
    learner = untrained_entrant(AGENT, settings, maps, seed=0).policy
    stepper = Stepper(worlds, learner, layout, Stopwatch(), EpisodeJournal(starts))
    result = Opponents([stepper], KERNEL, tmp_path / "checkpoints", seed=0, ratings=Ratings())
    result.choose(steps=1)
    stepper.reset()
    return result


def test_only_the_learners_seats_are_learnt_from(opponents: Opponents) -> None:
    (stepper,) = opponents.steppers
    assert stepper.seats.tolist() == [*np.resize(KERNEL, 16)] * 2
    rollout = RolloutCollector([stepper], 8, 0.99, 0.95).collect(2000, lambda _: None)
    assert {(agent - 1) % 3 for agent in rollout.observation.agent_id.tolist()} == {0, 1}
    theirs = stepper.take_lives()
    assert {(life.agent_id - 1) % 3 for life in theirs[1]} == {2}
    assert {(life.agent_id - 1) % 3 for life in rollout.lives} == {0, 1}
    assert len(theirs[1]) * 1.5 < len(rollout.lives) < len(theirs[1]) * 3
    assert stepper.take_lives() == {}


def test_opponents_act_by_their_own_policy_and_memory(opponents: Opponents) -> None:
    """What each seat did last is the most likely option of its own policy more often than of the learner's."""
    (stepper,) = opponents.steppers
    stepper.opponents[1].policy.action_decoder.heads["Move_Direction"].bias.data[2] = 50.0  # always goes east
    moves = [head.name for head in stepper.layout.heads].index("Move.Direction")
    collector = RolloutCollector([stepper], 8, 0.99, 0.95)
    collector.collect(64, lambda _: None)
    actions = np.concatenate([start.actions for start in stepper.journal.starts()])  # (ticks of both worlds, agents)
    legal = actions.any(axis=2)
    theirs, own = (
        actions[:, np.flatnonzero(mask), moves] for mask in (np.resize(KERNEL, 16) == 1, np.resize(KERNEL, 16) == 0)
    )
    assert (theirs == 2).mean() > 0.6 > 0.5 > (own == 2).mean() and legal.any()
    assert stepper.memory.hidden[:, stepper.seats == 1].abs().sum() > 0
    opponents.change(steps=2)
    assert not stepper.memory.hidden[:, stepper.seats == 1].any()
    assert stepper.memory.hidden[:, stepper.seats == 0].abs().sum() > 0
    assert opponents.names == {1: "run_0000000002"}


def test_who_plays_depends_on_the_checkpoints_up_to_now_and_dead_seats_do_nothing(opponents: Opponents) -> None:
    opponents.choose(steps=1)
    assert opponents.names == {1: "run_0000000001"}
    opponents.kernel = (0, 1, 2)
    (opponents.folder / "notes.txt").touch()
    (opponents.folder / "half").mkdir()
    opponents.choose(steps=9)
    assert opponents.names == {1: "run_0000000002", 2: "run_0000000001"}
    # The learner's agents are dead while opponents live on: it decides for nobody.
    (stepper,) = opponents.steppers
    own = stepper.seats == 0
    stepper.arrival.present[own] = stepper.arrival.acting[own] = False
    decision = stepper.decide()
    assert len(decision.present) == 0
    assert decision.sample(stepper.action_noise()).shape == (0, len(stepper.layout.heads))
    assert torch.isfinite(torch.from_numpy(decision.value)).all()


def test_ratings_follow_the_rule_and_are_taken_up_again(tmp_path: Path) -> None:
    ratings = Ratings.after(tmp_path, 0)
    ratings.know(["first", "second"])
    ratings.learn({"first": 0.5, "second": 0.0})
    assert (ratings.learner, ratings.others["first"], ratings.others["second"]) == (START + 16, START - 16, START)
    ratings.save(tmp_path, "mine")
    ratings.learn({"first": -1.0})
    ratings.save(tmp_path, "mine")
    assert ratings.learner + sum(ratings.others.values()) == pytest.approx(3 * START)
    table = (tmp_path / "elo.tsv").read_text().splitlines()
    assert table[0] == "policy_name\trating\tgames" and {row.split("\t")[2] for row in table[1:]} == {"3", "2", "1"}
    again = Ratings.after(tmp_path, 1)
    assert (again.learner, again.games) == (START + 16, {"first": 1, "second": 1})
    assert len((tmp_path / "elo.jsonl").read_text().splitlines()) == 1
    assert Ratings.after(tmp_path, 0).others == {}
