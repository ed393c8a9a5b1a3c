"""Agents with a narrow view act on what they see, and dumps hold what they saw, in the real small world."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump, read_metadata
from agent_zoo.checkpoint import load_checkpoint, save_checkpoint
from analysis.features.observed import Observed
from reinforcement_learning.game.vectorization import first_episodes
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import Entrant, untrained_entrant
from reinforcement_learning.play.evaluation_results import provenance_of
from reinforcement_learning.play.extraction import RecordingPlan, extract, metadata_of
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.settings import EnvironmentSettings, Settings
from tests.conftest import AGENT
from tests.tiny_policies import tiny_entrant
from tests.watched import stepper

RADIUS = 2
TICKS = 25


@pytest.fixture(scope="module")
def env(small_world: EnvironmentSettings) -> EnvironmentSettings:
    return replace(small_world, num_npcs=128, spawn_immunity=0, view_radius=RADIUS)


@pytest.fixture(scope="module")
def entrant(env: EnvironmentSettings, task, maps) -> Entrant:
    return tiny_entrant(env, task, maps)


def test_chosen_targets_are_the_ones_that_were_seen(env: EnvironmentSettings, entrant: Entrant, task, maps) -> None:
    player = stepper(entrant.policy, env, task, maps, first_episodes(3, 1))
    heads = [(place, head) for place, head in enumerate(player.layout.heads) if head.candidates == "entity"]
    pointed = moved = 0
    for _ in range(TICKS):
        decision, full = player.decide(), player.arrival.observations.copy()
        chosen = decision.sample(player.action_noise())
        actions = decision.over_slots(chosen)
        shown = decision.observation.entity
        for place, head in heads:
            for agent, slot in enumerate(decision.present.tolist()):
                option, meant = int(chosen[agent, place]), actions[slot, place]
                if option == head.noop:
                    assert meant == head.noop
                    continue
                row = shown.values[shown.starts[agent] + option].numpy()
                assert np.array_equal(full["Entity"][slot, meant], row)
                action, argument = head.name.split(".")
                assert full["ActionTargets"][action][argument][slot, meant] == 1
                pointed, moved = pointed + 1, moved + (meant != option)
        player.begin(decision, actions)
        player.end(actions)
    player.worlds.close()
    assert pointed > 20 and moved > 5


def test_a_dump_holds_what_was_seen(env: EnvironmentSettings, entrant: Entrant, task, maps, tmp_path: Path) -> None:
    contest = Contest((entrant,), env, task, maps, torch.device("cpu"))
    plan = RecordingPlan(1, TICKS, seed=3, layers=("action_decoder",), fields=("ActionTargets",), format="parquet")
    extract(contest, plan, [tmp_path / "near"], Workers(1), lambda *_: None)
    records, metadata = read_dump(tmp_path / "near"), read_metadata(tmp_path / "near")
    assert metadata.environment["view_radius"] == RADIUS
    seen = Observed(records, metadata)
    assert seen.distance.max() == RADIUS
    far = np.abs(np.indices((15, 15)) - 7).max(axis=0).ravel() > RADIUS
    assert (seen.material[:, far] == 0).all() and (seen.material[:, ~far] != 0).any()
    targets = seen.target_rows
    attacked = targets[targets >= 0]
    assert len(attacked) > 10 and not seen.is_self[attacked].any()


def test_each_policy_of_a_shared_world_keeps_its_own_view(
    env: EnvironmentSettings, entrant: Entrant, task, maps, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "near.safetensors", entrant.policy, entrant.info)
    policy, info = load_checkpoint(tmp_path / "near.safetensors")
    assert policy.mask.view_radius == RADIUS and EnvironmentSettings(**info.environment).view_radius == RADIUS
    wide = replace(env, view_radius=7)
    other = untrained_entrant(AGENT, Settings(env=wide, task=task), maps, seed=0)
    older = {name: value for name, value in other.info.environment.items() if name != "view_radius"}
    other = replace(other, name="other", info=replace(other.info, environment=older))
    contest = Contest((entrant, other), env, task, maps, torch.device("cpu"))
    plan = RecordingPlan(1, TICKS, seed=3, layers=("action_decoder",))
    radii = [metadata_of(contest, case, plan).environment["view_radius"] for case in (entrant, other)]
    assert radii == [RADIUS, 7]


def test_results_mention_a_view_only_if_it_is_narrow(env: EnvironmentSettings, entrant: Entrant, task, maps) -> None:
    """So that results of versions without the option stay comparable."""
    contest = Contest((entrant,), env, task, maps, torch.device("cpu"))
    wide = replace(contest, env=replace(env, view_radius=7))
    near, full = (provenance_of(case, entrant, "pve", 1, 1)["environment"] for case in (contest, wide))
    assert near["view_radius"] == RADIUS and full == {key: value for key, value in near.items() if key != "view_radius"}
