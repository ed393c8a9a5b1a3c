"""Jacobians of simulated lives: with the world cut, those of the policy's own update on the same inputs."""

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump
from agent_zoo.capture import capture
from agent_zoo.soft_path import soft_tick
from analysis.dynamics.jacobians import Probes, mean_jacobians
from analysis.dynamics.tracks import Update
from analysis.world_model.derivatives import Dynamics, compare_jacobians, labelled_starts, lags_up_to, world_jacobians
from analysis.world_model.imagination import imagine
from tests.command import assert_refuses

UNITS, LAGS = 16, (1, 2, 4)


def probes(layer: str) -> Probes:
    """Three oblique components."""
    read_outs = np.random.default_rng(0).normal(size=(3, UNITS))
    return Probes(layer, read_outs, np.linalg.pinv(read_outs).T)


@pytest.mark.parametrize("layer", ["lstm_cell", "lstm_hidden"])
def test_with_the_world_cut_they_are_those_of_the_policys_update(model, start, layer) -> None:
    """Forward-mode derivatives of the update on what the policy reads in the same simulation."""
    own = probes(layer)
    result, alive = world_jacobians(model, start, own, LAGS, 3, through_world=False)
    assert result.shape == (len(start), 4, 3, 3) and alive.shape == (len(start),)
    np.testing.assert_allclose(result[:, 0], np.broadcast_to(np.eye(3), (len(start), 3, 3)), atol=1e-5)
    generator, read, memory = torch.Generator().manual_seed(3), [], start.memory
    with torch.no_grad():
        for place, tick in enumerate(imagine(model, start, LAGS[-1] + 1, generator)):
            with capture(model.policy, ("encoder_output",)) as layers:
                _, memory = soft_tick(model.policy, tick.view.observation, memory)
            read.append(layers["encoder_output"].double())
            if place == 0:
                state = torch.cat([memory.hidden[-1], memory.cell[-1]], dim=1).double()
            torch.rand(len(start), generator=generator)
    model.policy.memory.double()
    try:
        update = Update(model.policy)
        tangents = update.changed(layer, state, torch.from_numpy(own.patterns))
        for lag in range(1, LAGS[-1] + 1):
            state, tangents = update.push(state, read[lag], tangents)
            if lag in LAGS:
                moved = np.einsum("jbu,iu->bij", tangents[:, :, update.place(layer)].numpy(), own.read_outs)
                np.testing.assert_allclose(result[:, 1 + LAGS.index(lag)], moved, atol=2e-4)
    finally:
        model.policy.memory.float()


def test_signs_are_compared_with_correlations_in_each_behaviour_if_it_has_ticks(model, recorded) -> None:
    """Correlations are planted with the signs that the Jacobians have."""
    records = read_dump(recorded.dump, layers=[], columns=[], leave_out=("tile", "entity", "inventory", "tables"))
    places = zip(records.episode.tolist(), records.agent_id.tolist(), records.tick.tolist(), strict=True)
    label = {place: place[1] % 2 for place in places if place[2] % 3}

    def dynamics(r: np.ndarray) -> Dynamics:
        return Dynamics(probes("lstm_cell"), r, 0 * r, label, np.ones((5, 3, 3, 3)) + r[0], np.zeros(5, np.int64))

    parts = []
    for number, (start, result) in enumerate(labelled_starts(recorded.held_out(model), label, 60, 0)):
        jacobians, alive = world_jacobians(model, start, probes("lstm_cell"), (1, 2), number, through_world=True)
        parts.append((jacobians[alive], result[alive]))
    own = mean_jacobians(*(np.concatenate(one) for one in zip(*parts, strict=True)), 2)
    rows, compared = compare_jacobians(recorded.held_out(model), dynamics(own), 60, 10, 0)
    assert all(row["share"] == 1 for row in rows if row["side"] == "whole") and compared[0]["share"] == 1
    assert compared[0]["shuffled_components"] < 0.9
    sides = ("whole", "memory alone", "recorded inputs")
    assert [(row["side"], row["lag"]) for row in compared] == [(side, lag) for side in sides for lag in (1, 2)]
    assert {row["states"] for row in compared[:4]} == {compared[0]["states"]} and 0 < compared[0]["states"] <= 60
    assert 0 < compared[0]["through_world"] < 1 and np.isnan(compared[2]["through_world"])
    assert compared[4]["like_recorded"] == pytest.approx(1)
    r = np.ones((1, 2, 3, 3))
    nothing = Dynamics(probes("lstm_cell"), r, r, {}, np.ones((1, 2, 3, 3)), np.zeros(1, np.int64))
    assert_refuses("is in a behaviour of the run", compare_jacobians, recorded.held_out(model), nothing, 10, 10, 0)
    assert lags_up_to(10) == (1, 2, 4, 8) and lags_up_to(0) == ()
