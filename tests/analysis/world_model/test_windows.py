"""Windows cover every tick that can be predicted once; maps are divided, and simulations start on those held out."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump
from activation_store.records import Records
from activation_store.schema import METADATA_FILE
from agent_zoo.memory import MemoryState
from analysis.world_model.held_out import HeldOut, life_numbers
from analysis.world_model.imagination import bottleneck_start, imagine, informed_start, random_start, read_out
from analysis.world_model.model import HEADS
from analysis.world_model.simulation import TICKS, searched, value
from analysis.world_model.unroll import remember, unroll
from analysis.world_model.windows import CONTEXT, check_dump, maps_of_episodes, split_maps
from common.files import sha256
from tests.analysis.world_model.conftest import HORIZON
from tests.command import assert_refuses
from tests.planted_interventions import unit


def places_of(records: Records) -> list[tuple[int, ...]]:
    """Episode, agent and tick of each record."""
    return list(zip(records.episode.tolist(), records.agent_id.tolist(), records.tick.tolist(), strict=True))


def test_every_tick_after_the_context_is_predicted_once(recorded) -> None:
    predicted = []
    for batch in recorded.windows():
        for (episode, agent, tick), length in zip(batch.identity.tolist(), batch.lengths.tolist(), strict=True):
            assert CONTEXT < length <= CONTEXT + HORIZON
            predicted += [(episode, agent, tick + late) for late in range(CONTEXT, length)]
    everything = places_of(read_dump(recorded.dump, episodes=recorded.train))
    first = {(episode, agent): tick for episode, agent, tick in sorted(everything, reverse=True)}
    wanted = {item for item in everything if item[2] - first[item[0], item[1]] >= CONTEXT}
    assert len(predicted) == len(set(predicted)) and set(predicted) == wanted and len(wanted) > 500


def test_windows_hold_what_was_recorded(recorded) -> None:
    records = read_dump(recorded.dump, episodes=recorded.train)
    by_place = {place: index for index, place in enumerate(places_of(records))}
    batch = recorded.windows(seed=3)[1]
    for number in range(len(batch)):
        episode, agent, tick = batch.identity[number].tolist()
        late = int(batch.lengths[number]) - 1
        index = by_place[episode, agent, tick + late]
        np.testing.assert_array_equal(batch.hidden[number, late, 0], records.activations["lstm_hidden"][index])
        assert float(batch.reward[number, late]) == records.reward[index]
        assert bool(batch.ends[number, late]) == records.column("done")[index]
        there, scene = batch.at(late)
        place = there.tolist().index(number)
        np.testing.assert_array_equal(scene.material[place], records.tile[index][:, 2])


def test_the_policy_inside_remembers_what_it_remembered(recorded) -> None:
    """A real scene gives nearly the recorded memory: only entities are described less fully."""
    model, batch = recorded.model(), recorded.windows()[0]
    there, scene = batch.at(CONTEXT)
    soft = scene.soft(model.layout.materials)
    result = remember(model, soft, batch.around.take(there), batch.memory(CONTEXT - 1, there))
    wanted = batch.memory(CONTEXT, there)
    blind = remember(model, model.network.blank(len(there)), batch.around.take(there), batch.memory(CONTEXT - 1, there))

    def error(memory: MemoryState) -> float:
        return float((memory.cell - wanted.cell).square().mean())

    assert error(result) < 0.1 * error(blind)


def test_maps_are_divided(recorded) -> None:
    maps = {item["episode"]: item["map"] for item in recorded.metadata.episodes}
    trained, tested = ({maps[item] for item in part} for part in (recorded.train, recorded.test))
    assert trained and tested and not trained & tested
    one = replace(recorded.metadata, episodes=[{**item, "map": 3} for item in recorded.metadata.episodes])
    assert_refuses("on 1 map", split_maps, recorded.dump, one, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "json"}, "is a JSON dump"),
        ({"layers": {"encoder_output": 16, "lstm_hidden": 16}}, "lacks layer lstm_cell"),
        ({"checkpoint_sha256": "0" * 64}, "was recorded from a policy with hash 000000000000"),
        ({"unrecorded": ("reward",)}, "lacks rewards"),
    ],
)
def test_dumps_that_do_not_fit_are_refused(change, message, recorded) -> None:
    metadata = replace(recorded.metadata, **change)
    assert_refuses(message, check_dump, recorded.dump, metadata, recorded.policy, recorded.info, recorded.sha256)
    check_dump(recorded.dump, recorded.metadata, recorded.policy, recorded.info, recorded.sha256)


def test_ends_and_rewards_are_foreseen_without_the_tick_itself(recorded, monkeypatch) -> None:
    """The posterior sees only ticks that lives reach: read from it, an end would be known by its absence."""
    model = recorded.model()
    # Without deaths just after the predicted tick, whose cost follows from a state that has read the posterior.
    batch = next(item for item in recorded.windows(2, horizon=1) if not item.ends[:, CONTEXT].any())
    posterior = model.network.posterior_logits

    def costs(latent: int) -> Mapping[str, float]:
        """Unroll with a posterior that is sure of one class; the first is that of the last given tick, and stays."""
        calls = []

        def sure(hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
            calls.append(len(hidden))
            result = posterior(hidden, embedded)
            return result if len(calls) == 1 else torch.full_like(result, -99).index_fill(2, torch.tensor([latent]), 0)

        monkeypatch.setattr(model.network, "posterior_logits", sure)
        result = unroll(model, batch, torch.Generator().manual_seed(0)).costs
        assert len(calls) == 2
        return result

    plain, changed = costs(0), costs(1)
    for name in ("end", "reward"):
        assert changed[name] == pytest.approx(plain[name], rel=1e-6)
    assert changed["legal"] != pytest.approx(plain["legal"], rel=1e-6)


def test_all_parts_are_predicted_and_none_reaches_the_policys_weights(recorded) -> None:
    model, batch = recorded.model(), recorded.windows()[0]
    result = unroll(model, batch, torch.Generator().manual_seed(0))
    assert set(result.costs) == set(HEADS) and result.ticks == int((batch.lengths - CONTEXT).sum())
    result.loss.backward()
    assert all(parameter.grad is None for parameter in model.policy.parameters())
    idle = [name for name, item in model.network.named_parameters() if item.grad is None or not item.grad.any()]
    assert not [name for name in idle if not name.startswith(("paint.0", "spread", "say"))]


def test_the_training_dump_keeps_its_own_split_and_episodes_on_other_maps_of_another_are_new(recorded, model) -> None:
    own = recorded.origin(sha256(recorded.dump / METADATA_FILE))
    assert HeldOut.of(model, own, recorded.dump).origin is own
    maps = maps_of_episodes(recorded.metadata)
    origin = recorded.origin()
    result = HeldOut.of(model, origin, recorded.dump).origin
    assert result.test == tuple(episode for episode, number in maps.items() if number not in origin.train_maps)
    assert result.test and set(result.test) < set(maps) and not result.train
    assert (result.dump, result.dump_sha256) == (recorded.dump.name, sha256(recorded.dump / METADATA_FILE))
    seed, size = origin.world
    for world in ((seed + 1, size), (seed, size * 2)):  # maps of another seed or size are all new
        assert HeldOut.of(model, replace(origin, world=world), recorded.dump).origin.test == tuple(maps)


def test_dumps_on_which_no_simulation_can_start_are_refused(recorded, model, monkeypatch) -> None:
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
    for target in (value, read_out(unit(3, model.policy.policy.hidden_size, layer="lstm_cell"))):
        reached = []
        for one in (bottleneck_start(model, start.vector, around, None), searched(model, start, target)):
            torch.testing.assert_close(one.vector.norm(dim=1), torch.ones(len(one)))
            with torch.no_grad():
                ticks = [target(tick) for tick in imagine(model, one, TICKS, None)]
            reached.append(torch.stack(ticks).mean(dim=0).numpy())
        assert (reached[1] >= reached[0] - 1e-6).all() and (reached[1] > reached[0] + 1e-6).mean() > 0.5
        assert np.isfinite(reached).all()


def test_only_the_memory_can_be_searched() -> None:
    assert_refuses("one is a direction of encoder_output", read_out, unit(3, 16, layer="encoder_output"))
