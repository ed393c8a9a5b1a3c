"""The rules of the published evaluations in the real game: masks, memories, seats, maps, ammunition."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from nmmo.systems.item import Arrow

from common.user_error import UserError
from reinforcement_learning.game.environment import make_environment
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.play.contest import ORIGINAL_WORLDS, Contest
from reinforcement_learning.play.evaluation_results import play_to_the_end, provenance_of
from reinforcement_learning.play.policy_pool import PolicyPool, seats
from reinforcement_learning.run_settings import evaluation_world, played_by
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import ROOT
from tests.conftest import AGENT
from tests.tiny_policies import tiny_entrant

CPU = torch.device("cpu")


@pytest.fixture
def contest(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> Contest:
    entrants = tuple(
        tiny_entrant(small_world, task, maps, agent, hidden_size=32, lstm_layers=layers)
        for agent, layers in (("hybrid", 1), ("yaofeng", 2))
    )
    return Contest(entrants, small_world, task, maps, CPU, protocol="original")


@pytest.fixture
def pool(contest: Contest) -> PolicyPool:
    return contest.pool(worlds=1)


def test_all_agents_obey_the_start_kits_restrictions_only(pool: PolicyPool) -> None:
    """yaofeng and hybrid may give things away; in the toolkit's protocol they may not."""
    pool.start(seed=1, numbers=[0])
    gifts = 0
    while not pool.is_over:
        targets = pool.arrival.observations["ActionTargets"]
        gifts += int(targets["GiveGold"]["Target"][pool.arrival.acting, :-1].any())
        prices = targets["Sell"]["Price"][pool.arrival.acting]
        assert ((prices == 0).sum(axis=1) == 1).all()
        pool.step()
    assert gifts > 0


def test_memories_outlast_lives_and_episodes_and_seats_stay(pool: PolicyPool) -> None:
    pool.start(seed=1, numbers=[0])
    ended: dict[int, torch.Tensor] = {}
    while not pool.is_over:
        before = pool.arrival.acting.copy()
        pool.step()
        for slot in np.flatnonzero(before & ~pool.arrival.acting):
            ended[slot] = pool.memories[pool.entrant_of[slot]].hidden[:, slot].clone()
    assert len(ended) == 16
    for slot, hidden in ended.items():
        assert hidden.abs().sum() > 0
        assert torch.equal(pool.memories[pool.entrant_of[slot]].hidden[:, slot], hidden)
    seated = pool.entrant_of.copy()
    pool.start(seed=1, numbers=[6], first=False)
    assert np.array_equal(pool.entrant_of, seated) and not np.array_equal(seated, seats(1, 6, 16, 2))
    assert torch.equal(pool.memories[0].hidden[:, seated == 0].abs().sum(dim=(0, 2)) > 0, torch.ones(8).bool())
    pool.start(seed=1, numbers=[0])
    assert not pool.memories[0].hidden.any()


def test_episodes_of_a_world_follow_one_another(contest: Contest, pool: PolicyPool) -> None:
    groups = contest.groups(seed=1, episodes=8)
    assert sorted(number for group in groups for number in group.numbers) == list(range(8))
    assert len(groups) == ORIGINAL_WORLDS and groups[0].rounds == [(0,), (6,)]
    *_, played = play_to_the_end(pool, groups[0])
    assert [episode.number for episode in played] == [0, 6]
    *_, again = play_to_the_end(pool, groups[0])
    assert played == again
    after = pool.memories[0].hidden.clone()
    pool.play(1, [6])
    assert not torch.equal(pool.memories[0].hidden, after)  # which episode 0 has left its traces in


def test_results_say_the_protocol_only_if_it_is_another(contest: Contest) -> None:
    entrant = contest.entrants[0]
    assert provenance_of(contest, entrant, "pvp", 1, 8)["protocol"] == "original"
    usual = provenance_of(replace(contest, protocol="toolkit"), entrant, "pvp", 1, 8)
    assert "protocol" not in usual
    assert not {"flip_terrain", "ammunition_damage"} & usual["environment"].keys()
    shipped = json.loads((ROOT / "policies" / "results" / "other_trainings" / "eval_pve_1.json").read_text())
    recorded = shipped["start_kit_s1"]["provenance"]["environment"]  # from before some of today's settings
    chosen = {name for name, value in usual["environment"].items() if value is not None}
    assert chosen == recorded.keys(), "a setting that is new is left out where it is as it was before"


def test_the_world_of_the_protocol_has_flipped_terrain_whose_maps_lie_elsewhere(
    small_world: EnvironmentSettings, maps: Path
) -> None:
    world = played_by(evaluation_world(), "original", "pve")
    assert (world.num_maps, world.map_seed, world.flip_terrain, world.ammunition_damage) == (4, 0, True, 0)
    assert played_by(evaluation_world(), "original", "pvp").num_maps == 256
    assert played_by(evaluation_world(), "toolkit", "pve") == evaluation_world()
    with pytest.raises(UserError, match=r"plays with num_maps 4: leave out --env\.num-maps"):
        played_by(replace(evaluation_world(), num_maps=7), "original", "pve")
    flipped = ensure_maps(replace(small_world, flip_terrain=True), numbers=[1])
    assert flipped != maps
    usual, other = (np.load(folder / "map1" / "fractal.npy", allow_pickle=False) for folder in (maps, flipped))
    inside = slice(16, 48)  # beyond it is the border, which is the same on all maps
    assert (usual[inside, inside] != other[inside, inside]).mean() > 0.5


@pytest.mark.parametrize(("base", "expected"), [(5, 25), (0, 20)])
def test_ammunition_does_the_damage_of_then(
    small_world: EnvironmentSettings, task: TaskSettings, maps: Path, base: int, expected: int
) -> None:
    world = make_environment(AGENT, replace(small_world, ammunition_damage=base), task, maps)
    world.reset(seed=3)
    assert Arrow(world.env.game.realm, level=2).range_attack.val == expected
