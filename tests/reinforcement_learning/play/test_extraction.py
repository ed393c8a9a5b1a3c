"""A dump equals the game that made it: every feature, action, probability and reward at every tick of an episode."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from activation_store.columns import unpack_legal
from activation_store.layers import layer_names
from activation_store.reader import read_dump, read_metadata
from activation_store.recording import record_again
from activation_store.schema import Records
from activation_store.writer import DumpWriter
from analysis.features import FEATURE_NAMES, feature_matrix
from analysis.features.observed import Observed
from analysis.life.events import died
from reinforcement_learning.play.contest import Contest, PlayedAgain, groups
from reinforcement_learning.play.entrants import untrained_entrant, untrained_twin, with_shadow_networks
from reinforcement_learning.play.extraction import Recorded, RecordingPlan, extract, metadata_of, record_group, write
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool, seats
from reinforcement_learning.play.recorder import Batch, Finished
from reinforcement_learning.play.subjects import other_sizes
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.settings import Settings
from tests.command import assert_refuses
from tests.conftest import AGENT
from tests.tiny_policies import tiny_contest, tiny_entrant
from tests.watched import record_here, watched
from tests.witness import Key, accepted, belongings, body, keys, others

VIEW_RADIUS = 7
EPISODES = 2
LAYERS = layer_names(1)
CPU = torch.device("cpu")


class Witness:
    """Reads the engine's state while an extraction runs in this process; keys are (episode, step, agent)."""

    def __init__(self) -> None:
        self.step = 0
        self.state: dict[Key, dict[str, float]] = {}  # features computed from the engine's state
        self.truth: dict[Key, dict[str, float]] = {}
        self.rewards: dict[Key, float] = {}
        self.died: dict[Key, bool] = {}

    def before_tick(self, pool: PolicyPool, _: Sequence[EntrantActions]) -> None:
        self.acting = self._acting(pool)
        for key, game in self.acting:
            agent = game.realm.players[key[2]]
            self.state[key] = {**body(agent, game.realm), **others(agent, game.realm), **belongings(agent)}
            self.truth[key] = dict(
                zip(("row", "col", "spawn_row", "spawn_col"), agent.pos + agent.spawn_pos, strict=True)
            )
            self.truth[key] |= {name: getattr(agent.history, name) for name in ("player_kills", "damage_inflicted")}

    def after_tick(self, pool: PolicyPool) -> None:
        for key, game in self.acting:
            agent = game.dead_this_tick.get(key[2]) or game.realm.players[key[2]]
            self.state[key].update(accepted(agent, agent.history.actions))
            slot = pool.numbers.index(key[0]) * pool.agents + key[2] - 1
            self.rewards[key] = pool.arrival.reward[slot]
            self.died[key] = key[2] not in game.realm.players
        self.step += 1

    def _acting(self, pool: PolicyPool) -> list[tuple[Key, Any]]:
        return [
            (
                (pool.numbers[slot // pool.agents], self.step, slot % pool.agents + 1),
                pool.shared[slot // pool.agents].world.game,
            )
            for slot in np.flatnonzero(pool.arrival.acting).tolist()
        ]


WITHHELD = {"mask_intrinsics": "strict", "relative_position": True}


ONCE = pytest.mark.parametrize("contest", [WITHHELD], indirect=True, ids=["withheld"])
"""For tests that take long and depend little on what is withheld."""


@pytest.fixture(scope="module", params=[{}, WITHHELD], ids=["sees all", "withheld"])
def contest(request, small_world, task, maps) -> Contest:
    env = replace(small_world, **request.param)
    return tiny_contest(env, task, maps, hidden_size=32)


PLAN = RecordingPlan(EPISODES, None, seed=4, layers=LAYERS, fields=("Market", "Task", "ActionTargets", "Logits"))


def extract_here(contest: Contest, plan: RecordingPlan, folders: Sequence[Path]) -> None:
    """Do in this process what `extract` does in worker processes."""
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(DumpWriter(folder, metadata_of(contest, entrant, plan)))
            for folder, entrant in zip(folders, contest.entrants, strict=True)
        ]
        for group in groups(plan.seed, plan.episodes):
            record_here(contest.pool(len(group.numbers)), group, plan, writers)


@pytest.fixture(scope="module")
def witnessed(contest: Contest, tmp_path_factory) -> tuple[Path, Witness]:
    """The folder of a dump of two episodes played in parallel, and a witness's record of the engine's state."""
    witness, folder = Witness(), tmp_path_factory.mktemp("dumps") / "untrained"
    with watched(witness.before_tick, witness.after_tick):
        extract_here(contest, PLAN, [folder])
    return folder, witness


@pytest.fixture(scope="module")
def records(witnessed) -> Records:
    return read_dump(witnessed[0])


@pytest.fixture(scope="module")
def witness(witnessed) -> Witness:
    return witnessed[1]


def test_every_living_agents_tick_is_recorded_once_with_what_it_was_paid(records: Records, witness: Witness) -> None:
    assert len(records) == len(set(keys(records))) > 500
    assert set(keys(records)) == witness.state.keys()
    assert sorted(set(records.episode.tolist())) == list(range(EPISODES))
    done = records.column("done")
    assert done.sum() == EPISODES * 16
    last = {(key[0], key[2]): key for key in sorted(keys(records))}
    assert {key for key, ends in zip(keys(records), done, strict=True) if ends} == set(last.values())
    assert any(witness.died[key] for key in last.values())
    paid = np.array([witness.rewards[key] for key in keys(records)], dtype=np.float32)
    np.testing.assert_array_equal(records.reward, paid)
    died = records.reward[records.column("done")] < -0.9  # -1, and what was new in the last tick
    assert died.any(), "no death was paid for"


def test_labels_place_and_life_are_the_engines(records: Records, witness: Witness) -> None:
    for name in ("spawn_row", "spawn_col", "player_kills", "damage_inflicted"):
        truth = [witness.truth[key][name] for key in keys(records)]
        assert records.column(f"truth/{name}").tolist() == truth
    assert records.column("truth/damage_inflicted").max() > 0
    progress = records.column("truth/task_progress")
    assert progress.max() > 0 and progress.min() == 0
    for name in ("row", "col"):
        assert records.column(name).tolist() == [witness.truth[key][name] for key in keys(records)]
    lives = {(episode, agent): set() for episode, _, agent in keys(records)}
    for (episode, _, agent), life in zip(keys(records), records.column("life").tolist(), strict=True):
        lives[episode, agent].add(life)
    for episode in range(EPISODES):
        assert sorted(life for (at, _), result in lives.items() if at == episode for life in result) == list(range(16))


def test_farthest_is_the_way_from_the_edge_towards_the_centre_as_its_definition_says(
    records: Records, witnessed, small_world
) -> None:
    """An agent that walks along the edge, however far from its spawn, has come nowhere."""
    middle, reach = small_world.map_size // 2 + 16, small_world.map_size // 2
    place = np.stack([records.column("row"), records.column("col")], axis=1).astype(int)
    inside = reach - np.abs(place - middle).max(axis=1)  # 0 on the outermost rows and columns
    from_spawn = np.abs(place - np.stack([records.column(f"truth/spawn_{name}") for name in ("row", "col")], axis=1))
    farthest, apart = {}, 0
    for i, life in enumerate(zip(records.episode.tolist(), records.agent_id.tolist(), strict=True)):
        farthest[life] = max(farthest.get(life, 0), inside[i])
        assert records.column("truth/farthest")[i] == farthest[life]
        apart = max(apart, from_spawn[i].max() - farthest[life])
    assert max(farthest.values()) > 3 and apart > 3
    assert "from the map's edge" in read_metadata(witnessed[0]).columns["truth/farthest"].definition


def test_what_is_withheld_is_not_in_the_observation_but_beside_it(records: Records, witnessed) -> None:
    metadata = read_metadata(witnessed[0])
    assert [episode["episode_of_seed"] for episode in metadata.episodes] == list(range(EPISODES))
    assert len({episode["seed"] for episode in metadata.episodes}) == 1
    seen = Observed(records, metadata)
    masked = metadata.environment["mask_intrinsics"] == "strict"
    for name in ("health", "food", "water", "damage", "time_alive"):
        assert (f"truth/{name}" in records.columns) == masked
        assert seen.own(name).any() and seen.own_as_seen(name).any() != masked
    middle = records.tile[:, records.tile.shape[1] // 2, :2]
    assert masked == (not middle.any()) == (not seen.own_as_seen("row").any())
    assert np.array_equal(records.tile[:, 0, :2] - middle, np.full_like(middle, -VIEW_RADIUS))


def test_a_task_belongs_to_a_life_and_is_named(records: Records, witnessed) -> None:
    names = read_metadata(witnessed[0]).environment["tasks"]
    numbers, embeddings = records.column("truth/task"), records.column("task")
    assert numbers.max() < len(names)
    for episode, agent in {(key[0], key[2]) for key in keys(records)}:
        life = (records.episode == episode) & (records.agent_id == agent)
        assert len(set(numbers[life].tolist())) == 1 and len(np.unique(embeddings[life], axis=0)) == 1
    assert len(set(numbers.tolist())) > 5


def test_what_was_not_allowed_was_not_chosen(records: Records, witnessed) -> None:
    heads = read_metadata(witnessed[0]).action_heads
    assert read_metadata(witnessed[0]).columns["logits"].definition.startswith("Log-probability of every option")
    legal = unpack_legal(records.column("legal"), sum(head.size for head in heads))
    logits, first = records.column("logits"), 0
    for number, head in enumerate(heads):
        options = slice(first, first + head.size)
        first += head.size
        chosen = records.action[:, number][:, None]
        assert np.take_along_axis(legal[:, options], chosen, axis=1).all()
        taken = np.take_along_axis(logits[:, options], chosen, axis=1)[:, 0]
        np.testing.assert_allclose(taken, records.log_probability[:, number], atol=1e-5)
        np.testing.assert_allclose(np.exp(logits[:, options]).sum(axis=1), 1, atol=1e-4)
        assert (logits[:, options][~legal[:, options]] < -1e8).all()


@pytest.mark.parametrize("name", FEATURE_NAMES)
def test_feature_equals_the_engines_own_value_at_every_tick(name: str, records, witness, witnessed) -> None:
    computed = feature_matrix(records, read_metadata(witnessed[0]))[:, FEATURE_NAMES.index(name)]
    truth = np.array([witness.state[key][name] for key in keys(records)], dtype=float)
    np.testing.assert_array_equal(computed, truth)
    if name not in ("is_trading",):  # no agent could trade while every tick was spent fighting
        assert len(np.unique(truth)) > 1, f"{name} never changed: equality proves little"


@ONCE
@pytest.mark.slow
def test_same_seed_same_dump_and_another_seed_another(contest: Contest, tmp_path: Path) -> None:
    plan = RecordingPlan(5, 12, seed=4, layers=("action_decoder",), format="parquet")
    for name, seed, processes in (("once", 4, 1), ("again", 4, 2), ("other", 5, 1)):
        extract(contest, replace(plan, seed=seed), [tmp_path / name], Workers(processes), lambda *_: None)
    once, again, other = (read_metadata(tmp_path / name).files for name in ("once", "again", "other"))
    assert len(once) == 5 and once == again != other
    assert read_dump(tmp_path / "once").tick.max() == 11


@ONCE
def test_a_group_that_is_played_again_is_neither_lost_nor_doubled(contest: Contest, tmp_path: Path) -> None:
    """Its worker may be lost at any moment: in the first ticks, or between two episodes that end."""
    plan = RecordingPlan(2, 6, seed=4, layers=("action_decoder",), format="parquet")
    (group,) = groups(plan.seed, plan.episodes)
    output: list[Batch | Finished | PlayedAgain] = []
    output += record_group(contest.pool(2), group, plan.layers, plan.fields, plan.most_ticks)
    lost: list[Batch | Finished | PlayedAgain] = [PlayedAgain("a worker was lost")]
    seen: list[Recorded] = []
    for name, stream in (("once", output), ("again", [*output[:3], *lost, *output[:-1], *lost, *output])):
        with DumpWriter(tmp_path / name, metadata_of(contest, contest.entrants[0], plan)) as writer:
            write(((group, item) for item in stream), [writer], seen.append)
    once, again = (read_metadata(tmp_path / name) for name in ("once", "again"))
    assert len(once.files) == 2 and once.files == again.files and once.episodes == again.episodes
    assert (seen[-1].records, seen[-1].episodes) == (once.records, 2)


@pytest.mark.slow
@ONCE
def test_who_is_alive_when_a_world_is_cut_off_has_not_died(contest: Contest, tmp_path: Path) -> None:
    """As in runs of `intervene.py --max-steps`, whose tasks are about a later horizon."""
    cut = replace(contest, most_ticks=4)
    plan = replace(PLAN, episodes=1, most_ticks=4, layers=("action_decoder",))
    extract_here(cut, plan, [tmp_path / "dump"])
    records, metadata = read_dump(tmp_path / "dump"), read_metadata(tmp_path / "dump")
    assert records.column("done").sum() == metadata.lives == cut.env.num_agents
    assert not died(Observed(records, metadata)).any()


@ONCE
def test_what_a_recording_would_take_does_not_depend_on_the_one_that_is_made(contest: Contest) -> None:
    (entrant,), plan = contest.entrants, replace(PLAN, episodes=100_000)
    beside = replace(contest, entrants=(with_shadow_networks(entrant, (untrained_twin(entrant, seed=1),)),))
    sizes = other_sizes(contest, plan, twin_in_all=False)
    assert other_sizes(beside, plan, twin_in_all=False) == sizes
    (small, *others), (large, *same) = (
        other_sizes(beside, plan, twin_in_all=all_of_them).split(", ")[2:] for all_of_them in (False, True)
    )
    assert others == same and small.startswith("with --record: activations") and small != large


@ONCE
def test_policies_that_share_a_world_get_dumps_of_their_own(
    contest: Contest, small_world, task, maps, tmp_path: Path
) -> None:
    both = replace(
        contest, entrants=(*contest.entrants, tiny_entrant(small_world, task, maps, "takeru", lstm_layers=0))
    )
    plan = RecordingPlan(2, None, seed=4, layers=("action_decoder",))
    folders = [tmp_path / "kit", tmp_path / "takeru"]
    witness = Witness()
    with watched(witness.before_tick, witness.after_tick):
        extract_here(both, plan, folders)
    kit, takeru = (read_dump(folder) for folder in folders)
    assert sorted(keys(kit) + keys(takeru)) == sorted(witness.state)
    for episode in range(2):
        seated = seats(4, episode, 16, 2)
        for number, dump in enumerate((kit, takeru)):
            agents = set(dump.agent_id[dump.episode == episode].tolist())
            assert agents == set((np.flatnonzero(seated == number) + 1).tolist())
    assert read_metadata(folders[0]).environment["opponents"] == ["untrained_takeru"]
    again = [record_again(folder, read_metadata(folder)) for folder in folders]
    assert all(f"pvp -p untrained_{AGENT},untrained_takeru --record" in line for line in again)  # else others' seats
    assert read_metadata(folders[1]).layers == {"action_decoder": 16}


def test_a_layer_that_a_policy_lacks_is_refused_and_episodes_end_when_the_last_agent_dies(
    small_world, task, maps, tmp_path: Path
) -> None:
    reflex = tiny_contest(small_world, task, maps, "takeru", lstm_layers=0)
    plan, message = replace(PLAN, layers=("lstm_hidden",)), "no layer lstm_hidden in this policy, which is feed-forward"
    assert_refuses(message, extract, reflex, plan, [tmp_path / "dump"], Workers(1), lambda *_: None)
    assert list(tmp_path.iterdir()) == []
    # Two untrained agents starve long before the horizon; the next tick has no agents to decide for.
    env = replace(small_world, num_agents=2, horizon=1000)
    clueless = untrained_entrant(AGENT, Settings(env=env, task=task), maps, seed=0)
    extract_here(
        Contest((clueless,), env, task, maps, CPU), RecordingPlan(3, None, 3, ("action_decoder",)), [tmp_path / "dump"]
    )
    records = read_dump(tmp_path / "dump")
    assert sorted(set(records.episode.tolist())) == [0, 1, 2]
    assert records.tick.max() < 500
