"""Agents' rewards and restrictions, compared with the engine's own state in the real small world."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from nmmo.entity.entity import EntityState
from nmmo.lib.event_log import EventState

from agent_zoo.base import BaseRewardWrapper
from reinforcement_learning.game.environment import make_environment

TICKS = 30
EVENT = EventState.State.attr_name_to_col
ENTITY = EntityState.State.attr_name_to_col


class Play:
    """A world played with random legal actions; the task's rewards are recorded separately."""

    def __init__(self, wrapper: BaseRewardWrapper, random: np.random.Generator):
        self.wrapper, self.random = wrapper, random
        self.realm = wrapper.game.realm
        self.observations, _ = wrapper.reset(seed=3)
        self.task_rewards: dict[int, float] = {}
        step = wrapper.env.step

        def listen(actions: dict) -> tuple:
            result = step(actions)
            self.task_rewards = dict(result[1])
            return result

        wrapper.env.step = listen

    def ticks(self, number: int = TICKS) -> Iterator[dict[int, float]]:
        """Play, and yield living agents' rewards beyond the task's."""
        for _ in range(number):
            actions = {agent: self._choose(seen["ActionTargets"]) for agent, seen in self.observations.items()}
            self.observations, rewards, died, _, _ = self.wrapper.step(actions)
            self.observations = {agent: seen for agent, seen in self.observations.items() if not died.get(agent, True)}
            yield {agent: rewards[agent] - self.task_rewards[agent] for agent in self.observations}

    def _choose(self, legal: dict) -> dict:
        return {
            action: {name: int(np.argmax(self.random.random(len(mask)) * mask)) for name, mask in arguments.items()}
            for action, arguments in legal.items()
        }


@pytest.fixture
def play(small_world, task, maps) -> Callable[..., Play]:
    def start(agent: str, npcs: int = 16) -> Play:
        wrapper = make_environment(agent, replace(small_world, num_npcs=npcs), task, maps).env.env
        assert isinstance(wrapper, BaseRewardWrapper)
        return Play(wrapper, np.random.default_rng(0))

    return start


@pytest.mark.parametrize("agent", ["yaofeng", "hybrid"])
def test_condition_is_paid_as_the_engine_has_it(play, agent: str) -> None:
    game = play(agent)

    def conditions() -> dict[int, np.ndarray]:
        return {agent: condition(game.realm, agent, player) for agent, player in game.realm.players.items()}

    before, paid = conditions(), []
    for bonuses in game.ticks():
        now = conditions()
        for agent_id, bonus in bonuses.items():
            health, defense, gold, *experience = now[agent_id] - before[agent_id]
            expected = 0.1 * (0.03 * health + 0.002 * max(experience) + 0.04 * defense + 0.001 * gold)
            assert bonus == pytest.approx(expected, abs=1e-6)
            paid.append(bonus)
        before = now
    assert min(paid) < 0 < max(paid)


def condition(realm, agent: int, player) -> np.ndarray:
    """Health, mean defense, gold, and the experience of the eight skills, from the engine's table of entities."""
    row = EntityState.Query.by_id(realm.datastore, agent)
    worn = [item for item in player.inventory.items if item.equipped.val]
    defense = sum(getattr(item, f"{style}_defense").val for item in worn for style in ("melee", "range", "mage")) / 3
    experience = [row[column] for name, column in ENTITY.items() if name.endswith("_exp")]
    assert len(experience) == 8
    return np.array([row[ENTITY["health"]], defense, row[ENTITY["gold"]], *experience], dtype=float)


@pytest.mark.parametrize("agent", ["takeru", "neurips23_start_kit"])
def test_new_kinds_of_events_and_health_are_paid(play, agent: str) -> None:
    game = play(agent)
    kinds: dict[int, set] = {}
    most = 0
    for bonuses in game.ticks():
        log = game.realm.event_log.get_data()  # of the whole episode
        for agent_id, bonus in bonuses.items():
            mine = log[log[:, EVENT["ent_id"]] == agent_id]
            known = {(row[EVENT["event"]], row[EVENT["type"]], row[EVENT["level"]]) for row in mine.tolist()}
            new = len(known) - len(kinds.get(agent_id, set()))
            kinds[agent_id] = known
            healthier = agent == "neurips23_start_kit" and game.realm.players[agent_id].resources.health_restore > 0
            assert bonus == pytest.approx(0.01 * min(new, 3) + 0.03 * healthier, abs=1e-6)
            most = max(most, new)
    assert most > 0


@pytest.mark.parametrize("agent", ["takeru", "yaofeng", "hybrid"])
def test_nothing_can_be_given_away(play, agent: str) -> None:
    game = play(agent)
    for _ in game.ticks():
        for seen in game.observations.values():
            for action, argument in (("Give", "InventoryItem"), ("Give", "Target"), ("GiveGold", "Target")):
                legal = seen["ActionTargets"][action][argument]
                assert np.flatnonzero(legal).tolist() == [len(legal) - 1]


def test_the_start_kit_may_give(play) -> None:
    """Otherwise the test above would pass if agents never had anything to give or anyone to give it to."""
    game = play("neurips23_start_kit")
    given = sum(
        seen["ActionTargets"]["Give"]["Target"][:-1].any() for _ in game.ticks() for seen in game.observations.values()
    )
    assert given > 0


@pytest.mark.parametrize("agent", ["yaofeng", "hybrid", "takeru"])
def test_dangerous_npcs_are_no_targets(play, agent: str) -> None:
    """takeru may attack them: without it, the test would pass if agents never met any."""
    game = play(agent, npcs=64)
    attackable = relieved = 0
    for _ in game.ticks(40):
        for seen in game.observations.values():
            target = seen["ActionTargets"]["Attack"]["Target"]
            dangerous = np.flatnonzero(seen["Entity"][:, ENTITY["npc_type"]] > 1)
            attackable += int(target[dangerous].sum())
            assert target[-1] == (not target[:-1].any())
            relieved += int(len(dangerous) > 0 and target[-1])
    assert (attackable > 0) == (agent == "takeru")
    assert relieved > 0
