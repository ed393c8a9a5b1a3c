"""Causes of death and event counts equal the engine's, in real episodes."""

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from nmmo.entity.entity import Entity, Resources
from nmmo.entity.player import Player
from nmmo.lib.event_log import EventLogger

from reinforcement_learning.game.environment import make_environment, make_plain_environment, observation_layout
from reinforcement_learning.game.life import CAUSES_OF_DEATH, EVENTS, Life, life_statistics
from tests.conftest import AGENT, random_legal_actions

VICTIM, ATTACKER = 1, 2


@pytest.fixture
def game(small_world, task, maps):
    """A world whose agents can be attacked from the start."""
    return make_environment(AGENT, replace(small_world, spawn_immunity=0), task, maps)


def step(world, actions: np.ndarray) -> list[Life]:
    return world.step(actions)[4].get("lives", [])


def stand_still(world) -> np.ndarray:
    """Actions that do nothing, (agents, heads)."""
    return np.array([[head.noop or 0 for head in observation_layout(world).heads]] * len(world.possible_agents))


def attack(world) -> np.ndarray:
    """Actions of a tick in which only the attacker acts."""
    actions = stand_still(world)
    heads = [head.name for head in observation_layout(world).heads]
    seen = world.env.game.obs[ATTACKER].entities.ids
    actions[ATTACKER - 1, heads.index("Attack.Target")] = list(seen).index(VICTIM)
    return actions


def put_side_by_side(world) -> Player:
    """Place the attacker on the victim's tile so that it sees the victim; return the victim."""
    realm = world.env.game.realm
    victim, attacker = realm.players[VICTIM], realm.players[ATTACKER]
    realm.map.tiles[attacker.pos].remove_entity(ATTACKER)
    attacker.set_pos(*victim.pos)
    realm.map.tiles[victim.pos].add_entity(attacker)
    step(world, stand_still(world))
    return victim


class Witness:
    """Records from the engine itself what took each player's last health, and each logged event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.events: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self.players_killed: Counter[int] = Counter()
        update, strike, record = Resources.update, Entity.receive_damage, EventLogger.record

        def watched_update(resources: Resources, immortal: bool = False) -> None:
            empty = [name for name, left in (("starved", resources.food), ("dehydrated", resources.water)) if left == 0]
            update(resources, immortal)
            if resources.health <= 0:
                resources.taken_by = "_and_".join(empty)

        def watched_strike(entity: Entity, source: Entity, damage: int) -> bool:
            alive = entity.alive
            survived = strike(entity, source, damage)
            if alive and not survived:
                entity.resources.taken_by = "killed_by_player" if source.is_player else "killed_by_npc"
                self.players_killed[source.ent_id] += entity.is_player
            return survived

        def watched_record(log: EventLogger, code: int, entity: Entity, **details: object) -> None:
            self.events[entity.ent_id][log.valid_events[code]] += 1
            record(log, code, entity, **details)

        monkeypatch.setattr(Resources, "update", watched_update)
        monkeypatch.setattr(Entity, "receive_damage", watched_strike)
        monkeypatch.setattr(EventLogger, "record", watched_record)


def test_every_life_of_some_episodes_is_told_as_the_engine_played_it(small_world, task, maps, monkeypatch) -> None:
    """By the game's own code, whose functions can be watched; `test_fast_game.py` compares the faster game with it."""
    witness = Witness(monkeypatch)
    game = make_plain_environment(AGENT, replace(small_world, spawn_immunity=0), task, maps)
    random = np.random.default_rng(1)
    layout = observation_layout(game)
    causes: Counter[str] = Counter()
    for seed in range(6):
        witness.events.clear()
        witness.players_killed.clear()
        game.reset(seed=seed)
        realm = game.env.game.realm
        players: dict[int, Player] = dict(realm.players.items())
        lives: list[Life] = []
        while not game.done:
            observations = game.obs.view(game.obs_dtype)[:, 0]
            gold = {agent: player.gold.val for agent, player in realm.players.items()}
            ended = step(game, random_legal_actions(observations, layout, random))
            for life in ended:
                assert life.gold == gold[life.agent_id]
            lives += ended
        assert sorted(life.agent_id for life in lives) == sorted(players)
        for life in lives:
            player = players[life.agent_id]
            truth = witness.events[life.agent_id]
            assert truth.pop("AGENT_CULLED", 0) == life.died
            assert life.events == dict(truth)
            assert life.cause_of_death == getattr(player.resources, "taken_by", None) and life.died == (
                not player.alive
            )
            assert life.players_killed == witness.players_killed[life.agent_id]
            assert life.level == max(skill.level.val for skill in player.skills.skills)
            task = game.env.game.agent_task_map[life.agent_id][0]
            assert life.task_completed == task.completed == (life.task_progress == 1)
        causes.update(life.cause_of_death for life in lives)
    assert set(causes) >= set(CAUSES_OF_DEATH), f"not every cause of death was met: {causes}"


def test_the_fog_kills_as_in_the_games_own_code(small_world, task, maps) -> None:
    """Both worlds see the same; whoever is neither fed nor fought dies of the fog that reaches it."""
    env = replace(small_world, spawn_immunity=64, num_npcs=0, death_fog_tick=1)
    plain, fast = (make(AGENT, env, task, maps) for make in (make_plain_environment, make_environment))
    causes: Counter[str | None] = Counter()
    for world in (plain, fast):
        world.reset(seed=3)
    while not fast.done:
        for world in (plain, fast):
            for player in world.env.game.realm.players.values():
                set_vitals(player, player.resources.health.val, 100, 100)
        expected = plain.step(stand_still(plain))
        played = fast.step(stand_still(fast))
        assert np.array_equal(plain.obs, fast.obs) and expected[1] == played[1]
        assert expected[4].get("lives") == played[4].get("lives")
        causes.update(life.cause_of_death for life in played[4].get("lives", []))
    assert causes["fog"] > 0 and set(causes) <= {"fog", None}
    assert life_statistics([Life(1, 5, 0.0, True, "fog", "", 0.0, False, 1, 0, 0, {})])["death/fog"] == 1


@pytest.mark.parametrize(
    ("health", "food", "water", "cause"),
    [
        (10, 0, 50, "starved"),
        (10, 50, 0, "dehydrated"),
        (10, 5, 0, "dehydrated"),  # food falls to 0 in the same tick, after thirst has killed
        (10, 0, 0, "starved_and_dehydrated"),  # hunger alone would have been enough
        (20, 0, 0, "starved_and_dehydrated"),
    ],
)
def test_hunger_and_thirst(game, health: int, food: int, water: int, cause: str) -> None:
    game.reset(seed=1)
    victim = put_side_by_side(game)
    set_vitals(victim, health, food, water)
    assert [life.cause_of_death for life in step(game, stand_still(game))] == [cause]


@pytest.mark.parametrize(("health", "cause"), [(11, "killed_by_player"), (10, "starved")])
def test_a_blow_counts_only_while_hunger_has_left_any_health(game, health: int, cause: str) -> None:
    game.reset(seed=1)
    victim = put_side_by_side(game)
    set_vitals(victim, health, 0, 50)
    (life,) = step(game, attack(game))
    assert (life.agent_id, life.cause_of_death) == (VICTIM, cause)


def test_who_struck_in_the_tick_before_is_not_to_blame_for_hunger(game) -> None:
    game.reset(seed=1)
    victim = put_side_by_side(game)
    set_vitals(victim, 100, 50, 50)
    assert step(game, attack(game)) == [] and victim.attacker.ent_id == ATTACKER
    set_vitals(victim, 10, 0, 50)
    (life,) = step(game, stand_still(game))
    assert life.cause_of_death == "starved" and victim.attacker.ent_id == ATTACKER


def set_vitals(player: Player, health: int, food: int, water: int) -> None:
    for vital, value in ((player.resources.health, health), (player.resources.food, food), (player.water, water)):
        vital.update(value)


LIFE = Life(
    agent_id=1, ticks=10, total_reward=1.0, died=True, cause_of_death="starved", task="task", task_progress=0.5,
    task_completed=False, level=1, gold=0, players_killed=0, events={"EAT_FOOD": 2},
)  # fmt: skip


def test_averages_have_one_vote_a_life_and_causes_one_a_death_if_there_is_any() -> None:
    lives = [
        LIFE,
        replace(LIFE, ticks=20, cause_of_death="killed_by_npc", level=3, events={}),
        replace(LIFE, ticks=40, cause_of_death="starved", gold=6, events={"EAT_FOOD": 1, "SCORE_HIT": 3}),
        replace(
            LIFE, ticks=50, died=False, cause_of_death=None, task_progress=1.0, task_completed=True, players_killed=2
        ),
    ]
    metrics = life_statistics(lives)
    expected = {
        "lives/ended": 4, "lives/ticks": 30, "lives/ticks_median": 30, "lives/ticks_lower_quartile": 17.5,
        "lives/ticks_upper_quartile": 42.5, "lives/total_reward": 1, "lives/task_progress": 0.625,
        "lives/task_completed": 0.25, "lives/died": 0.75, "lives/level": 1.5, "lives/gold": 1.5,
        "lives/players_killed": 0.5, "death/starved": 2 / 3, "death/killed_by_npc": 1 / 3, "death/killed_by_player": 0,
        "events/EAT_FOOD": 1.25, "events/SCORE_HIT": 0.75, "events/DRINK_WATER": 0,
    }  # fmt: skip
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert {f"events/{kind}" for kind in EVENTS.values()} <= set(metrics)
    assert sum(share for name, share in metrics.items() if name.startswith("death/")) == pytest.approx(1)
    assert life_statistics([]) == {}
    assert life_statistics([LIFE], fog=True)["death/fog"] == 0 and "death/fog" not in life_statistics([LIFE])
    metrics = life_statistics([replace(LIFE, died=False, cause_of_death=None)])
    assert metrics["lives/died"] == 0 and not any(name.startswith("death/") for name in metrics)
