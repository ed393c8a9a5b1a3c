"""Which episodes are on maps that a model has not seen, and where simulations start: recorded, between, searched."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from activation_store.schema import METADATA_FILE
from analysis.world_model.arms import TICKS, direction_target, searched, value
from analysis.world_model.held_out import HeldOut, life_numbers
from analysis.world_model.imagination import bottleneck_start, imagine, informed_start, random_start
from analysis.world_model.windows import maps_of_episodes
from common.files import sha256
from tests.analysis.interventions.play.directions import unit
from tests.analysis.world_model.conftest import HORIZON
from tests.command import assert_refuses


def test_the_training_dump_keeps_its_own_split(recorded, model) -> None:
    origin = recorded.origin(sha256(recorded.dump / METADATA_FILE))
    assert HeldOut.of(model, origin, recorded.dump).origin is origin


def test_episodes_on_other_maps_of_another_dump_are_new(recorded, model) -> None:
    maps = maps_of_episodes(recorded.metadata)
    origin = recorded.origin()
    result = HeldOut.of(model, origin, recorded.dump).origin
    assert result.test == tuple(episode for episode, number in maps.items() if number not in origin.train_maps)
    assert result.test and set(result.test) < set(maps) and not result.train
    assert (result.dump, result.dump_sha256) == (recorded.dump.name, sha256(recorded.dump / METADATA_FILE))


def test_maps_of_another_seed_or_size_are_all_new(recorded, model) -> None:
    seed, size = recorded.origin().world
    for world in ((seed + 1, size), (seed, size * 2)):
        result = HeldOut.of(model, replace(recorded.origin(), world=world), recorded.dump).origin
        assert result.test == tuple(maps_of_episodes(recorded.metadata))


def test_dumps_that_do_not_fit_are_refused(recorded, model, monkeypatch) -> None:
    every = tuple(sorted(number for number in maps_of_episodes(recorded.metadata).values() if number is not None))
    origin = recorded.origin()
    for metadata, of, says in (
        (recorded.metadata, replace(origin, train_maps=every), "no episode on a map"),
        (recorded.metadata, replace(origin, policy_sha256="b" * 64), "give a dump of that policy"),
        (replace(recorded.metadata, layers={"lstm_hidden": 16}), origin, "lacks layer"),
        (replace(recorded.metadata, origin="simulated", world_model_sha256="c" * 64), origin, "simulated lives"),
    ):
        monkeypatch.setattr("analysis.world_model.held_out.read_metadata", lambda _, own=metadata: own)
        assert_refuses(says, HeldOut.of, model, of, recorded.dump)


STEPS = 5


@pytest.mark.parametrize("kind", ["sphere", "gaussian"])
def test_interpolated_starts_are_on_the_way_between_recorded_ones(recorded, kind) -> None:
    model = recorded.model(kind)
    held_out = recorded.held_out(model)
    with torch.no_grad():
        result = list(held_out.starts("interpolate", 10 * STEPS, 7, STEPS))
        windows = next(held_out.windows(HORIZON, 7))
        ends = informed_start(model, windows, None).vector
    assert sum(len(starts.life) for starts in result) == 10 * STEPS
    start, life, ticks = result[0]
    assert ticks is None
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
        for one in (bottleneck_start(model, start.vector, around, None), searched(model, start, target)):
            torch.testing.assert_close(one.vector.norm(dim=1), torch.ones(len(one)))
            with torch.no_grad():
                ticks = [target(tick) for tick in imagine(model, one, TICKS, None)]
            reached.append(torch.stack(ticks).mean(dim=0).numpy())
        assert (reached[1] >= reached[0] - 1e-6).all() and (reached[1] > reached[0] + 1e-6).mean() > 0.5
        assert np.isfinite(reached).all()


def test_only_the_memory_can_be_searched() -> None:
    assert_refuses("one is a direction of encoder_output", direction_target, unit(3, 16, layer="encoder_output"))
