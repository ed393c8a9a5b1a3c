"""The faster game and the original one, with the same seeds and actions, are equal in every byte."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pufferlib.vector
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nmmo.datastore.numpy_datastore import NumpyTable
from nmmo.lib.event_code import EventCode
from nmmo.lib.material import Water
from nmmo.systems import item, skill
from nmmo.task import base_predicates as predicates
from nmmo.task.task_spec import TaskSpec

from agent_zoo.observation import ObservationLayout
from reinforcement_learning.game.environment import (
    EpisodeStart,
    make_environment,
    make_plain_environment,
    observation_layout,
)
from reinforcement_learning.game.fast_game.state import CellTable
from reinforcement_learning.game.fast_game.ways import SIDES, GoTowards
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.vectorization import make_worlds
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, TaskSettings
from tests.conftest import AGENT, random_legal_actions
from tests.forager import forage
from tests.shared import shared_root

BUSY = {
    EventCode.EAT_FOOD, EventCode.DRINK_WATER, EventCode.GO_FARTHEST, EventCode.SCORE_HIT, EventCode.PLAYER_KILL,
    EventCode.FIRE_AMMO, EventCode.CONSUME_ITEM, EventCode.GIVE_ITEM, EventCode.DESTROY_ITEM, EventCode.HARVEST_ITEM,
    EventCode.EQUIP_ITEM, EventCode.LOOT_ITEM, EventCode.GIVE_GOLD, EventCode.LIST_ITEM, EventCode.EARN_GOLD,
    EventCode.BUY_ITEM, EventCode.LOOT_GOLD, EventCode.LEVEL_UP, EventCode.AGENT_CULLED,
}  # fmt: skip
EVERY_PREDICATE = [
    *((GoTowards, {"side": side, "tiles": 6}) for side in SIDES),
    (predicates.TickGE, {"num_tick": 50}),
    (predicates.CanSeeTile, {"tile_type": Water}),
    (predicates.StayAlive, {}),
    (predicates.OccupyTile, {"row": 20, "col": 20}),
    (predicates.CanSeeAgent, {"target": "left_team_leader"}),
    (predicates.DistanceTraveled, {"dist": 10}),
    (predicates.AttainSkill, {"skill": skill.Melee, "level": 3, "num_agent": 1}),
    (predicates.AttainSkill, {"skill": skill.Fishing, "level": 2, "num_agent": 1}),
    (predicates.AttainSkill, {"skill": skill.Range, "level": 1, "num_agent": 1}),
    (predicates.GainExperience, {"skill": skill.Mage, "experience": 30, "num_agent": 1}),
    (predicates.CountEvent, {"event": "DRINK_WATER", "N": 30}),
    (predicates.CountEvent, {"event": "GO_FARTHEST", "N": 8}),
    (predicates.ScoreHit, {"combat_style": skill.Range, "N": 5}),
    (predicates.DefeatEntity, {"agent_type": "player", "level": 1, "num_agent": 2}),
    (predicates.DefeatEntity, {"agent_type": "npc", "level": 1, "num_agent": 2}),
    (predicates.HoardGold, {"amount": 20}),
    (predicates.EarnGold, {"amount": 20}),
    (predicates.SpendGold, {"amount": 20}),
    (predicates.MakeProfit, {"amount": 20}),
    (predicates.InventorySpaceGE, {"space": 10}),
    (predicates.OwnItem, {"item": item.Ration, "level": 1, "quantity": 4}),
    (predicates.OwnItem, {"item": item.Whetstone, "level": 2, "quantity": 2}),
    (predicates.EquipItem, {"item": item.Hat, "level": 1, "num_agent": 1}),
    (predicates.EquipItem, {"item": item.Hat, "level": 1, "num_agent": 0}),
    (predicates.FullyArmed, {"combat_style": skill.Melee, "level": 1, "num_agent": 1}),
    (predicates.ConsumeItem, {"item": item.Ration, "level": 1, "quantity": 3}),
    (predicates.HarvestItem, {"item": item.Whetstone, "level": 1, "quantity": 9}),
    (predicates.FireAmmo, {"item": item.Arrow, "level": 1, "quantity": 3}),
    (predicates.ListItem, {"item": item.Ration, "level": 1, "quantity": 3}),
    (predicates.BuyItem, {"item": item.Ration, "level": 1, "quantity": 3}),
    (predicates.ProgressTowardCenter, {}),
]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentSettings:
    """Many agents and NPCs on a small map: fights, harvests and trade from the first ticks on."""
    return EnvironmentSettings(
        num_agents=24, num_npcs=32, map_size=32, num_maps=3, horizon=48, early_stop_agents=2, spawn_immunity=5,
        maps_dir=shared_root(tmp_path_factory) / "maps",
    )  # fmt: skip


class SideBySide:
    """An original and a fast world with the same seeds and actions."""

    def __init__(self, settings: EnvironmentSettings, task: TaskSettings, agent: str = AGENT):
        maps = ensure_maps(settings)
        self.worlds = [
            pufferlib.vector.make(functools.partial(make, agent, settings, task, maps), backend=pufferlib.vector.Serial)
            for make in (make_plain_environment, make_environment)
        ]
        self.games = [world.envs[0].env.game for world in self.worlds]
        self.layout = observation_layout(self.worlds[0].envs[0])
        self.episodes = 0
        self.lives = 0
        self.events: set[int] = set()

    def use_tasks(self, specs: list[TaskSpec]) -> None:
        for world in self.worlds:
            wrapper = world.envs[0].env
            while not hasattr(wrapper, "specs"):
                wrapper = wrapper.env
            wrapper.specs = specs

    def play(self, seed: int, ticks: int, act: Any) -> None:
        """Compare all outputs of the worlds, and their random numbers, in every tick."""
        random = np.random.default_rng(seed)
        for world in self.worlds:
            world.async_reset([seed])
        for _ in range(ticks):
            received = [world.recv() for world in self.worlds]
            assert_equal(*received)
            self._compare_games()
            actions = act(structured(received[0], self.worlds[0]), self.layout, random)
            for world in self.worlds:
                world.send(actions)

    def _compare_games(self) -> None:
        plain, fast = self.games
        self.episodes += plain.realm.tick == 0
        self.lives += len(plain.dead_this_tick)
        self.events |= set(plain.realm.event_log.get_data(tick=plain.realm.tick)[:, 3].astype(int).tolist())
        assert plain._np_random.bit_generator.state == fast._np_random.bit_generator.state
        assert [task.progress_info for task in plain.tasks] == [task.progress_info for task in fast.tasks]
        assert np.array_equal(plain.realm.event_log.get_data(), fast.realm.event_log.get_data())
        assert [list(player.history.actions) for player in plain.realm.players.values()] == [
            list(player.history.actions) for player in fast.realm.players.values()
        ]
        for part in ("map", "players", "npcs", "exchange"):  # what a replay holds
            assert getattr(plain.realm, part).packet == getattr(fast.realm, part).packet


def assert_equal(plain: tuple, fast: tuple) -> None:
    """Compare the outputs of two vectorised worlds byte by byte."""
    names = ("observations", "rewards", "terminals", "truncations", "infos", "agent ids", "masks")
    for name, expected, got in zip(names, plain, fast, strict=True):
        same = repr(expected) == repr(got) if name == "infos" else expected.tobytes() == got.tobytes()
        assert same, f"{name} differ"  # infos hold arrays, which cannot be compared as a whole


def structured(received: tuple, world: Any) -> np.ndarray:
    return received[0].view(world.emulated.emulated_observation_dtype)[:, 0]


@pytest.fixture(scope="module")
def side_by_side(crowded: EnvironmentSettings, task: TaskSettings) -> SideBySide:
    return SideBySide(crowded, task)


def test_a_whole_episode_is_equal_byte_by_byte(side_by_side: SideBySide) -> None:
    side_by_side.play(3, 60, forage)
    assert side_by_side.episodes > 1 and side_by_side.lives > 10
    assert len(side_by_side.events) > 8


@pytest.mark.slow
def test_whole_episodes_with_all_events_are_equal_byte_by_byte(side_by_side: SideBySide) -> None:
    """Several seeds, and for each at least one episode after the first, which starts from what the first one left."""
    for seed, act in ((0, forage), (1, forage), (2, random_legal_actions)):
        episodes = side_by_side.episodes
        side_by_side.play(seed, 110, act)
        assert side_by_side.episodes - episodes > 2
    assert side_by_side.lives > 50
    assert side_by_side.events == BUSY, "something that can happen did not: it was not compared"


def test_other_agents_rewards_and_restrictions_are_equal(crowded: EnvironmentSettings, task: TaskSettings) -> None:
    """Reward wrappers read the game and modify masks."""
    pair = SideBySide(crowded, task, agent="yaofeng")
    pair.play(6, 60, forage)
    assert pair.lives > 0


def test_progress_is_equal_for_every_predicate_of_the_game(crowded: EnvironmentSettings, task: TaskSettings) -> None:
    pair = SideBySide(replace(crowded, num_agents=3 * len(EVERY_PREDICATE) // 2), task)
    embedding = np.ones(task.embedding_size)
    pair.use_tasks(
        [TaskSpec(eval_fn=function, eval_fn_kwargs=kwargs, embedding=embedding) for function, kwargs in EVERY_PREDICATE]
    )
    pair.play(4, 70, forage)
    assert pair.episodes > 1


@pytest.mark.slow
def test_worlds_of_full_size_are_equal(task: TaskSettings, tmp_path: Path) -> None:
    pair = SideBySide(EnvironmentSettings(num_maps=1, maps_dir=tmp_path), task)
    pair.play(7, 32, forage)
    assert pair.lives > 0


@pytest.mark.slow
def test_worlds_in_worker_processes_are_equal(crowded: EnvironmentSettings, task: TaskSettings) -> None:
    maps = ensure_maps(crowded)
    creator = functools.partial(make_plain_environment, AGENT, crowded, task, maps)
    seeds = [3, 4, 5, 6]  # two worlds for each worker
    plain = pufferlib.vector.make(creator, num_envs=4, backend=pufferlib.vector.Serial)
    spread = RolloutSettings(num_envs=4, num_workers=2, vectorization="multiprocessing")
    fast = make_worlds(AGENT, crowded, task, spread, maps, [EpisodeStart(seed) for seed in seeds])
    layout: ObservationLayout = observation_layout(plain.envs[0])
    random = np.random.default_rng(0)
    for world in (plain, fast):
        world.async_reset(seeds)
    for _ in range(crowded.horizon + 4):
        received = [world.recv() for world in (plain, fast)]
        assert_equal(*received)
        actions = forage(structured(received[0], plain), layout, random)
        for world in (plain, fast):
            world.send(actions)
    for world in (plain, fast):
        world.recv()
        world.close()


GAMES_ROWS = 100


@given(st.lists(st.tuples(st.sampled_from(["add", "free", "free again"]), st.integers(1, 90))), st.booleans())
@example([("add", 90), ("free", 50), ("add", 70), ("free again", 9), ("free", 20), ("add", 80)], True)
def test_rows_are_used_in_the_games_order(changes: list[tuple[str, int]], reset: bool) -> None:
    tables = [NumpyTable(2, GAMES_ROWS), CellTable(2, GAMES_ROWS)]
    used: list[int] = []
    freed: list[int] = []
    if reset:
        for table in tables:
            table.add_row()
            table.reset()
    for change, count in changes:
        for number in range(count):
            if change == "add":
                rows = [table.add_row() for table in tables]
                assert rows[0] == rows[1]
                used.append(rows[0])
            elif change == "free" and used:
                freed.append(used.pop(number * 7 % len(used)))
                for table in tables:
                    table.remove_row(freed[-1])
            elif change == "free again" and freed:
                for table in tables:
                    table.remove_row(freed[number % len(freed)])
    expected, got = tables
    assert expected._max_rows == got._max_rows
    assert list(expected._id_allocator.free) == got._id_allocator.free
    assert expected.is_empty() == got.is_empty()
