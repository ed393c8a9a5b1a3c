"""Networks that watch a policy: their memory, and that they have no effect."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump, read_metadata
from activation_store.records import Records
from common.user_error import UserError
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import untrained_twin, with_shadow_networks
from reinforcement_learning.play.extraction import RecordingPlan, extract
from reinforcement_learning.play.workers import Workers
from tests.command import assert_refuses
from tests.tiny_policies import tiny_contest, tiny_entrant

LAYERS = ("lstm_hidden", "lstm_cell")
PLAN = RecordingPlan(5, 24, seed=4, layers=LAYERS, format="parquet")


@pytest.fixture(scope="module")
def contest(small_world, task, maps) -> Contest:
    env = replace(small_world, mask_intrinsics="strict", relative_position=True, spawn_immunity=0)
    return tiny_contest(env, task, maps)


@pytest.fixture(scope="module")
def dumps(contest: Contest, tmp_path_factory) -> dict[str, Path]:
    """The same episodes without and with shadow networks: the policy under another name, and an untrained twin."""
    (entrant,) = contest.entrants
    watched = with_shadow_networks(entrant, (replace(entrant, name="itself"), untrained_twin(entrant, seed=9)))
    folder = tmp_path_factory.mktemp("dumps")
    extract(contest, PLAN, [folder / "alone"], Workers(1), lambda *_: None)
    extract(replace(contest, entrants=(watched,)), PLAN, [folder / "watched"], Workers(2), lambda *_: None)
    return {name: folder / name for name in ("alone", "watched")}


@pytest.fixture(scope="module")
def watched(dumps: dict[str, Path]) -> Records:
    return read_dump(dumps["watched"])


def test_a_policy_that_watches_itself_remembers_what_it_remembers_and_nobody_notices(
    watched: Records, dumps: dict[str, Path]
) -> None:
    """In every tick of every life, so a shadow network's memory is separate, persists, and is reset with each life."""
    assert len(watched) > 500 and watched.episode.max() == 4
    for layer in LAYERS:
        np.testing.assert_allclose(watched.activations[f"itself_{layer}"], watched.activations[layer], atol=1e-6)
    assert np.ptp(watched.activations["lstm_hidden"], axis=0).min() > 0
    alone = read_dump(dumps["alone"])
    for name in ("tick", "agent_id", "action", "reward"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(watched, name))
    np.testing.assert_array_equal(alone.activations["lstm_hidden"], watched.activations["lstm_hidden"])


def test_the_untrained_twin_is_another_network_the_same_for_the_same_seed_and_is_named(
    contest: Contest, watched, dumps: dict[str, Path]
) -> None:
    (entrant,) = contest.entrants
    difference = watched.activations["untrained_lstm_hidden"] - watched.activations["lstm_hidden"]
    assert np.abs(difference).mean() > 0.01
    state = torch.random.get_rng_state()
    weights = [untrained_twin(entrant, seed).policy.lstm.weight_hh_l0 for seed in (9, 9, 10)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert torch.equal(state, torch.random.get_rng_state())
    metadata = read_metadata(dumps["watched"])
    assert set(metadata.layers) == {prefix + layer for prefix in ("", "itself_", "untrained_") for layer in LAYERS}
    assert metadata.environment["shadow_networks"]["untrained"] == {"steps": 0, "seed": 9, "sha256": None}
    assert read_metadata(dumps["alone"]).environment["shadow_networks"] == {}


def test_who_cannot_watch_is_refused(contest: Contest, small_world, task, maps) -> None:
    (entrant,) = contest.entrants
    reflex = tiny_entrant(contest.env, task, maps, lstm_layers=0)
    assert_refuses(r"cannot watch .*: it is feed-forward", with_shadow_networks, entrant, (reflex,))
    with pytest.raises(UserError, match=r"cannot watch .*: it was trained to see another kind of world"):
        with_shadow_networks(entrant, (tiny_entrant(small_world, task, maps),))


@pytest.mark.parametrize("cell", ["gru", pytest.param("ema", marks=pytest.mark.slow)])
def test_a_memory_without_cell_states_watches_too(small_world, task, maps, tmp_path: Path, cell) -> None:
    entrant = tiny_entrant(small_world, task, maps, cell=cell)
    watched = with_shadow_networks(entrant, (replace(entrant, name="itself"), untrained_twin(entrant, seed=9)))
    contest = Contest((watched,), small_world, task, maps, torch.device("cpu"))
    plan = RecordingPlan(1, 12, seed=4, layers=("lstm_hidden",), format="parquet")
    extract(contest, plan, [tmp_path / "dump"], Workers(1), print)
    result = read_dump(tmp_path / "dump").activations
    assert set(result) == {"lstm_hidden", "itself_lstm_hidden", "untrained_lstm_hidden"}
    np.testing.assert_allclose(result["itself_lstm_hidden"], result["lstm_hidden"], atol=1e-6)
    assert np.abs(result["untrained_lstm_hidden"] - result["lstm_hidden"]).mean() > 1e-3
