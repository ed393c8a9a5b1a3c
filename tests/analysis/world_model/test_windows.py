"""Windows cover every tick that can be predicted once, and maps are divided."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump
from agent_zoo.memories.memory import MemoryState
from analysis.world_model.model import HEADS
from analysis.world_model.unroll import remember, unroll
from analysis.world_model.windows import CONTEXT, check_dump, split_maps
from tests.analysis.world_model.conftest import HORIZON
from tests.command import assert_refuses


def test_every_tick_after_the_context_is_predicted_once(recorded) -> None:
    predicted = []
    for batch in recorded.windows():
        for (episode, agent, tick), length in zip(batch.identity.tolist(), batch.lengths.tolist(), strict=True):
            assert CONTEXT < length <= CONTEXT + HORIZON
            predicted += [(episode, agent, tick + late) for late in range(CONTEXT, length)]
    records = read_dump(recorded.dump, episodes=recorded.train)
    everything = set(zip(records.episode.tolist(), records.agent_id.tolist(), records.tick.tolist(), strict=True))
    first = {(episode, agent): 10**6 for episode, agent, _ in everything}
    for episode, agent, tick in everything:
        first[episode, agent] = min(first[episode, agent], tick)
    wanted = {item for item in everything if item[2] - first[item[0], item[1]] >= CONTEXT}
    assert len(predicted) == len(set(predicted)) and set(predicted) == wanted and len(wanted) > 500


def test_windows_hold_what_was_recorded(recorded) -> None:
    records = read_dump(recorded.dump, episodes=recorded.train)
    by_place = {
        item: index
        for index, item in enumerate(
            zip(records.episode.tolist(), records.agent_id.tolist(), records.tick.tolist(), strict=True)
        )
    }
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
