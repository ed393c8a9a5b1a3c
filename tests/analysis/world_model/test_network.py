"""Parts of the network and the costs against their definitions; levels of vitals; terrain that comes back as it was."""

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence
from torch.nn import functional

from analysis.world_model.network import (
    CHANGES,
    WorldNetwork,
    WorldState,
    changed_levels,
    drawn,
    expected,
    median,
    spread_levels,
)
from analysis.world_model.rules import Rules
from analysis.world_model.scene import (
    ITEM_TYPES,
    MOVES,
    REACH,
    UNKNOWN,
    VITAL_LEVELS,
    SoftScene,
    displacement,
    edged,
    framed,
    moved_terrain,
    shift,
    unknown_terrain,
    with_view,
)
from analysis.world_model.unroll import balanced_divergence, divergence, gaussian_divergence, spreading
from analysis.world_model.windows import CONTEXT, Windows


@pytest.mark.parametrize("number", range(len(MOVES)))
def test_a_view_shifts_by_the_agents_own_move(number: int) -> None:
    world = torch.randn(9, 9)
    row, column = MOVES[number]
    place = torch.tensor([[5, 5]]).repeat(2, 1)  # displacements are numbers of moves; a jump is none
    assert displacement(place, place + torch.tensor([[row, column], [3, 0]])).tolist() == [number, 0]
    before, after = world[2:7, 2:7], world[2 + row : 7 + row, 2 + column : 7 + column]
    moved = torch.eye(len(MOVES))[[number]]
    result = shift(before.view(1, 1, 5, 5), moved)[0, 0]
    seen_before = torch.zeros(9, 9)
    seen_before[2:7, 2:7] = 1
    known = seen_before[2 + row : 7 + row, 2 + column : 7 + column] > 0
    torch.testing.assert_close(result[known], after[known])
    assert (result[~known] == 0).all() and known.sum() == (25 if number == 0 else 20)
    repeated = shift(before.view(1, 1, 5, 5), moved, edged(before.view(1, 1, 5, 5)))[0, 0]
    torch.testing.assert_close(repeated[known], after[known])
    if row:
        edge = 0 if row < 0 else 4
        torch.testing.assert_close(repeated[edge], before[edge])


def test_latent_states_are_drawn_by_their_probabilities_with_their_gradients() -> None:
    probabilities = torch.tensor([[[0.7, 0.2, 0.1], [0.05, 0.05, 0.9]]]).repeat(4000, 1, 1)
    logits = probabilities.log().requires_grad_()
    result = drawn(logits.log_softmax(dim=2), torch.Generator().manual_seed(0))
    assert result.shape == (4000, 6) and ((result.detach().round() - result.detach()).abs() < 1e-5).all()
    torch.testing.assert_close(result.detach().mean(dim=0).view(2, 3), probabilities[0], atol=0.03, rtol=0)
    (gradient,) = torch.autograd.grad(result[0, 0], logits)
    torch.testing.assert_close(gradient[0, 0], torch.tensor([0.7 * 0.3, -0.7 * 0.2, -0.7 * 0.1]))
    assert drawn(logits.log_softmax(dim=2), None)[0].detach().round().tolist() == [1, 0, 0, 0, 0, 1]


def test_divergences_are_those_of_distributions_and_vectors_are_pushed_apart() -> None:
    p, q = (torch.randn(3, 4, 5).log_softmax(dim=2) for _ in range(2))
    expected = kl_divergence(Categorical(logits=p), Categorical(logits=q)).sum(dim=1)
    torch.testing.assert_close(divergence(p, q), expected)
    mean, log_variance = torch.randn(3, 4), torch.randn(3, 4)
    normal = Normal(mean, (log_variance / 2).exp())
    expected = kl_divergence(normal, Normal(torch.zeros(3, 4), torch.ones(3, 4))).sum(dim=1)
    torch.testing.assert_close(gaussian_divergence(mean, log_variance), expected)
    p, q = (torch.randn(2, 3, 4, requires_grad=True) for _ in range(2))
    plain = divergence(p.log_softmax(dim=2), q.log_softmax(dim=2)).sum()
    balanced = balanced_divergence(p.log_softmax(dim=2), q.log_softmax(dim=2), 0.8).sum()
    torch.testing.assert_close(plain, balanced)
    of_plain, of_balanced = (torch.autograd.grad(one, (p, q)) for one in (plain, balanced))
    torch.testing.assert_close(of_balanced[0], 0.2 * of_plain[0])
    torch.testing.assert_close(of_balanced[1], 0.8 * of_plain[1])
    torch.manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.ones(6, 3) + 0.1 * torch.randn(6, 3), dim=1).requires_grad_()
    assert float(spreading(torch.ones(5, 3))) == pytest.approx(0)
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert float(spreading(opposite)) == pytest.approx(-4)
    before = spreading(vectors)  # all close together at first
    (gradient,) = torch.autograd.grad(before, vectors)
    assert float(spreading((vectors - 0.1 * gradient).detach())) < float(before.detach())


CERTAIN = 30.0
"""A logit beside which others do not matter."""


def certain(*changes: int) -> torch.Tensor:
    """Logits of changes that are sure to happen, one for each vital, (1, 3, CHANGES)."""
    logits = torch.zeros(1, 3, CHANGES)
    for vital, change in enumerate(changes):
        logits[0, vital, change + VITAL_LEVELS - 1] = CERTAIN
    return logits


def test_a_vital_is_the_mean_of_its_levels_and_the_median_ignores_what_is_far() -> None:
    """It finds what is between levels, too."""
    vitals = torch.tensor([[0.0, 0.88, 1.0], [0.5, 0.025, 0.31]])
    levels = spread_levels(vitals)
    torch.testing.assert_close(levels.sum(dim=2), torch.ones(2, 3))
    assert ((levels > 1e-6).sum(dim=2) <= 2).all()
    torch.testing.assert_close(expected(levels), vitals)
    near, far = (spread_levels(torch.tensor([of])) for of in ([0.88, 0.3, 0.0], [0.1, 1.0, 1.0]))
    torch.testing.assert_close(median(0.7 * near + 0.3 * far), torch.tensor([[0.88, 0.3, 0.0]]))


def test_changes_move_vitals_within_the_scale_and_mix_by_probability() -> None:
    before = spread_levels(torch.tensor([[0.5, 0.62, 0.9]]))
    for change, after in (
        ((-1, 0, 10), (0.45, 0.62, 1.0)), ((-20, 5, -1), (0.0, 0.87, 0.85)), ((8, -3, 2), (0.9, 0.47, 1.0)),
    ):  # fmt: skip
        result = changed_levels(before, certain(*change)).exp()
        torch.testing.assert_close(result.sum(dim=2), torch.ones(1, 3))
        torch.testing.assert_close(expected(result), torch.tensor([after]), atol=2e-3, rtol=0)
    logits = certain(-1, -1, -1)
    logits[:, :, 10 + VITAL_LEVELS - 1] = CERTAIN - torch.log(torch.tensor(3.0))  # a meal in one of four ticks
    result = changed_levels(spread_levels(torch.tensor([[0.4, 0.4, 0.8]])), logits).exp()
    torch.testing.assert_close(result[0, 0, [7, 18]], torch.tensor([0.75, 0.25]), atol=2e-3, rtol=0)
    torch.testing.assert_close(result[0, 2, [15, 20]], torch.tensor([0.75, 0.25]), atol=2e-3, rtol=0)
    torch.testing.assert_close(median(result)[0], torch.tensor([0.35, 0.35, 0.75]), atol=1e-3, rtol=0)


SIDE, MATERIALS, WORLD, WALKERS = 5, 16, 80, 3


def test_a_walk_remembers_what_it_has_seen_and_nothing_else() -> None:
    random = torch.Generator().manual_seed(0)
    world = torch.randint(0, MATERIALS, (WORLD, WORLD), generator=random)
    place = torch.full((WALKERS, 2), WORLD // 2)
    terrain, seen = unknown_terrain(WALKERS, SIDE), torch.zeros(WALKERS, WORLD, WORLD, dtype=torch.bool)
    reach, beyond = SIDE // 2, SIDE // 2 + REACH
    for tick in range(60):
        if tick:
            moved = torch.randint(0, len(MOVES), (WALKERS,), generator=random)
            place = place + torch.tensor(MOVES)[moved]
            terrain = moved_terrain(terrain, moved)
        for walker, (row, column) in enumerate(place.tolist()):
            seen[walker, row - reach : row + reach + 1, column - reach : column + reach + 1] = True
        view = torch.stack([around(world, spot, reach) for spot in place])
        terrain = with_view(terrain, view.flatten(1))
        for walker, spot in enumerate(place):
            known, there = around(seen[walker], spot, beyond), around(world, spot, beyond)
            assert torch.equal(terrain[walker].long(), torch.where(known, there, UNKNOWN))
    materials = functional.one_hot(view, MATERIALS).float().permute(0, 3, 1, 2)
    result, known = framed(materials, terrain)
    for walker, spot in enumerate(place):
        there = around(seen[walker], spot, reach + 1)
        assert torch.equal(known[walker, 0] > 0, there)
        assert torch.equal(result[walker].argmax(dim=0)[there], around(world, spot, reach + 1)[there])
        assert torch.equal(result[walker][:, ~there], edged(materials)[walker][:, ~there])


def around(world: torch.Tensor, place: torch.Tensor, reach: int) -> torch.Tensor:
    row, column = place.tolist()
    return world[row - reach : row + reach + 1, column - reach : column + reach + 1]


def last_given(recorded) -> tuple[WorldNetwork, Windows, SoftScene, WorldState]:
    """A new network, windows with the last scenes that are given of them, and a state that holds nothing."""
    network, windows = recorded.model().network, recorded.windows(batch=32)[0]
    nothing = WorldState(*(torch.zeros(len(windows), size) for size in (network.sizes.hidden, network.sizes.latent)))
    return network, windows, windows.last_given(network.shape.materials), nothing


def test_terrain_of_recorded_ticks_is_what_they_showed(recorded) -> None:
    network, windows, scene, _ = last_given(recorded)
    terrain, side, moved_ones = scene.terrain, network.shape.side, 0
    last = windows.where[:, CONTEXT - 1]
    for tick in range(CONTEXT):  # later ticks overwrite what earlier ones showed
        step = windows.where[:, tick] - last
        for window in range(len(windows)):
            row, column = (REACH + step[window]).tolist()
            result = terrain[window, row : row + side, column : column + side].long().flatten()
            shown = windows.scene.material[windows.starts[window] + tick]
            assert (result == shown).float().mean() > (0.98 if tick < CONTEXT - 1 else 0.9999)
            moved_ones += int(step[window].any())
    assert moved_ones > 5


def test_the_decoder_shows_remembered_terrain_again(recorded) -> None:
    """A new network changes nothing, so what comes into view is what the frame holds, but for what the agent takes."""
    network, windows, scene, state = last_given(recorded)
    with torch.no_grad():
        network.say_move[-1].weight.zero_()
        for number in range(len(MOVES)):
            network.say_move[-1].bias.copy_(50 * functional.one_hot(torch.tensor(number), len(MOVES)))
            result = network.decode(state, scene, windows.action[:, CONTEXT - 1], decided=True).scene
            before = network.rules.harvested(scene)
            moved = torch.where(network.rules.blocked(before)[:, number], 0, number)
            wanted = moved_terrain(before.terrain, moved)
            side = network.shape.side
            near = wanted[:, REACH : REACH + side, REACH : REACH + side].long().flatten(1)
            known = near != UNKNOWN
            assert torch.equal(result.material.argmax(dim=1)[known], near[known])
            rest = torch.ones(wanted.shape[1:], dtype=torch.bool)
            rest[REACH : REACH + side, REACH : REACH + side] = False
            assert torch.equal(result.terrain[:, rest], wanted[:, rest])
            remembered = result.terrain[:, REACH : REACH + side, REACH : REACH + side] != UNKNOWN
            assert torch.equal(remembered.flatten(1), known), "only what was seen is remembered"


def test_what_has_been_in_view_follows_the_rules_and_items_stay(recorded) -> None:
    network, windows, scene, state = last_given(recorded)
    rules, ore = Rules.of_game(), 7
    goes = ~rules.blocked(scene)[:, MOVES.index((0, 1))]
    assert goes.any() and not goes.all()
    with torch.no_grad():
        network.paint[-1].bias[ore] = 1e3
        network.say_move[-1].bias[MOVES.index((0, 1))] = 1e3
        result = network.decode(state, scene, windows.action[:, CONTEXT - 1], decided=True).scene
        imagined = network.decode(state, scene, windows.action[:, CONTEXT - 1]).scene
    side = network.shape.side
    views = result.material.unflatten(2, (side, side))
    left = rules.respawned(rules.harvested(scene).material).unflatten(2, (side, side))
    torch.testing.assert_close(views[goes][..., :-1], left[goes][..., 1:])
    column = network.position[1]
    assert (result.own[~goes, column] <= scene.own[~goes, column]).all(), "nobody walks on water"
    assert (imagined.material.argmax(dim=1) == ore).all(), "in training it says all"
    new = moved_terrain(scene.terrain, torch.full((len(windows),), MOVES.index((0, 1))))
    unseen = (new[:, REACH:-REACH, REACH:-REACH] == UNKNOWN)[..., -1] & goes.unsqueeze(1)
    assert unseen.any() and (views[..., -1].argmax(dim=1)[unseen] == ore).all()
    assert (result.terrain[:, REACH:-REACH, REACH:-REACH][..., -1][unseen] == UNKNOWN).all()
    network, windows, scene, state = last_given(recorded)
    assert scene.item_type[:, :, 1:].any()
    with torch.no_grad():
        network.say_type.bias.view(-1, ITEM_TYPES)[:, 0] = 1e3
        result = network.decode(state, scene, windows.action[:, CONTEXT - 1], decided=True).scene
        imagined = network.decode(state, scene, windows.action[:, CONTEXT - 1]).scene
    assert torch.equal(result.item_type, scene.item_type) and torch.equal(result.items, scene.items)
    assert (imagined.item_type.argmax(dim=2) == 0).all(), "in training it says all"
