"""Agents' rewards and restrictions, compared with the engine's own state in the real small world."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from nmmo.entity.entity import EntityState
from nmmo.lib.event_code import EventCode
from nmmo.lib.event_log import EventState

import agent_zoo
from agent_zoo.base import BaseRewardWrapper
from agent_zoo.rewards import AgentCondition, WeightedReward
from common.user_error import UserError
from reinforcement_learning.game.environment import make_environment
from reinforcement_learning.run_settings import load_settings
from reinforcement_learning.settings import RewardSettings
from tests.command import ROOT
from tests.conftest import AGENT

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
            actions = {agent: self.choose(seen["ActionTargets"]) for agent, seen in self.observations.items()}
            self.observations, rewards, died, _, _ = self.wrapper.step(actions)
            self.observations = {agent: seen for agent, seen in self.observations.items() if not died.get(agent, True)}
            yield {agent: rewards[agent] - self.task_rewards[agent] for agent in self.observations}

    def choose(self, legal: dict) -> dict:
        """Draw a legal option in every head."""
        return {
            action: {name: int(np.argmax(self.random.random(len(mask)) * mask)) for name, mask in arguments.items()}
            for action, arguments in legal.items()
        }


@pytest.fixture
def play(small_world, task, maps) -> Callable[..., Play]:
    def start(agent: str, npcs: int = 16, **reward: float) -> Play:
        settings, env = RewardSettings(**reward), replace(small_world, num_npcs=npcs)
        wrapper = make_environment(agent, env, task, maps, reward=settings).env.env
        assert isinstance(wrapper, BaseRewardWrapper)
        return Play(wrapper, np.random.default_rng(0))

    return start


@pytest.mark.parametrize("agent", ["yaofeng", "hybrid"])
@pytest.mark.parametrize("as_published", [True, False])
def test_condition_is_paid_as_the_engine_has_it(play, agent: str, as_published: bool) -> None:
    game = play(agent, as_published=as_published)

    def conditions() -> dict[int, np.ndarray]:
        return {agent: condition(game.realm, agent, player) for agent, player in game.realm.players.items()}

    before, paid = conditions(), []
    if as_published:  # all start alike
        before = {agent: np.array([100, 0, 0, *[0] * 8], dtype=float) for agent in before}
    for bonuses in game.ticks():
        now = conditions()
        for agent_id, bonus in bonuses.items():
            health, defense, gold, *experience = now[agent_id] - before[agent_id]
            if as_published:
                defense, experience = now[agent_id][1] / 15, [max(now[agent_id][3:]) - max(before[agent_id][3:])]
            expected = 0.1 * (0.03 * health + 0.002 * max(experience) + 0.04 * defense + 0.001 * gold)
            assert bonus == pytest.approx(expected, abs=1e-6)
            paid.append(bonus)
        before = now
    assert min(paid) < 0 < max(paid)


def test_armour_is_paid_in_every_tick_and_only_the_best_skill() -> None:
    """By hand, with 15 points of each defence: in a short game hardly anyone wears any."""
    rules = WeightedReward.default
    worn = AgentCondition(defence=15)
    assert worn.paid(worn, replace(rules, defence=0.04)) == pytest.approx(0.04)
    assert worn.paid(worn, replace(rules, defence=0.04, as_published=False)) == 0
    before, now = (AgentCondition(experience=(50, spare, 0, 0, 0, 0, 0, 0)) for spare in (0, 40))
    assert now.paid(before, replace(rules, experience=1)) == 0  # the best skill is still the first
    assert now.paid(before, replace(rules, experience=1, as_published=False)) == 40
    assert AgentCondition(inflicted=7).paid(AgentCondition(), replace(rules, attack=2, scale=0.5)) == 7


def test_weights_of_any_agent_can_be_set(play) -> None:
    """takeru paid for damage alone, as the engine counts it."""
    game = play("takeru", explore=0, attack=1, scale=0.5)
    dealt: dict[int, int] = {}
    most = 0.0
    for bonuses in game.ticks(60):
        for agent, bonus in bonuses.items():
            now = game.realm.players[agent].history.damage_inflicted
            assert bonus == pytest.approx(0.5 * (now - dealt.get(agent, 0)), abs=1e-5)
            dealt[agent] = now
            most = max(most, bonus)
    assert most > 0


@pytest.mark.parametrize("agent", agent_zoo.names())
def test_the_settings_file_and_the_agents_agree(agent: str) -> None:
    default = agent_zoo.load(agent).RewardWrapper.default
    assert replace(default, **load_settings(ROOT / "config.yaml", agent).reward.chosen_rules) == default


@pytest.mark.parametrize(("agent", "paid"), [("neurips23_start_kit", 1), ("yaofeng", 0)])
def test_in_the_last_tick_only_the_start_kit_is_paid_for_more_than_its_task(play, agent: str, paid: float) -> None:
    """Agent 1 eats for the first time in the tick in which the episode ends."""
    game = play(agent, explore=1, heal=0, hp=0, experience=0, defence=0, gold=0)
    game.realm.config.set_for_episode("HORIZON", 2)
    idle = {agent: game.choose(seen["ActionTargets"]) for agent, seen in game.observations.items()}
    game.wrapper.step(idle)
    game.realm.event_log.record(EventCode.EAT_FOOD, game.realm.players[1])
    _, rewards, _, cut_off, _ = game.wrapper.step({})
    assert cut_off[1]
    assert rewards[1] - game.task_rewards[1] == paid


def test_a_reward_without_parts_refuses_their_weights(small_world, task, maps, monkeypatch) -> None:
    monkeypatch.setattr(agent_zoo.load("takeru"), "RewardWrapper", BaseRewardWrapper)
    make_environment("takeru", small_world, task, maps)
    with pytest.raises(UserError, match=r"--reward\.disable-give: the reward of the agent takeru has no such part"):
        make_environment("takeru", small_world, task, maps, reward=RewardSettings(disable_give=True))


def condition(realm, agent: int, player) -> np.ndarray:
    """Health, mean defense, gold, and the experience of the eight skills, from the engine's table of entities."""
    row = EntityState.Query.by_id(realm.datastore, agent)
    worn = [item for item in player.inventory.items if item.equipped.val]
    defense = sum(getattr(item, f"{style}_defense").val for item in worn for style in ("melee", "range", "mage")) / 3
    experience = [row[column] for name, column in ENTITY.items() if name.endswith("_exp")]
    assert len(experience) == 8
    return np.array([row[ENTITY["health"]], defense, row[ENTITY["gold"]], *experience], dtype=float)


@pytest.mark.parametrize("agent", ["takeru", "neurips23_start_kit"])
@pytest.mark.parametrize("as_published", [True, False])
def test_new_kinds_of_events_and_health_are_paid(play, agent: str, as_published: bool) -> None:
    """Agent 1 gets credit for a kill of the same kind after each tick, since random agents seldom kill."""
    game = play(agent, as_published=as_published)
    kinds: dict[int, set] = {}
    kills: dict[int, int] = {}
    most = repeated = 0
    for bonuses in game.ticks():
        log = game.realm.event_log.get_data()  # of the whole episode
        for agent_id, bonus in bonuses.items():
            mine = log[log[:, EVENT["ent_id"]] == agent_id]
            known = {(row[EVENT["event"]], row[EVENT["type"]], row[EVENT["level"]]) for row in mine.tolist()}
            new = len(known - kinds.get(agent_id, set()))
            if as_published:  # each kill and sale counts, whether it is new or not
                always = (EventCode.PLAYER_KILL, EventCode.EARN_GOLD)
                again = int(np.isin(mine[:, EVENT["event"]], always).sum()) - sum(kind[0] in always for kind in known)
                new += again - kills.get(agent_id, 0)
                repeated += again - kills.get(agent_id, 0)
                kills[agent_id] = again
            kinds[agent_id] = known
            healthier = agent == "neurips23_start_kit" and game.realm.players[agent_id].resources.health_restore > 0
            assert bonus == pytest.approx(0.01 * min(new, 3) + 0.03 * healthier, abs=1e-6)
            most = max(most, new)
        if 1 in bonuses:
            player = game.realm.players[1]
            game.realm.event_log.record(EventCode.PLAYER_KILL, player, target=player)
    assert most > 0
    assert (repeated > 3) == as_published


@pytest.mark.parametrize("agent", agent_zoo.names())
def test_nothing_can_be_given_away_but_by_the_start_kit(play, agent: str) -> None:
    """Without it, the test would pass if agents never had anything to give or anyone to give it to."""
    game, given = play(agent), 0
    for _ in game.ticks():
        for seen in game.observations.values():
            legal = seen["ActionTargets"]
            for action, argument in (("Give", "InventoryItem"), ("Give", "Target"), ("GiveGold", "Target")):
                *others, noop = legal[action][argument].tolist()
                given += sum(others)
                assert noop == 1, "no option is left"
            assert agent == AGENT or np.flatnonzero(legal["GiveGold"]["Price"]).tolist() == [0]
    assert (given > 0) == (agent == AGENT)


def test_older_policies_may_name_the_price_of_a_gift(play) -> None:
    game = play("takeru", as_published=False)
    assert all(
        seen["ActionTargets"]["GiveGold"]["Price"].all() for _ in game.ticks(3) for seen in game.observations.values()
    )


def test_the_price_last_named_is_illegal(play) -> None:
    """Whatever was offered; at first, it is the lowest."""
    game = play("neurips23_start_kit")
    last = dict.fromkeys(game.observations, 0)
    actions: dict[int, dict] = {}
    step = game.wrapper.step
    game.wrapper.step = lambda chosen: (actions.update(chosen), step(chosen))[1]
    for _ in game.ticks(5):
        last = {agent: actions[agent]["Sell"]["Price"] for agent in game.observations}
        for agent, price in last.items():
            legal = game.observations[agent]["ActionTargets"]["Sell"]["Price"]
            assert np.flatnonzero(legal == 0).tolist() == [price]
    assert len(set(last.values())) > 1


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
    assert (sum(game.wrapper.noops_permitted.values()) > 0) == (agent != "takeru")
