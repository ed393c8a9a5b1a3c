"""Agents that act at random in some ticks: legal, uniform, repeatable, and with the memory of their policy."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from activation_store.columns import unpack_legal
from activation_store.reader import read_dump, read_metadata
from activation_store.recording import SEEN_FIELDS
from activation_store.schema import Records
from agent_zoo.capture import capture
from analysis.recorded.recorded_observation import packed_observation
from analysis.recorded.sequences import lives
from common.user_error import UserError
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.extraction import Recorded, RecordingPlan, extract
from reinforcement_learning.play.workers import Workers
from tests.tiny_policies import tiny_contest

PLAN = RecordingPlan(2, None, seed=4, layers=("lstm_hidden",), fields=SEEN_FIELDS, format="parquet")
SHORT = RecordingPlan(6, 8, seed=4, layers=("action_decoder",), format="parquet")


@pytest.fixture(scope="module")
def contest(small_world, task, maps) -> Contest:
    """Half of the agents' view is hidden, so that options shown and the game's differ."""
    env = replace(small_world, num_npcs=64, view_radius=4, spawn_immunity=0)
    return tiny_contest(env, task, maps)


def at_random(contest: Contest, share: float) -> Contest:
    return replace(contest, random_actions=share)


@pytest.fixture(scope="module")
def dump(contest: Contest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes in which all agents always act at random."""
    folder = tmp_path_factory.mktemp("dumps") / "random"
    extract(at_random(contest, 1.0), PLAN, [folder], Workers(1), lambda *_: None)
    return folder


def options(dump: Path, records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Legal options of every choice with more than one, and the place of the chosen one among them, (Q,) each."""
    heads, first, legal_options, places = read_metadata(dump).action_heads, 0, [], []
    legal = unpack_legal(records.column("legal"), sum(head.size for head in heads))
    for number, head in enumerate(heads):
        own, chosen = legal[:, first : first + head.size], records.action[:, number]
        first += head.size
        assert own[np.arange(len(own)), chosen].all(), f"{head.name}: an illegal option was chosen"
        open_ = own.sum(axis=1) > 1
        legal_options.append(own[open_].sum(axis=1))
        places.append((own.cumsum(axis=1)[np.arange(len(own)), chosen] - 1)[open_])
    return np.concatenate(legal_options), np.concatenate(places)


def test_all_legal_options_are_equally_likely_and_heads_are_drawn_independently(dump: Path) -> None:
    count, place = options(dump, read_dump(dump))
    tested = [size for size in np.unique(count) if (count == size).sum() > 20 * size]
    assert {2, 3, 5} <= set(tested)
    pvalues = [stats.chisquare(np.bincount(place[count == size], minlength=size)).pvalue for size in tested]
    assert min(pvalues) > 0.001 / len(tested)  # by chance, one seed in a thousand would fail
    records = read_dump(dump, columns=["legal"])
    heads = read_metadata(dump).action_heads
    legal = unpack_legal(records.column("legal"), sum(head.size for head in heads))
    first = np.cumsum([0, *(head.size for head in heads)])
    names = [head.name for head in heads]
    move, style = (names.index(name) for name in ("Move.Direction", "Attack.Style"))
    both = np.ones(len(records), bool)
    for head in (move, style):
        both &= legal[:, first[head] : first[head + 1]].all(axis=1)
    table, *_ = np.histogram2d(records.action[both, move], records.action[both, style], bins=(5, 3))
    assert both.sum() > 300 and stats.chi2_contingency(table).pvalue > 0.001


@torch.no_grad()
def test_the_memory_is_the_policys(dump: Path, contest: Contest) -> None:
    policy = contest.entrants[0].policy
    for batch in lives(dump, batch=16):
        observation = packed_observation(batch.records, policy.policy.layout, policy.mask)
        with capture(policy, ["action_decoder"]) as captured:  # the hidden state, in this agent
            policy.forward_segments(observation, torch.from_numpy(batch.lengths), policy.initial_state(len(batch)))
        recorded = batch.records.activations["lstm_hidden"]
        np.testing.assert_allclose(captured["action_decoder"].numpy(), recorded, atol=1e-5)
        assert np.abs(recorded).max() > 0.01


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_share_of_the_agents_acts_at_random_and_the_others_as_ever(contest: Contest, share: float) -> None:
    pool, plain = at_random(contest, share).pool(2), contest.pool(2)
    for case in (pool, plain):
        case.start(4, (2, 3))
    changed = acted = 0
    first = True
    while not pool.is_over:
        (choice,) = pool.decide()
        policys = choice.decision.sample(pool.action_noise())
        if first:
            (as_ever,) = plain.decide()
            assert torch.equal(as_ever.action, policys) and np.array_equal(plain.action_noise(), pool.action_noise())
            first = False
        changed += int((choice.action != policys).any(dim=1).sum())
        acted += len(policys)
        pool.advance([choice])
    # An act at random may happen to be the policy's; of five moves and three styles it rarely is.
    spread = 4 * np.sqrt(share * (1 - share) / acted)
    assert acted > 500 and 0.85 * share - spread < changed / acted < share + spread


def test_a_dump_is_not_resumed_with_another_share(contest: Contest, tmp_path: Path) -> None:
    def stop(recorded: Recorded, episodes: int) -> None:
        if recorded.episodes >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(at_random(contest, 0.2), SHORT, [tmp_path / "dump"], Workers(1), stop)
    for share in (0.3, 0.0):
        with pytest.raises(UserError, match="different settings"):
            extract(at_random(contest, share), SHORT, [tmp_path / "dump"], Workers(1), lambda *_: None, resume=True)
    extract(at_random(contest, 0.2), SHORT, [tmp_path / "dump"], Workers(1), lambda *_: None, resume=True)
    assert read_metadata(tmp_path / "dump").environment["random_actions"] == 0.2
