"""The agents compute what the original's agents compute, with the original's weights."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import run_with_layers
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.distribution import ILLEGAL, ActionDistribution
from agent_zoo.observation import ObservationLayout, PackedObservation, pack
from agent_zoo.original.file import read_original
from agent_zoo.original.weights import OriginalShape, original_layout, original_shape, policy_from_original
from tests.command import assert_refuses
from tests.original_networks import Original, random_weights

LAYERS = {"neurips23_start_kit": 1, "takeru": 0, "hybrid": 1, "yaofeng": 2}
UNITS, TASK = 12, 16
FIXTURES = Path(__file__).parents[4] / "shared" / "original"

Tensors = dict[str, torch.Tensor]


def tensors(agent: str) -> Tensors:
    return {name: torch.from_numpy(w) for name, w in random_weights(agent, UNITS, TASK, LAYERS[agent]).items()}


@pytest.fixture(scope="module")
def some(seen: np.ndarray) -> np.ndarray:
    """Observations with rows in every table that can be chosen, and with numbers that are rare in play."""
    legal = seen["ActionTargets"]
    able = (
        legal["Attack"]["Target"][:, :-1].any(axis=1), legal["Sell"]["InventoryItem"][:, :-1].any(axis=1),
        seen["Market"][:, 0, 0] != 0, seen["Inventory"][:, 1, 0] != 0, seen["Entity"][:, 2, 0] != 0,
    )  # fmt: skip
    few = seen[np.unique(np.concatenate([np.flatnonzero(such)[[0, -1]] for such in able]))].copy()
    few["ActionTargets"]["Buy"]["MarketItem"][:, :-1] = few["Market"][:, :, 0] != 0  # as if all were rich
    few["Inventory"][few["Inventory"][:, 0, 0] != 0, 0, 14] = 1  # equipped
    crowded = few["Entity"][:, 2, 0] != 0
    few["Entity"][crowded, 2, 8] = -300  # attacked by the 300th NPC
    few["Entity"][crowded, 1, 11] = 3_000  # gold
    return few


@pytest.mark.parametrize("agent", LAYERS)
def test_every_agent_computes_what_a_plain_restatement_says(agent: str, some: np.ndarray) -> None:
    given = tensors(agent)
    policy = policy_from_original(given).double()
    random = np.random.default_rng(1)
    before = random.standard_normal((2, LAYERS[agent], len(some), UNITS))
    observation = pack(some, policy.policy.layout)
    with torch.no_grad():
        memory = MemoryState(*(torch.from_numpy(part) for part in before))
        distribution, value, after, layers = run_with_layers(policy, observation, memory)
    original = Original(agent, {name: tensor.numpy() for name, tensor in given.items()})
    log_probabilities = distribution.log_probabilities
    open_choices = 0
    for place, one in enumerate(some):
        printed = original.tick(one, *before[:, :, place])
        close(layers["encoder_output"][place], printed.encoder_output)
        close(layers["action_decoder"][place], printed.decoder_input)
        close(value[place], printed.value)
        close(after.hidden[:, place], printed.hidden)
        close(after.cell[:, place], printed.cell)
        for number, head in enumerate(policy.policy.layout.heads):
            logits = torch.from_numpy(printed.logits[head.name])
            legal = logits > ILLEGAL / 2
            open_choices += int(legal.sum() > 1 and head.candidates is not None)
            close(log_probabilities[number][place][legal], logits.log_softmax(0)[legal].numpy())
    assert open_choices >= 5


def close(ours: torch.Tensor, text: np.ndarray | float) -> None:
    np.testing.assert_allclose(ours.numpy(), text, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("agent", LAYERS)
def test_an_agent_is_known_by_its_tensors_whatever_is_around_it(agent: str) -> None:
    whole = tensors(agent)
    shape = OriginalShape(agent, UNITS, LAYERS[agent], TASK)
    bare = {name.removeprefix("policy.policy.").removeprefix("policy."): tensor for name, tensor in whole.items()}
    assert original_shape(whole) == original_shape(bare) == shape
    reference = policy_from_original(whole).state_dict()
    half = {name: tensor.to(torch.bfloat16) for name, tensor in whole.items()}
    for given, exact in ((bare, True), ({f"policy.{k}": v for k, v in bare.items()}, True), (half, False)):
        made = policy_from_original(given).state_dict()
        assert made.keys() == reference.keys()
        for name, tensor in made.items():
            assert tensor.dtype == torch.float32
            assert torch.equal(tensor, reference[name] if exact else reference[name].to(torch.bfloat16).float()), name


def test_they_see_and_choose_what_the_game_shows_and_offers(layout: ObservationLayout) -> None:
    ours = original_layout(TASK)
    assert {**vars(ours), "map_side": 0} == {**vars(layout), "map_side": 0}  # the tests' maps are smaller
    assert original_layout(2_048).map_side == 160 and original_layout(2_048).task_size == 2_048


P = "policy.policy."
WRONG: list[tuple[str, Callable[[Tensors], object], str]] = [
    ("yaofeng", lambda t: t.update({f"{P}more.weight": torch.zeros(3)}), "it has the tensor more.weight"),
    ("yaofeng", lambda t: t.update({"other.weight": torch.zeros(3)}), "it has the tensor other.weight"),
    ("takeru", lambda t: t.pop(f"{P}market_encoder.fc.bias"), "it lacks the tensor market_encoder.fc.bias"),
    ("takeru", lambda t: t.pop(f"{P}value_head.weight"), "it lacks the tensor value_head.weight"),
    ("takeru", lambda t: t.clear(), "there is no tensor proj_fc.weight among its 0"),
    ("hybrid", lambda t: t.pop("policy.recurrent.bias_hh_l0"), "it lacks the tensor recurrent.bias_hh_l0"),
    ("hybrid", lambda t: t.update({f"{P}value_head.weight": torch.zeros(1, 24)}),
     "its encoder has 12 units and its memory 24"),
    ("hybrid", lambda t: t.update({f"{P}value_head.weight": torch.zeros(24)}), "has the shape (24,)"),
    ("hybrid", lambda t: t.update({f"{P}value_head.weight": torch.zeros(0, 1 << 40),
                                   f"{P}proj_fc.weight": torch.zeros(1 << 40, 0)}), "1,099,511,627,776 units"),
    ("takeru", lambda t: t.update({f"{P}value_head.weight": torch.zeros(1, 0),
                                   f"{P}proj_fc.weight": torch.zeros(0, 60)}), "its sizes, 0 units"),
    ("takeru", lambda t: t.update({f"{P}task_encoder.fc.weight": torch.zeros(0, 1 << 62)}), "tasks of 4,611,686"),
    ("yaofeng", lambda t: t.update({f"{P}value_head.weight": torch.zeros(1, 1 << 20),
                                    f"{P}proj_fc.weight": torch.zeros(1 << 20, 1)}), "another layout"),
    ("neurips23_start_kit", lambda t: t.update({f"{P}tile_encoder.tile_fc.weight": torch.zeros(12, 648)}),
     "its tensor tile_encoder.tile_fc.weight has the shape (12, 648), not (12, 968): it was trained in a game of "
     "another layout"),
    ("neurips23_start_kit", lambda t: t.update({f"{P}player_encoder.agent_fc.weight": torch.zeros(12, 31)}),
     "another layout"),
    ("neurips23_start_kit", lambda t: t[f"{P}proj_fc.bias"].fill_(float("nan")), "its tensor proj_fc.bias holds"),
    ("neurips23_start_kit", lambda t: t.update({f"{P}proj_fc.bias": torch.zeros(12, dtype=torch.int64)}),
     "its tensor proj_fc.bias holds"),
]  # fmt: skip


@pytest.mark.parametrize(("agent", "change", "message"), WRONG)
def test_what_is_no_agent_of_the_original_is_refused_in_one_line(
    agent: str, change: Callable[[Tensors], object], message: str
) -> None:
    given = tensors(agent)
    change(given)
    assert_refuses([message], policy_from_original, given)


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the original's checkpoints are not in the repository")
@pytest.mark.parametrize(
    "name", ["neurips23_start_kit_small", "takeru_small", "hybrid_small", "yaofeng_small", "takeru_full"]
)
def test_the_originals_checkpoints_give_the_originals_numbers(name: str) -> None:
    policy = policy_from_original(read_original(FIXTURES / "policies" / f"{name}.pt").tensors)
    with np.load(FIXTURES / "expected" / f"{name}.npz", allow_pickle=False) as file:
        expected = dict(file)
    ticks, agents = expected["in.AgentId"].shape[:2]
    memory = policy.initial_state(agents)
    largest: dict[str, list[tuple[np.floating, np.floating]]] = {}
    for tick in range(ticks):
        observation = observed(expected, tick, policy.policy.layout)
        with torch.no_grad():
            distribution, value, memory, layers = run_with_layers(policy, observation, memory)
        pairs = {
            "encoder_output": (layers["encoder_output"], "encoder_output"),
            "decoder_input": (layers["action_decoder"], "decoder_input"),
            "value": (value.unsqueeze(1), "value"),
            **({"h": (memory.hidden, "h"), "c": (memory.cell, "c")} if policy.layers else {}),
        }
        differences = {key: (ours, expected[f"out.{theirs}"][tick]) for key, (ours, theirs) in pairs.items()}
        differences["logits"] = logits(policy, distribution, expected, tick)
        for key, (ours, theirs) in differences.items():
            size = np.abs(expected[f"out.{key}"]).max() if key != "logits" else np.abs(theirs).max()
            largest.setdefault(key, []).append((np.abs(ours.numpy() - theirs).max(), size))
    shares = {key: float(max(d for d, _ in pairs) / max(s for _, s in pairs)) for key, pairs in largest.items()}
    print(f"{name}: largest difference as a share of the largest number:", shares)
    assert max(shares.values()) <= 1e-5


def logits(
    policy: RecurrentPolicy, distribution: ActionDistribution, expected: dict[str, np.ndarray], tick: int
) -> tuple[torch.Tensor, np.ndarray]:
    """Logits of all legal options where there is a choice, ours and theirs; the best option is the same."""
    ours, theirs = [], []
    for choices in distribution.choices:
        for row, (agent, head) in enumerate(zip(choices.agent.tolist(), choices.head.tolist(), strict=True)):
            legal = choices.logits[row] > ILLEGAL / 2
            option = torch.arange(len(legal)) if choices.option is None else choices.option[row]
            printed = expected[f"out.logits.{policy.policy.layout.heads[head].name}"][tick, agent]
            assert (printed > ILLEGAL / 2).sum() == legal.sum()
            ours.append(choices.logits[row][legal])
            theirs.append(printed[option[legal].numpy()])
            assert ours[-1].argmax() == theirs[-1].argmax()
    return torch.cat(ours), np.concatenate(theirs)


def observed(expected: dict[str, np.ndarray], tick: int, layout: ObservationLayout) -> PackedObservation:
    """Observations as the game gives them, of one tick."""
    tables = {name: expected[f"in.{name}"][tick] for name in ("Tile", "Entity", "Inventory", "Market", "Task")}
    tables |= {name: expected[f"in.{name}"][tick] for name in ("AgentId", "CurrentTick")}
    masks = {head.name: expected[f"in.mask.{head.name}"][tick] for head in layout.heads}
    actions: dict[str, list] = {}
    for name, mask in masks.items():
        action, argument = name.split(".")
        actions.setdefault(action, []).append((argument, np.int8, mask.shape[1:]))
    kinds = [(name, table.dtype, table.shape[1:]) for name, table in tables.items()]
    whole = np.zeros(len(tables["Tile"]), dtype=[*kinds, ("ActionTargets", list(actions.items()))])
    for name, table in tables.items():
        whole[name] = table
    for name, mask in masks.items():
        action, argument = name.split(".")
        whole["ActionTargets"][action][argument] = mask
    return pack(whole, layout)
