"""A dump with all layers holds a policy's complete memory: once restored, it continues the recorded episode."""

from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.layers import layer_names
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import Records
from activation_store.writer import DumpWriter
from agent_zoo.capture import ALL_LAYERS, memory_from_layers, run_with_layers
from agent_zoo.observation import PackedObservation
from reinforcement_learning.play.contest import Contest, groups
from reinforcement_learning.play.extraction import RecordingPlan, metadata_of
from tests.tiny_policies import tiny_contest
from tests.watched import record_here, watched

TICKS = 24


@pytest.fixture(scope="module", params=["lstm", "gru", pytest.param("ema", marks=pytest.mark.slow)])
def contest(request, small_world, task, maps) -> Contest:
    """yaofeng with a memory of two layers."""
    return tiny_contest(small_world, task, maps, "yaofeng", lstm_layers=2, cell=request.param)


@pytest.fixture(scope="module")
def episode(contest: Contest, tmp_path_factory) -> tuple[Path, list[PackedObservation]]:
    """The folder of a dump of one episode, and its agents' observations in every tick."""
    folder, observations = tmp_path_factory.mktemp("dumps") / "yaofeng", []
    plan = RecordingPlan(1, TICKS, seed=4, layers=ALL_LAYERS, format="parquet")
    (group,) = groups(plan.seed, plan.episodes)
    with (
        watched(lambda _, choices: observations.append(choices[0].decision.observation)),
        DumpWriter(folder, metadata_of(contest, contest.entrants[0], plan)) as writer,
    ):
        record_here(contest.pool(1), group, plan, [writer])
    return folder, observations


@torch.no_grad()
def test_memory_of_a_tick_goes_on_to_the_recorded_next_tick(contest: Contest, episode) -> None:
    folder, observations = episode
    policy, records = contest.entrants[0].policy, read_dump(folder)
    metadata = read_metadata(folder)
    assert metadata.layers == dict.fromkeys(layer_names(2, policy.cell), 16)
    assert metadata.environment["memory"] == {"cell": policy.cell, "layers": 2}
    assert set(records.tick.tolist()) == set(range(TICKS)) and len(observations) == TICKS
    for tick in range(1, TICKS):
        now = np.flatnonzero(records.tick == tick)  # in the order of the slots, as the agents decided
        before = np.flatnonzero((records.tick == tick - 1) & np.isin(records.agent_id, records.agent_id[now]))
        assert np.array_equal(records.agent_id[before], records.agent_id[now])
        memory = memory_from_layers(policy, layers_of(records, before))
        *_, layers = run_with_layers(policy, observations[tick], memory)
        for name, recorded in layers_of(records, now).items():
            np.testing.assert_allclose(layers[name].numpy(), recorded, atol=1e-6, err_msg=f"{name}, tick {tick}")
        _, _, forgetful, _ = run_with_layers(policy, observations[tick], policy.initial_state(len(now)))
        assert np.abs(forgetful.hidden[0].numpy() - records.activations["lstm_hidden_1"][now]).max() > 1e-3


def layers_of(records: Records, rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in records.activations.items()}
