"""Windows cover every tick once, simulations start on maps held out, and trainings continue; also of two layers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from activation_store.reader import read_dump
from activation_store.records import Records
from activation_store.schema import METADATA_FILE
from agent_zoo.memory import MemoryState
from analysis.interventions.edits.edit_options import EditOptions
from analysis.world_model import unroll as unrolling
from analysis.world_model.derivatives import components_of
from analysis.world_model.findings import value_saliency
from analysis.world_model.held_out import HeldOut, life_numbers
from analysis.world_model.imagination import bottleneck_start, imagine, informed_start, random_start, read_out
from analysis.world_model.model import HEADS, WorldModel, load_model, save_model
from analysis.world_model.network import Prediction
from analysis.world_model.open_loop import open_loop
from analysis.world_model.options import WorldSettings
from analysis.world_model.simulation import TICKS, searched, value
from analysis.world_model.training import Metrics, Training, schedule
from analysis.world_model.unroll import remember, unroll
from analysis.world_model.windows import CONTEXT, Windows, check_dump, maps_of_episodes, split_maps
from common.files import sha256
from tests.analysis.world_model.conftest import HORIZON
from tests.analysis.world_model.test_edits import edits_of
from tests.command import assert_refuses, run_well
from tests.planted_interventions import unit
from tests.trained_world_model import arguments


def settings(records: int, seed: int = 0) -> WorldSettings:
    return WorldSettings(Path("dump"), records, learning_rate=1e-3, seed=seed)


def started(recorded, records: int, plan: str = "plan") -> Training:
    torch.manual_seed(0)
    return Training(recorded.model(), settings(records), plan)


class Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def batches(recorded) -> list[Windows]:
    return recorded.windows(batch=4)[:6]


def run(training: Training, batches: list[Windows], path: Path, stop_at: int | None = None) -> list[Metrics]:
    lines: list[Metrics] = []

    def on_line(line: Metrics) -> None:
        lines.append({name: one for name, one in line.items() if name != "samples_per_second"})

    def report(done: int, total: int) -> None:
        if stop_at is not None and done >= stop_at:
            raise Stopped

    def epochs(number: int) -> Iterator[Windows]:
        yield from batches if number % 2 == 0 else batches[::-1]

    ticks = iter(range(10**6))
    training.run(epochs, batches[:1], path, on_line, report, clock=lambda: 100.0 * next(ticks))
    return lines


def weights(model: WorldModel) -> dict[str, torch.Tensor]:
    return {name: one.clone() for name, one in model.network.state_dict().items()}


def test_an_interrupted_training_ends_with_the_same_weights(recorded, batches, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("analysis.world_model.training.REPORT_EVERY", 7)  # more than an epoch of six batches
    a_batch = int((batches[0].lengths - CONTEXT).sum())
    records = (7 + 4) * a_batch
    whole = started(recorded, records)
    lines = run(whole, batches, tmp_path / "whole")
    broken = started(recorded, records)
    with pytest.raises(Stopped):
        run(broken, batches, tmp_path / "broken", stop_at=(7 + 3) * a_batch)
    resumed = started(recorded, records)
    resumed.restore(tmp_path / "broken")
    assert 0 < resumed.progress.records < whole.progress.records and resumed.progress.lines == 1
    rest = run(resumed, batches, tmp_path / "broken")
    assert len(lines) == 2 and rest == lines[1:]
    assert resumed.progress == whole.progress
    for name, one in weights(whole.model).items():
        assert torch.equal(one, weights(resumed.model)[name]), name


def test_other_seeds_give_other_weights_and_other_states_are_refused(recorded, batches, tmp_path: Path) -> None:
    first, other = (Training(recorded.model(), settings(60, seed), "plan") for seed in (0, 1))
    for training in (first, other):
        run(training, batches, tmp_path / "state")
    assert not all(torch.equal(one, weights(other.model)[name]) for name, one in weights(first.model).items())
    shares = [schedule(done) for done in (0.0, 0.01, 0.3, 0.5, 0.75, 1.0)]
    assert shares[0] < shares[1] < shares[2] == shares[3] == 1 and shares[4:] == [0.5, 0.0]
    training = started(recorded, 60)
    training.save(tmp_path / "state")
    assert_refuses("other arguments or another dump", started(recorded, 60, "other").restore, tmp_path / "state")


def test_a_model_survives_its_file(recorded, tmp_path: Path) -> None:
    model = recorded.model("gaussian")
    origin = recorded.origin()
    save_model(tmp_path / "model.safetensors", model, origin)
    read, result = load_model(tmp_path / "model.safetensors")
    assert result == origin and read.network.kind == "gaussian" and read.network.sizes == model.network.sizes
    assert all(torch.equal(one, weights(read)[name]) for name, one in weights(model).items())
    for name, one in model.policy.state_dict().items():
        assert torch.equal(one, read.policy.state_dict()[name])
    assert not any(parameter.requires_grad for parameter in read.policy.parameters())
    assert_refuses("is a policy, but a world model is needed", load_model, recorded.policies / "small.safetensors")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_windows_are_foreseen_without_the_posterior(recorded, batches, monkeypatch, share: float) -> None:
    """What later ticks show reaches the latent states of the other windows alone."""
    monkeypatch.setattr(unrolling, "FORESEEN", share)
    model = recorded.model()
    requested = []
    looked = model.network.posterior_logits

    def posterior_logits(hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        requested.append(len(hidden))
        return looked(hidden, embedded)

    monkeypatch.setattr(model.network, "posterior_logits", posterior_logits)
    windows = batches[0]
    result = unrolling.unroll(model, windows, torch.Generator().manual_seed(0))
    predicted = int((windows.lengths - CONTEXT).sum())
    first, later = requested[0], sum(requested[1:])
    assert first == len(windows) and result.ticks == predicted and result.loss.isfinite()
    assert later == {0.0: predicted, 1.0: 0}.get(share, later) and (0 < later < predicted) == (share == 0.5)
    assert (result.divergence > 0) == (share < 1)


def places_of(records: Records) -> list[tuple[int, ...]]:
    """Episode, agent and tick of each record."""
    return list(zip(records.episode.tolist(), records.agent_id.tolist(), records.tick.tolist(), strict=True))


def test_every_tick_is_predicted_once_from_what_was_recorded(recorded) -> None:
    predicted = []
    for batch in recorded.windows():
        for (episode, agent, tick), length in zip(batch.identity.tolist(), batch.lengths.tolist(), strict=True):
            assert CONTEXT < length <= CONTEXT + HORIZON
            predicted += [(episode, agent, tick + late) for late in range(CONTEXT, length)]
    records = read_dump(recorded.dump, episodes=recorded.train)
    everything = places_of(records)
    first = {(episode, agent): tick for episode, agent, tick in sorted(everything, reverse=True)}
    wanted = {item for item in everything if item[2] - first[item[0], item[1]] >= CONTEXT}
    assert len(predicted) == len(set(predicted)) and set(predicted) == wanted and len(wanted) > 500
    by_place = {place: index for index, place in enumerate(everything)}
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


def test_maps_are_divided_and_dumps_that_do_not_fit_are_refused(recorded) -> None:
    maps = {item["episode"]: item["map"] for item in recorded.metadata.episodes}
    trained, tested = ({maps[item] for item in part} for part in (recorded.train, recorded.test))
    assert trained and tested and not trained & tested
    one = replace(recorded.metadata, episodes=[{**item, "map": 3} for item in recorded.metadata.episodes])
    assert_refuses("on 1 map", split_maps, recorded.dump, one, 0)
    about = (recorded.policy, recorded.info, recorded.sha256)
    check_dump(recorded.dump, recorded.metadata, *about)
    for change, message in (
        ({"format": "json"}, "is a JSON dump"),
        ({"layers": {"encoder_output": 16, "lstm_hidden": 16}}, "lacks layer lstm_cell"),
        ({"checkpoint_sha256": "0" * 64}, "was recorded from a policy with hash 000000000000"),
        ({"unrecorded": ("reward",)}, "lacks rewards"),
    ):
        assert_refuses(message, check_dump, recorded.dump, replace(recorded.metadata, **change), *about)


def test_ends_and_rewards_are_foreseen_without_the_tick_itself(recorded, monkeypatch) -> None:
    """The posterior sees only ticks that lives reach: read from it, an end would be known by its absence."""
    model, (batch, *_) = recorded.model(), recorded.windows(2, horizon=1)
    posterior, outcome = model.network.posterior_logits, model.network.outcome

    def costs(latent: int) -> tuple[Mapping[str, float], list[torch.Tensor]]:
        """Unroll with a posterior that is sure of one class; the first is that of the last given tick, and stays.

        Returns costs, and what was said of the reward and the end of each tick.
        """
        calls, said = [], list[torch.Tensor]()

        def sure(hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
            calls.append(len(hidden))
            result = posterior(hidden, embedded)
            return result if len(calls) == 1 else torch.full_like(result, -99).index_fill(2, torch.tensor([latent]), 0)

        def heard(*of: Any) -> tuple[torch.Tensor, torch.Tensor]:
            said.append(torch.stack(outcome(*of)))
            return outcome(*of)

        monkeypatch.setattr(model.network, "posterior_logits", sure)
        monkeypatch.setattr(model.network, "outcome", heard)
        result = unroll(model, batch, torch.Generator().manual_seed(0)).costs
        assert len(calls) == len(said) == 2
        return result, said

    (plain, said), (changed, again) = costs(0), costs(1)
    torch.testing.assert_close(again[0], said[0])
    assert not torch.allclose(again[1], said[1]), "what follows from the tick may hang on what it showed"
    assert changed["legal"] != pytest.approx(plain["legal"], rel=1e-6)


def test_no_end_is_known_by_how_long_ago_the_context_was(recorded) -> None:
    """At each distance, lives end as often as they do, so a model that knows nothing else does not foresee them."""
    model, ended, wanted = recorded.model(), [], []
    told = model.network.decode
    for windows in recorded.windows(batch=64):
        ticks = iter(range(CONTEXT, windows.ticks + 1))

        def decode(*of: Any, ticks: Iterator[int] = ticks, **how: Any) -> Prediction:
            result = told(*of, **how)
            return replace(result, end=torch.full_like(result.end, float(next(ticks))))

        model.network.decode = decode  # type: ignore[method-assign]
        ended += [errors.ended for errors in open_loop(model, windows, 0)]
        for length, over in zip(windows.lengths.tolist(), windows.ends, strict=True):
            asked = range(CONTEXT + 1, length + (length == windows.ticks or over[length - 1] > 0))
            wanted += [(tick, float(over[tick - 1])) for tick in asked]
    probability, over = np.concatenate(ended).T
    tick = np.log(probability.astype(np.float64) / (1 - probability.astype(np.float64))).round()
    assert sorted(zip(tick.tolist(), over.tolist(), strict=True)) == sorted(wanted)
    assert set(tick) == set(range(CONTEXT + 1, CONTEXT + HORIZON + 1)) and over.any()
    assert all(over[tick == late].mean() < 0.5 for late in set(tick))


def test_ends_cost_at_all_distances_alike(recorded, batches) -> None:
    """In the tick after a window, a life that goes on costs as much as one that ends there, where neither is likely."""
    model, windows = recorded.model(), batches[0]
    full = windows.lengths == windows.ticks
    assert full.any() and not windows.ends[full, -1].all()
    costs = {}
    for ends in (0.0, 1.0):
        every = torch.where(full.unsqueeze(1), torch.zeros_like(windows.ends), windows.ends)
        every[full, -1] = ends
        costs[ends] = unroll(model, replace(windows, ends=every), torch.Generator().manual_seed(0)).costs["end"]
    ended = int((full | (windows.ends.sum(dim=1) > 0)).sum())
    asked = int((windows.lengths - CONTEXT - 1).sum()) + ended
    logit = -3.0
    wanted = float(full.sum()) * logit / asked  # one that ends costs its logit less
    assert costs[0.0] - costs[1.0] == pytest.approx(wanted, rel=0.1)


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
    assert_refuses("one is a direction of encoder_output", read_out, unit(3, 16, layer="encoder_output"))


UNITS = 16
STATES = [name for kind in (LSTM_HIDDEN, LSTM_CELL) for name in memory_names(kind, 2)]


@pytest.fixture(scope="module")
def deep_model(recorded_two_layers) -> WorldModel:
    return recorded_two_layers.model()


def test_windows_hold_the_states_of_both_layers(recorded_two_layers) -> None:
    records = read_dump(recorded_two_layers.dump, layers=STATES)
    place = {key: row for row, key in enumerate(zip(records.episode, records.agent_id, records.tick, strict=True))}
    windows = recorded_two_layers.windows()[0]
    memory = windows.memory(CONTEXT - 1)
    assert memory.hidden.shape == memory.cell.shape == (2, len(windows), UNITS)
    for window, (episode, agent, tick) in enumerate(windows.identity.tolist()):
        row = place[episode, agent, tick + CONTEXT - 1]
        states = [*memory.hidden[:, window], *memory.cell[:, window]]
        for name, state in zip(STATES, states, strict=True):
            np.testing.assert_array_equal(state, records.activations[name][row])


@torch.no_grad()
def test_two_layers_begin_as_recorded_and_the_first_can_be_edited(deep_model, recorded_two_layers) -> None:
    windows = recorded_two_layers.windows()[0]
    start = informed_start(deep_model, windows, torch.Generator().manual_seed(1))
    (tick,) = imagine(deep_model, start, 1, torch.Generator().manual_seed(2))
    torch.testing.assert_close(tick.memory.hidden, windows.memory(CONTEXT - 1).hidden, atol=0.02, rtol=0)
    seen = remember(deep_model, start.scene, windows.around, start.memory)
    torch.testing.assert_close(seen.cell, tick.memory.cell)
    shares = value_saliency(deep_model, start.scene, windows.around, start.memory)
    assert shares["share of the value's saliency: memory"][:, 0].min() > 0
    start = informed_start(deep_model, windows, torch.Generator().manual_seed(1))
    direction = unit(1, UNITS, "ic_1", "lstm_cell_1")
    collapse = EditOptions(edit="collapse", direction="ic_1", change=True)
    (edits,) = edits_of(deep_model, recorded_two_layers, [direction], collapse)
    (tick,) = imagine(deep_model, start, 1, torch.Generator().manual_seed(2), (), edits)
    along = torch.tensor(np.asarray(direction.weight), dtype=torch.float32)
    torch.testing.assert_close(tick.memory.cell[0] @ along, start.memory.cell[0] @ along, atol=1e-5, rtol=0)


def test_two_layers_are_taken_apart_saved_and_come_back(
    recorded_two_layers, deep_model: WorldModel, tmp_path: Path
) -> None:
    chosen = [unit(1, UNITS, f"ic_{number}", name) for number, name in enumerate((STATES[2], STATES[1]), 1)]
    names, patterns = components_of(recorded_two_layers.held_out(deep_model), chosen)
    assert names == ("ic_1", "ic_2") and sorted(patterns) == sorted(STATES)
    assert all(pattern.shape == (2, UNITS) for pattern in patterns.values())
    save_model(tmp_path / "deep_model.safetensors", deep_model, recorded_two_layers.origin())
    loaded, _ = load_model(tmp_path / "deep_model.safetensors")
    vector = torch.randn(3, deep_model.network.sizes.bottleneck)
    memory = loaded.network.start(vector)[1]
    assert memory.hidden.shape == (2, 3, UNITS)
    torch.testing.assert_close(memory.cell, deep_model.network.start(vector)[1].cell)


@pytest.mark.slow
def test_one_is_trained_and_simulated(recorded_two_layers, tmp_path: Path) -> None:
    run_well("train_world_model.py", *arguments(recorded_two_layers, tmp_path / "models"))
    (trained,) = (tmp_path / "models").iterdir()
    run_well("simulate.py", trained, "-n", 20, "--ticks", 3, "--dump", recorded_two_layers.dump, "-o", tmp_path / "out")
    (simulated,) = (tmp_path / "out").iterdir()
    assert {*STATES, "world_hidden"} < read_dump(simulated).activations.keys()
