"""Interpolated starts lie between recorded ones, and searched ones are better than those that they came from."""

import numpy as np
import pytest
import torch

from analysis.world_model.arms import TICKS, direction_target, searched, value
from analysis.world_model.held_out import life_numbers
from analysis.world_model.imagination import bottleneck_start, imagine, informed_start, random_start
from common.user_error import UserError
from tests.analysis.interventions.play.directions import unit
from tests.analysis.world_model.conftest import HORIZON

STEPS = 5


@pytest.mark.parametrize("kind", ["sphere", "gaussian"])
def test_interpolated_starts_are_on_the_way_between_recorded_ones(recorded, kind) -> None:
    model = recorded.model(kind)
    held_out = recorded.held_out(model)
    with torch.no_grad():
        found = list(held_out.starts("interpolate", 10 * STEPS, 7, STEPS))
        windows = next(held_out.windows(HORIZON, 7))
        ends = informed_start(model, windows, None).vector
    assert sum(len(life) for _, life in found) == 10 * STEPS
    start, life = found[0]
    vectors = start.vector.unflatten(0, (-1, STEPS))  # (ways, steps, dimensions)
    torch.testing.assert_close(vectors[:, 0], ends[: 2 * len(vectors) : 2], atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(vectors[:, -1], ends[1 : 2 * len(vectors) : 2], atol=1e-4, rtol=1e-3)
    assert life[::STEPS].tolist() == life_numbers(windows)[: 2 * len(vectors) : 2].tolist()
    steps = (vectors[:, 1:] - vectors[:, :-1]).norm(dim=2)
    torch.testing.assert_close(steps, steps[:, :1].expand_as(steps), atol=1e-3, rtol=1e-2)  # all of the same length
    if kind == "sphere":
        torch.testing.assert_close(vectors.norm(dim=2), torch.ones(vectors.shape[:2]))


@pytest.mark.slow
def test_searched_starts_have_more_of_what_was_searched(recorded) -> None:
    model = recorded.model()
    around = recorded.windows()[0].around
    start = random_start(model, around, torch.Generator().manual_seed(0))
    for target in (value, direction_target(unit(3, model.policy.policy.hidden_size, layer="lstm_cell"))):
        reached = []
        for each in (bottleneck_start(model, start.vector, around, None), searched(model, start, target)):
            torch.testing.assert_close(each.vector.norm(dim=1), torch.ones(len(each)))
            with torch.no_grad():
                ticks = [target(tick) for tick in imagine(model, each, TICKS, None)]
            reached.append(torch.stack(ticks).mean(dim=0).numpy())
        assert (reached[1] >= reached[0] - 1e-6).all() and (reached[1] > reached[0] + 1e-6).mean() > 0.5
        assert np.isfinite(reached).all()


def test_only_the_memory_can_be_searched() -> None:
    with pytest.raises(UserError, match="--maximise one: a direction of encoder_output"):
        direction_target(unit(3, 16, layer="encoder_output"))
