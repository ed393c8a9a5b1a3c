"""Attribution: inputs are exact, planted importance is found alone, sums are complete, and checks catch nonsense."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

import agent_zoo
from activation_store.directions import Direction, Directions, Source
from activation_store.lives import number_lives
from activation_store.reader import read_identity, read_metadata
from activation_store.schema import LIFE_KEY, DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import build_untrained, load_checkpoint
from agent_zoo.network_parts.layers import own_rows
from agent_zoo.observation import legal_options, pack, packed_options
from agent_zoo.semantic_module import SemanticShape
from analysis.attribution.methods import Maps, attribute, average_baseline, counterfactual_materials, play, without_row
from analysis.attribution.sanity import Sanity, check_maps
from analysis.attribution.settings import Method, SaliencySettings
from analysis.attribution.targets import Outcome, Target, chosen_components, fitted_components, target_named
from analysis.attribution.windows import (
    Differentiable,
    LifeWindows,
    by_column,
    check_agent,
    read_samples,
    soft_inputs,
    softened,
)
from tests.command import assert_refuses
from tests.recorded_policy import RecordedPolicy, record_policy

CLOSE = {"atol": 1e-5, "rtol": 1e-4}
TICKS, COUNT = 3, 12
PLACE = 97  # a tile some way from the middle
METHODS: tuple[Method, ...] = ("gradient", "integrated", "smooth", "occlusion")
UNITS = 16
SOURCE = Source("independent component", "run", "dump", "small", "a" * 64)


def direction(name: str, weight: np.ndarray, layer: str = "lstm_cell") -> Direction:
    return Direction(name, layer, weight.astype(np.float32), 0.0, "x", 0.0, 1.0, 9, 3, 1, SOURCE)


def assert_complete(maps: Maps) -> None:
    """All parts add up to the change of the target but for the error; components are no further part."""
    parts = (maps["tiles"], maps["entities"], maps["own"], maps["inventory"], maps["task"], maps["memory"])
    total = sum(one.flatten(1).sum(dim=1) for one in parts)
    np.testing.assert_allclose((total - maps["change"]).numpy(), maps["error"].numpy(), atol=1e-5)


def by(method: Method, **options: object) -> SaliencySettings:
    given = {"steps": 32, "copies": 4, "noise": 0.01, "seed": 0, **options}
    return SaliencySettings(Path("dump"), method=method, **given)  # type: ignore[arg-type]


def policy_and_windows(recorded: RecordedPolicy, ticks: int = TICKS) -> tuple[RecurrentPolicy, LifeWindows, np.ndarray]:
    """Windows of two samples, and the recorded values."""
    policy, info = load_checkpoint(recorded.checkpoint)
    policy.requires_grad_(False)
    settings = SaliencySettings(recorded.dump, samples=2, ticks=COUNT // 2, lags=ticks - 1, seed=3)
    samples = read_samples(settings, read_metadata(recorded.dump), policy, lambda _: None)
    windows = LifeWindows.concatenate([sample.windows(policy, info.layout, ticks) for sample in samples])
    return policy, windows, np.concatenate([sample.shown.value for sample in samples])


@pytest.mark.parametrize("agent", ["neurips23_start_kit", "yaofeng", "hybrid"])
def test_soft_inputs_stand_for_observations_exactly(agent, seen, layout) -> None:
    torch.manual_seed(0)
    module = agent_zoo.load(agent)
    policy = module.Recurrent(module.Policy(layout, hidden_size=16)).requires_grad_(False)
    check_agent(policy)
    observation = pack(seen[:40], layout)
    with softened(policy, observation, soft_inputs(policy, observation)) as shown:
        encoded, candidates = policy.encode(shown)
    expected, keys = policy.encode(observation)
    torch.testing.assert_close(encoded, expected, **CLOSE)
    for table in keys.keys:
        torch.testing.assert_close(candidates.keys[table], keys.keys[table], **CLOSE)


@pytest.mark.parametrize("method", ["gradient", "integrated", "smooth"])
@pytest.mark.parametrize("agent", ["takeru", "hybrid", "yaofeng"])
def test_what_the_target_does_not_depend_on_gets_nothing(agent: str, method: Method, seen, layout) -> None:
    """The values of these agents do not depend on others in view."""
    torch.manual_seed(0)
    module = agent_zoo.load(agent)
    policy = module.Recurrent(module.Policy(layout, hidden_size=16)).requires_grad_(False)
    observation = pack(seen[:8], layout)
    windows = LifeWindows(observation, 1, policy.initial_state(8), torch.zeros(8, len(layout.heads), dtype=torch.int64))
    maps = attribute(by(method), policy, windows, Target(), average_baseline(policy, windows))
    assert maps["tiles"].any() and not maps["entities"].any()


@pytest.mark.parametrize("ticks", [1, TICKS])
def test_windows_play_what_was_recorded(recorded: RecordedPolicy, ticks: int) -> None:
    policy, windows, value = policy_and_windows(recorded, ticks)
    function = Differentiable(policy, windows, Target())
    result = function(*function.inputs(), torch.arange(COUNT))
    np.testing.assert_allclose(result.detach().numpy(), value, **CLOSE)
    alone = windows.last(policy)
    np.testing.assert_allclose(play(policy, alone, alone.observation, Target()).numpy(), value, **CLOSE)


def test_no_window_begins_with_a_simulated_life_whose_memory_is_not_in_the_dump(recorded: RecordedPolicy) -> None:
    """Lives of the game begin with an empty memory; simulated ones go on from one."""
    policy, _ = load_checkpoint(recorded.checkpoint)
    metadata = read_metadata(recorded.dump)
    longest = int(np.bincount(number_lives(read_identity(recorded.dump))[1]).max())
    settings = SaliencySettings(recorded.dump, samples=1, ticks=longest - 2, lags=1)

    def memory_is_there(of: DumpMetadata, starts: dict[tuple[int, ...], list[int]] | None = None) -> set[bool]:
        every = [read_samples(replace(settings, seed=s), of, policy, lambda _: None, starts=starts) for s in range(9)]
        return {sample.lead == settings.window for (sample,) in every}

    simulated = replace(metadata, origin="simulated", world_model_sha256="0" * 64)
    assert memory_is_there(metadata) == {True, False} and memory_is_there(simulated) == {True}
    (sample,) = read_samples(settings, metadata, policy, lambda _: None)
    life = tuple(int(getattr(sample.records, name)[0]) for name in LIFE_KEY)
    assert memory_is_there(metadata, {life: [1]}) == {False} and memory_is_there(simulated, {life: [1, 2]}) == {True}
    settings = replace(settings, ticks=longest - 1)
    assert memory_is_there(metadata) == {False}
    assert_refuses(f"has 0 lives of {longest + 1} ticks", read_samples, settings, simulated, policy, lambda _: None)


def test_integrated_gradients_are_complete_and_smoothed_ones_are_gradients(
    recorded: RecordedPolicy,
) -> None:
    policy, windows, _ = policy_and_windows(recorded)
    baseline = average_baseline(policy, windows)
    maps = attribute(by("integrated"), policy, windows, Target(), baseline)
    assert_complete(maps)
    assert (maps["error"].abs() < 0.05 * maps["change"].abs().clamp(min=1e-3)).float().mean() > 0.8
    policy, windows, _ = policy_and_windows(recorded, 1)
    baseline = average_baseline(policy, windows)
    plain = attribute(by("gradient"), policy, windows, Target(), baseline)
    smooth = attribute(by("smooth", noise=1e-7), policy, windows, Target(), baseline)
    np.testing.assert_allclose(smooth["tiles"].numpy(), plain["tiles"].numpy(), atol=1e-5)
    np.testing.assert_allclose(smooth["memory"].numpy(), plain["memory"].numpy(), atol=1e-5)


@torch.no_grad()
def planted(policy: RecurrentPolicy) -> RecurrentPolicy:
    """A policy whose move north depends on one tile alone.

    The first convolution passes one number of the material at the middle of its kernel, the second one passes it on,
    the linear layer reads it at one place, the projection and the memory carry it, and the action head reads it.
    """
    encoder = policy.policy
    for parameter in policy.parameters():
        parameter.zero_()
    encoder.material.weight[:, 0] = torch.linspace(1.0, 2.0, len(encoder.material.weight))
    place_units = encoder.tile_convolution.place_units
    encoder.tile_convolution.convolution.weight[0, place_units, 1, 1] = 1.0
    second, linear = encoder.tile_encoder[1], encoder.tile_encoder[4]
    second.weight[0, 0, 1, 1] = 1.0
    side = encoder.tile_convolution.side
    row, column = divmod(PLACE, side)
    linear.weight[0, (row - 2) * (side - 4) + column - 2] = 1.0
    encoder.projection.weight[0, 0] = 1.0
    units = encoder.hidden_size
    policy.lstm.weight_ih_l0[2 * units, 0] = 1.0
    policy.lstm.bias_ih_l0[:units] = policy.lstm.bias_ih_l0[3 * units :] = 8.0
    encoder.action_decoder.heads["Move_Direction"].weight[0, 0] = 1.0
    return policy


@pytest.mark.parametrize("method", METHODS)
def test_a_move_that_depends_on_one_tile_marks_it_alone(recorded: RecordedPolicy, method: Method) -> None:
    policy, windows, _ = policy_and_windows(recorded, 1)
    policy = planted(policy)
    _, info = load_checkpoint(recorded.checkpoint)
    # Another's logits stay 0: the difference is the planted logit. Heads that choose among rows stay as they are: an
    # option without a row cannot be legal.
    free = windows.observation
    legal = legal_options(free, info.layout)
    moves = [head.name for head in info.layout.heads].index("Move.Direction")
    legal.split([head.size for head in info.layout.heads], dim=1)[moves][:] = True
    windows = replace(windows, observation=replace(free, legal=packed_options(legal)))
    target = target_named("Move.Direction:north-south", info.layout, policy, None, "")
    maps = attribute(by(method), policy, windows, target, average_baseline(policy, windows))
    others = np.delete(maps["tiles"][:, 0].numpy(), PLACE, axis=1)
    assert np.abs(others).max() < 1e-5
    assert np.abs(maps["tiles"][:, 0, PLACE].numpy()).max() > 1e-2
    assert np.abs(np.nan_to_num(maps["entities"].numpy())).max() < 1e-5


@pytest.fixture(scope="module")
def planted_and_twins(recorded: RecordedPolicy) -> tuple[RecurrentPolicy, LifeWindows, list[RecurrentPolicy]]:
    """A policy whose value goes up with the materials of half of the tiles and down with the others', and twins."""
    policy, windows, _ = policy_and_windows(recorded, 1)
    policy = planted(policy)
    policy.policy.critic.weight.data[0, 0] = 1.0
    linear = policy.policy.tile_encoder[4]
    places = (policy.policy.tile_convolution.side - 4) ** 2
    up = torch.randperm(places, generator=torch.Generator().manual_seed(0)) % 2
    linear.weight.data[0, :places] = 0.04 * up - 0.02
    linear.bias.data[0] = 0.4
    _, info = load_checkpoint(recorded.checkpoint)
    return policy, windows, [build_untrained(info, seed).requires_grad_(False) for seed in range(4)]


def test_a_planted_map_passes_the_checks_and_other_maps_fail(planted_and_twins) -> None:
    policy, windows, twins = planted_and_twins
    sample, baseline = np.repeat(np.arange(6), 2), average_baseline(policy, windows)

    known: dict[bytes, Maps] = {}

    def again(other: RecurrentPolicy) -> Maps:
        weights = torch.cat([weight.flatten() for weight in other.parameters()]).numpy().tobytes()
        if weights not in known:  # the checks of any map shuffle the policy in the same ways
            known[weights] = attribute(by("occlusion"), other, windows, Target(), baseline)
        return known[weights]

    def checked(maps: Maps, remade: Callable[[RecurrentPolicy], Maps] = again) -> Sanity:
        maps_of = lambda other: maps if other is policy else remade(other)  # noqa: E731
        return check_maps(policy, windows, Target(), maps_of, sample, twins[:3], 0)

    sanity = checked(again(policy))
    assert sanity.failures() == []
    stages = ["heads and critic shuffled", "heads, critic and memory shuffled", "all weights shuffled"]
    assert [check.of for check in sanity.alike] == ["untrained twins", *stages]
    assert "beat simpler ones" in "".join(checked(again(twins[3])).failures())
    generator = torch.Generator().manual_seed(1)
    ones, tiles = torch.ones(COUNT), torch.randn(COUNT, 1, 225, generator=generator)
    noise = {**again(policy), "tiles": tiles, "error": ones, "change": ones}
    nonsense = checked(noise, lambda _: noise)
    assert not any(check.passed for check in nonsense.alike) and len(nonsense.failures()) == 3
    assert "do not add up" in nonsense.failures()[-1]


def test_weights_that_the_target_does_not_read_are_not_shuffled_for_a_check(planted_and_twins) -> None:
    policy, windows, twins = planted_and_twins
    target = Target("x", direction=direction("x", np.ones(UNITS)))
    maps = attribute(by("occlusion"), policy, windows, target, average_baseline(policy, windows))
    sanity = check_maps(policy, windows, target, lambda _: maps, np.repeat(np.arange(6), 2), twins[:1], 0)
    stages = ["heads, critic and memory shuffled", "all weights shuffled"]
    assert [check.of for check in sanity.alike] == ["untrained twins", *stages]


def test_gradients_are_those_of_finite_differences(recorded: RecordedPolicy) -> None:
    policy, windows, _ = policy_and_windows(recorded)
    policy.double()
    function = Differentiable(policy, windows, Target())
    inputs = tuple(part.double().detach().requires_grad_(True) for part in function.inputs())
    index = torch.arange(COUNT)
    gradients = torch.autograd.grad(function(*inputs, index).sum(), inputs, allow_unused=True)
    for number, (name, gradient) in enumerate(zip(function.names, gradients, strict=True)):
        if gradient is None or not gradient.numel():
            continue
        direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        if name == "entities":
            direction = direction * 0.01  # own rows are read twice, here once
        step = 1e-6
        ends = []
        for sign in (1, -1):
            moved = list(inputs)
            moved[number] = inputs[number] + sign * step * direction
            ends.append(function(*moved, index).sum().detach())
        expected = float((ends[0] - ends[1]) / (2 * step))
        np.testing.assert_allclose(float((gradient * direction).sum()), expected, rtol=1e-3, atol=1e-6)


def test_columns_add_up_to_features_and_a_removed_row_takes_its_option_along(
    recorded: RecordedPolicy,
) -> None:
    policy, windows, _ = policy_and_windows(recorded, 1)
    features = policy.policy.entity_features
    values = features(own_rows(windows.observation))
    result = by_column(features, values)
    assert result.shape[1] == len(policy.policy.layout.entity_columns)
    torch.testing.assert_close(result.sum(dim=1), values.sum(dim=1))
    health = policy.policy.layout.entity_columns.index("health")
    torch.testing.assert_close(result[:, health], own_rows(windows.observation)[:, health].float())
    layout, observation = policy.policy.layout, windows.observation
    row = (observation.entity.counts - 1).clamp(min=0)
    removed = without_row(observation, "entity", row, layout)
    assert (removed.entity.counts == observation.entity.counts - 1).all()
    sizes = [head.size for head in layout.heads]
    before, after = (legal_options(one, layout).split(sizes, dim=1) for one in (observation, removed))
    for number, head in enumerate(layout.heads):
        if head.candidates != "entity":
            assert torch.equal(before[number], after[number])
            continue
        for agent in range(COUNT):
            kept = [option for option in range(head.size - 1) if option != row[agent]]
            assert torch.equal(after[number][agent, : len(kept)], before[number][agent, kept])
        assert after[number].any(dim=1).all()


def test_counterfactual_tiles_are_ones_that_the_view_shows() -> None:
    material = torch.tensor([[2, 2, 2, 1, 1, 5], [4, 4, 4, 4, 4, 4]], dtype=torch.uint8)
    result = counterfactual_materials(material, 16)
    assert result[0].tolist() == [1, 1, 1, 2, 2, 2]
    assert (result[1] != 4).all()


def test_targets_are_parsed_and_refused(recorded: RecordedPolicy) -> None:
    policy, info = load_checkpoint(recorded.checkpoint)
    layout = info.layout

    def named(text: str, directions: Directions | None = None) -> object:
        return target_named(text, layout, policy, directions, "a" * 64)

    assert named("value").name == "the value"  # type: ignore[attr-defined]
    assert named("Move.Direction:north-stay").other == 4  # type: ignore[attr-defined]
    assert named("Attack.Target:100").option == 100  # type: ignore[attr-defined]
    for text, message in (
        ("valu", "did you mean value"), ("Move.Direction:up", "no option 'up': give north, south, east, west, stay"),
        ("Attack.Target:101", "a number below 101"), ("direction:x", "name the file that holds it with --directions"),
    ):  # fmt: skip
        assert_refuses(message, named, text)
    own = replace(direction("food", np.ones(UNITS)), bias=0.5)
    others = replace(own, source=replace(SOURCE, checkpoint_sha256="b" * 64))
    there = Directions(recorded.dump / "directions.safetensors", (others,))
    assert_refuses("found in another policy", named, "direction:food", there)
    target = named("direction:food", replace(there, directions=(own,)))
    cell = torch.arange(32.0).view(2, 16)
    outcome = cast(Outcome, type("Outcome", (), {"layers": {"lstm_cell": cell}}))
    torch.testing.assert_close(target(outcome), cell.sum(dim=1) + 0.5)  # type: ignore[operator]
    policy.add_codebook(SemanticShape(4))
    code = replace(there, directions=(direction("code", np.ones(4), "semantic_code"),))
    assert_refuses("semantic_code is not differentiated", named, "direction:code", code)


def test_a_policy_of_two_layers_without_lags_reads_its_memory(small_world, task, maps, tmp_path) -> None:
    two = record_policy(tmp_path, small_world, task, maps, layers=2, episodes=1)
    policy, windows, value = policy_and_windows(two, 1)
    maps = attribute(by("gradient"), policy, windows, Target(), average_baseline(policy, windows))
    assert maps["memory"].shape == (COUNT, 4 * 16) and maps["memory"].abs().sum() > 0
    np.testing.assert_allclose(play(policy, windows, windows.observation, Target()).numpy(), value, **CLOSE)


def flat(windows: LifeWindows) -> dict[str, np.ndarray]:
    return {"lstm_hidden": windows.memory.hidden[0].numpy(), "lstm_cell": windows.memory.cell[0].numpy()}


@torch.no_grad()
def keeping(policy: RecurrentPolicy) -> RecurrentPolicy:
    """The same policy with an LSTM that keeps its cell state and takes nothing in."""
    for parameter in policy.lstm.parameters():
        parameter.zero_()
    policy.lstm.bias_ih_l0[:UNITS] = -50.0  # nothing in
    policy.lstm.bias_ih_l0[UNITS : 2 * UNITS] = 50.0  # nothing forgotten
    return policy


def varied(windows: LifeWindows) -> LifeWindows:
    generator = torch.Generator().manual_seed(0)
    for state in (windows.memory.hidden, windows.memory.cell):
        state.copy_(torch.randn(state.shape, generator=generator))
    return windows


def test_patterns_of_planted_sources_are_found_again(recorded: RecordedPolicy) -> None:
    policy, _, _ = policy_and_windows(recorded, 1)
    random = np.random.default_rng(0)
    sources, mixing = random.laplace(size=(4000, 3)), random.normal(size=(3, UNITS))
    states = sources @ mixing + 5.0
    read_outs = np.linalg.pinv(mixing).T  # what an analysis writes: rows that undo the mixing
    chosen = [direction(f"ic_{number + 1}", row) for number, row in enumerate(read_outs)]
    recorded_states = {"lstm_hidden": np.zeros((4000, UNITS)), "lstm_cell": states}
    result = fitted_components(chosen, policy, recorded_states)
    np.testing.assert_allclose(result.pattern[:, UNITS:].numpy(), mixing, atol=1e-4)
    assert not result.pattern[:, :UNITS].any() and not result.read_out[:, :UNITS].any()
    memory = torch.from_numpy(np.concatenate([np.zeros_like(states), states], axis=1).astype(np.float32))
    np.testing.assert_allclose(result.strengths(memory).numpy(), sources - sources.mean(axis=0), atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_attribution_goes_to_the_component_that_is_read(recorded: RecordedPolicy, method: Method) -> None:
    policy, windows, _ = policy_and_windows(recorded, 1)
    policy, windows = keeping(policy), varied(windows)
    chosen = [direction(f"ic_{unit + 1}", 2.0 * np.eye(UNITS)[unit]) for unit in range(4)]
    # Whitened states, so that patterns are the units themselves.
    cell = windows.memory.cell[0]
    left, _, right = torch.linalg.svd(cell[:, :4] - cell[:, :4].mean(dim=0), full_matrices=False)
    cell[:, :4] = (left @ right) * 3 + 1.0
    components = fitted_components(chosen, policy, flat(windows))
    target = Target("ic_3", direction=chosen[2])
    baseline = average_baseline(policy, windows, components)
    maps = attribute(by(method, noise=1e-6), policy, windows, target, baseline, components)
    strengths = 2.0 * (cell[:, 2] - cell[:, 2].mean())
    np.testing.assert_allclose(maps["components"][:, 2].numpy(), strengths.numpy(), atol=1e-3)
    assert maps["components"][:, [0, 1, 3]].abs().max() < 1e-3


def test_a_complete_basis_shares_out_the_memory(recorded: RecordedPolicy) -> None:
    policy, windows, _ = policy_and_windows(recorded)
    windows = varied(windows)
    chosen = [direction(f"unit_{unit}", np.eye(UNITS)[unit]) for unit in range(UNITS)]
    states = {name: np.random.default_rng(0).normal(size=(500, UNITS)) for name in ("lstm_hidden", "lstm_cell")}
    components = fitted_components(chosen, policy, states)
    value = Target("hidden", direction=direction("all", np.ones(UNITS), "lstm_hidden"))
    baseline = average_baseline(policy, windows, components)
    maps = attribute(by("integrated"), policy, windows, value, baseline, components)
    cells = maps["memory"][:, UNITS:].sum(dim=1)
    assert cells.abs().max() > 1e-3
    np.testing.assert_allclose(maps["components"].sum(dim=1).numpy(), cells.numpy(), atol=1e-5)
    assert_complete(maps)
    assert maps["components"].shape == (COUNT, UNITS)


def test_components_are_named_and_refused(recorded: RecordedPolicy) -> None:
    policy, _, _ = policy_and_windows(recorded, 1)
    eye = np.eye(UNITS)
    there = [direction("ic_1", eye[0]), direction("ic_2", eye[1]), direction("food", eye[2], "encoder_output")]
    wide = direction("wide", np.ones(UNITS + 1))
    file = Directions(recorded.dump / "directions.safetensors", (*there, wide))
    assert [one.name for one in chosen_components("ic", file, policy, "a" * 64)] == ["ic_1", "ic_2"]
    assert [one.name for one in chosen_components("ic_2,ic_1", file, policy, "a" * 64)] == ["ic_2", "ic_1"]
    for text, checkpoint, message in (
        ("ic_3", "a", "holds no direction 'ic_3'"), ("food", "a", "is no state of the memory"),
        ("ic", "b", "found in another policy"), (",", "a", "name at least one"), ("wide", "a", "17 weights"),
    ):  # fmt: skip
        assert_refuses(message, chosen_components, text, file, policy, checkpoint * 64)
    states = {name: np.random.default_rng(0).normal(size=(50, UNITS)) for name in ("lstm_hidden", "lstm_cell")}
    alike = [there[0], direction("twin", 2 * eye[0])]
    assert_refuses("combinations of each other", fitted_components, alike, policy, states)
