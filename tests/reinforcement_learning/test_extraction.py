"""A dump against the game that made it: every feature, action, probability and reward, at every tick of an episode."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nmmo.core.action as game_action
import numpy as np
import pytest
import torch

from activation_store.reader import read_dump, read_metadata
from activation_store.schema import LAYERS, Records
from agent_zoo.observation import PackedObservation
from analysis.features import FEATURE_NAMES, feature_matrix
from reinforcement_learning.capture import capture
from reinforcement_learning.extraction import Plan, Subject, extract, untrained_subject
from reinforcement_learning.player import Decision, Player
from reinforcement_learning.settings import PolicySettings, Settings
from tests.conftest import AGENT
from user_error import UserError

VIEW_RADIUS = 7
EPISODES = 2


class Witness:
    """Looks at the engine itself while an extraction runs."""

    def __init__(self) -> None:
        self.step = 0
        self.state: dict[tuple[int, int], dict[str, float]] = {}  # (step, agent) -> features by the engine's account
        self.rewards: dict[tuple[int, int], float] = {}
        self.observations: dict[int, tuple[np.ndarray, PackedObservation]] = {}

    def before_tick(self, player: Player, decision: Decision) -> None:
        realm = player.worlds.driver_env.env.game.realm
        self.observations[self.step] = (decision.present, decision.observation)
        for slot in np.flatnonzero(decision.acting):
            agent = realm.players[slot + 1]
            self.state[self.step, slot + 1] = {**_vitals(agent), **_neighbours(agent, realm), "tick": realm.tick}

    def after_tick(self, player: Player, decision: Decision) -> None:
        game = player.worlds.driver_env.env.game
        for slot in np.flatnonzero(decision.acting):
            agent = game.dead_this_tick.get(slot + 1) or game.realm.players[slot + 1]
            self.state[self.step, slot + 1].update(_accepted_actions(agent.history.actions))
            self.rewards[self.step, slot + 1] = player.arrival.reward[slot]
        self.step += 1


def _vitals(agent) -> dict[str, float]:
    return {
        "self_health": agent.resources.health.val,
        "self_food": agent.resources.food.val,
        "self_water": agent.resources.water.val,
        "self_gold": agent.gold.val,
        "max_combat_level": agent.attack_level,
        "in_combat": agent.in_combat,
        "n_inventory_items": len(agent.inventory.items),
    }


def _neighbours(agent, realm) -> dict[str, float]:
    def near(other) -> bool:
        distance = max(abs(other.pos[0] - agent.pos[0]), abs(other.pos[1] - agent.pos[1]))
        return distance <= VIEW_RADIUS and other.ent_id != agent.ent_id

    players = sum(near(other) for other in realm.players.values())
    npcs = sum(near(other) for other in realm.npcs.values())
    return {"n_visible_players": players, "n_visible_npcs": npcs, "n_visible_entities": players + npcs}


def _accepted_actions(actions: dict) -> dict[str, float]:
    """What the engine took the agent to do, after it had dropped no-ops and impossible actions."""
    move = actions.get(game_action.Move, {}).get(game_action.Direction)
    trades = (game_action.Buy, game_action.Sell, game_action.Give, game_action.GiveGold)
    return {
        "is_moving": move is not None and move is not game_action.Stay,
        "is_attacking": game_action.Attack in actions,
        "is_trading": any(trade in actions for trade in trades),
    }


@pytest.fixture(scope="module")
def subject(small_world, task, maps) -> Subject:
    settings = Settings(env=small_world, task=task, policy=PolicySettings(hidden_size=32))
    return untrained_subject(AGENT, settings, maps, seed=0)


@pytest.fixture(scope="module")
def plan(small_world, task) -> Plan:
    return Plan(EPISODES, None, seed=4, layers=LAYERS, env=small_world, task=task)


@pytest.fixture(scope="module")
def witnessed(subject, plan, maps, tmp_path_factory) -> tuple[Path, Witness]:
    """The folder of a dump of two episodes, and what a witness saw of the engine meanwhile."""
    witness, folder = Witness(), tmp_path_factory.mktemp("dumps") / "untrained"
    act: Callable = Player.act

    def witnessed_act(player: Player, decision: Decision, actions: np.ndarray) -> None:
        witness.before_tick(player, decision)
        act(player, decision, actions)
        witness.after_tick(player, decision)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Player, "act", witnessed_act)
        extract(subject, plan, maps, folder, on_tick=lambda episodes, records: None)
    return folder, witness


@pytest.fixture(scope="module")
def records(witnessed) -> Records:
    return read_dump(witnessed[0])


@pytest.fixture(scope="module")
def witness(witnessed) -> Witness:
    return witnessed[1]


def keys(records: Records) -> list[tuple[int, int]]:
    return list(zip(records.step.tolist(), records.agent_id.tolist(), strict=True))


def test_every_living_agent_tick_is_recorded_once(records: Records, witness: Witness) -> None:
    assert len(records) == len(set(keys(records))) > 500
    assert set(keys(records)) == witness.state.keys()
    assert sorted(set(records.episode.tolist())) == list(range(EPISODES))


@pytest.mark.parametrize("name", FEATURE_NAMES)
def test_feature_equals_the_engines_own_value_at_every_tick(name: str, records, witness, witnessed) -> None:
    computed = feature_matrix(records, read_metadata(witnessed[0]))[:, FEATURE_NAMES.index(name)]
    truth = np.array([witness.state[key][name] for key in keys(records)], dtype=float)
    np.testing.assert_array_equal(computed, truth)
    if name not in ("is_trading",):  # nobody could trade where every tick was spent fighting
        assert len(np.unique(truth)) > 1, f"{name} never changed: equality proves little"


def test_rewards_are_what_the_action_was_paid(records: Records, witness: Witness) -> None:
    paid = np.array([witness.rewards[key] for key in keys(records)], dtype=np.float32)
    np.testing.assert_array_equal(records.reward, paid)
    last = {
        (episode, agent): i for i, (episode, agent) in enumerate(zip(records.episode, records.agent_id, strict=True))
    }
    assert np.isclose(records.reward[list(last.values())], -1).any(), "no death was paid for"


def test_activation_through_the_heads_gives_the_recorded_probabilities(records, witness, subject) -> None:
    decoder = subject.policy.policy.action_decoder
    for step in (0, 5, int(records.step.max())):
        chosen = records.step == step
        present, observation = witness.observations[step]
        rows = torch.from_numpy(np.searchsorted(present, records.env_id[chosen]))
        seen = observation.take(rows)
        with torch.no_grad():
            _, candidates = subject.policy.policy.encode_observations(seen)
            distribution = decoder(torch.from_numpy(records.activations["action_decoder"][chosen]), candidates, seen)
        expected = distribution.log_probability(torch.from_numpy(records.action[chosen]))
        np.testing.assert_allclose(records.log_probability[chosen], expected.numpy(), atol=1e-5)


def test_layers_are_what_they_are_called(records: Records, subject: Subject) -> None:
    """Encoder output run through the LSTM from an empty memory gives a life's first hidden and cell states."""
    assert set(records.activations) == set(LAYERS)
    born = records.tick == 0
    with torch.no_grad():
        encoded = torch.from_numpy(records.activations["encoder_output"][born]).unsqueeze(0)
        _, (hidden, cell) = subject.policy.lstm(encoded)
    np.testing.assert_allclose(records.activations["lstm_hidden"][born], hidden[-1].numpy(), atol=1e-6)
    np.testing.assert_allclose(records.activations["lstm_cell"][born], cell[-1].numpy(), atol=1e-6)
    np.testing.assert_array_equal(records.activations["action_decoder"], records.activations["lstm_hidden"])


def test_same_seed_same_dump_and_another_seed_another(witnessed, subject, plan, maps, tmp_path: Path) -> None:
    folder, _ = witnessed
    extract(subject, plan, maps, tmp_path / "again", on_tick=lambda episodes, records: None)
    other = Plan(1, 10, seed=5, layers=("action_decoder",), env=plan.env, task=plan.task)
    extract(subject, other, maps, tmp_path / "other", on_tick=lambda episodes, records: None)
    digest = read_metadata(folder).files
    assert read_metadata(tmp_path / "again").files == digest
    assert read_metadata(tmp_path / "other").files != digest


def test_episodes_end_when_the_last_agent_dies(small_world, task, maps, tmp_path: Path) -> None:
    """Two agents that know nothing starve long before the horizon; the tick after has nobody to decide for."""
    env = replace(small_world, num_agents=2, horizon=1000)
    clueless = untrained_subject(AGENT, Settings(env=env, task=task), maps, seed=0)
    extract(clueless, Plan(3, None, 3, ("action_decoder",), env, task), maps, tmp_path / "dump", lambda *_: None)
    records = read_dump(tmp_path / "dump")
    assert sorted(set(records.episode.tolist())) == [0, 1, 2]
    assert records.tick.max() < 500


def test_an_episode_can_be_recorded_without_those_before_it(witnessed) -> None:
    """What the metadata says of an episode tells episodes apart and rebuilds them."""
    episodes = read_metadata(witnessed[0]).episodes
    assert [episode["episode_of_seed"] for episode in episodes] == list(range(EPISODES))
    assert len({episode["seed"] for episode in episodes}) == 1


def test_hooks_do_not_outlive_their_block(subject) -> None:
    def hooks() -> int:
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in subject.policy.modules())

    before = hooks()
    with pytest.raises(RuntimeError, match="boom"), capture(subject.policy, LAYERS):
        assert hooks() == before + len(LAYERS)
        raise RuntimeError("boom")
    assert hooks() == before
    with pytest.raises(UserError, match="no layer 'nonsense'"), capture(subject.policy, ("lstm_cell", "nonsense")):
        pass
    assert hooks() == before


def test_a_layer_that_a_policy_lacks_is_refused_and_nothing_is_left(
    plan, small_world, task, maps, tmp_path: Path
) -> None:
    settings = Settings(env=small_world, task=task, policy=PolicySettings(hidden_size=16, lstm_layers=0))
    reflex = untrained_subject("takeru", settings, maps, seed=0)
    with pytest.raises(UserError, match="lstm_hidden cannot be recorded: this policy is feed-forward"):
        extract(reflex, replace(plan, layers=("lstm_hidden",)), maps, tmp_path / "dump", lambda *_: None)
    assert list(tmp_path.iterdir()) == []
