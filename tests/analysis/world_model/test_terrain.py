"""Terrain that was in view is remembered beyond it, and comes back as it was."""

import torch
from torch.nn import functional

from analysis.world_model.network import WorldState
from analysis.world_model.rules import Rules
from analysis.world_model.scene import MOVES, REACH, UNKNOWN, edged, framed, moved_terrain, unknown_terrain, with_view
from analysis.world_model.windows import CONTEXT

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
    found, known = framed(materials, terrain)
    for walker, spot in enumerate(place):
        there = around(seen[walker], spot, reach + 1)
        assert torch.equal(known[walker, 0] > 0, there)
        assert torch.equal(found[walker].argmax(dim=0)[there], around(world, spot, reach + 1)[there])
        assert torch.equal(found[walker][:, ~there], edged(materials)[walker][:, ~there])


def around(world: torch.Tensor, place: torch.Tensor, reach: int) -> torch.Tensor:
    row, column = place.tolist()
    return world[row - reach : row + reach + 1, column - reach : column + reach + 1]


def test_terrain_of_recorded_ticks_is_what_they_showed(recorded) -> None:
    windows = recorded.windows(batch=32)[0]
    model = recorded.model()
    terrain = windows.last_given(model.network.shape.materials).terrain
    side, moved_ones = model.network.shape.side, 0
    last = windows.where[:, CONTEXT - 1]
    for tick in range(CONTEXT):  # later ticks overwrite what earlier ones showed
        step = windows.where[:, tick] - last
        for window in range(len(windows)):
            row, column = (REACH + step[window]).tolist()
            found = terrain[window, row : row + side, column : column + side].long().flatten()
            shown = windows.scene.material[windows.starts[window] + tick]
            assert (found == shown).float().mean() > (0.98 if tick < CONTEXT - 1 else 0.9999)
            moved_ones += int(step[window].any())
    assert moved_ones > 5


def test_the_decoder_shows_remembered_terrain_again(recorded) -> None:
    """A new network changes nothing, so what comes into view is what the frame holds, but for what the agent takes."""
    model = recorded.model()
    network, windows = model.network, recorded.windows(batch=32)[0]
    scene = windows.last_given(network.shape.materials)
    state = WorldState(torch.zeros(len(windows), network.sizes.hidden), torch.zeros(len(windows), network.sizes.latent))
    with torch.no_grad():
        network.say_move[-1].weight.zero_()
        for number in range(len(MOVES)):
            network.say_move[-1].bias.copy_(50 * functional.one_hot(torch.tensor(number), len(MOVES)))
            found = network.decode(state, scene, windows.action[:, CONTEXT - 1], decided=True).scene
            wanted = moved_terrain(Rules.of_game().harvested(scene).terrain, torch.full((len(windows),), number))
            side = network.shape.side
            near = wanted[:, REACH : REACH + side, REACH : REACH + side].long().flatten(1)
            known = near != UNKNOWN
            assert torch.equal(found.material.argmax(dim=1)[known], near[known])
            rest = torch.ones(wanted.shape[1:], dtype=torch.bool)
            rest[REACH : REACH + side, REACH : REACH + side] = False
            assert torch.equal(found.terrain[:, rest], wanted[:, rest])
            assert (found.terrain[:, REACH : REACH + side, REACH : REACH + side] != UNKNOWN).all()
