"""The agent's own displacement in a tick, how its view shifts with it, and the terrain that it remembers beyond it."""

import torch
from torch.nn import functional

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""Rows and columns that an agent can move by in a tick."""


REACH = 16
"""Tiles beyond the view, on each side, in which terrain is remembered."""
UNKNOWN = -1
"""Material of a tile of the terrain that was never in view."""


def shift(planes: torch.Tensor, moved: torch.Tensor, frame: torch.Tensor | None = None) -> torch.Tensor:
    """Shift views by the agent's own displacement, known in probabilities.

    Args:
        planes: (B, channels, side, side).
        moved: probabilities of `MOVES`, (B, moves).
        frame: the views with a frame of one tile, which tiles that come into view are taken from, (B, channels,
            side + 2, side + 2); None for zeros.
    """
    side = planes.shape[-1]
    wide = functional.pad(planes, (1, 1, 1, 1)) if frame is None else frame
    total = torch.zeros_like(planes)
    for number, (row, column) in enumerate(MOVES):
        part = wide[:, :, 1 + row : 1 + row + side, 1 + column : 1 + column + side]
        total = total + moved[:, number].view(-1, 1, 1, 1) * part
    return total


def edged(planes: torch.Tensor) -> torch.Tensor:
    """Frame views with what the nearest tile holds, (B, channels, side, side) to (B, channels, side + 2, side + 2)."""
    return functional.pad(planes, (1, 1, 1, 1), mode="replicate")


def framed(materials: torch.Tensor, terrain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Frame views of materials with the terrain remembered around them, or else with the nearest tile.

    Args:
        materials: probabilities, (B, materials, side, side).
        terrain: see `SoftScene`, (B, S, S).

    Returns:
        The framed views, (B, materials, side + 2, side + 2), and which of their tiles are known, (B, 1, side + 2,
        side + 2).
    """
    side = materials.shape[-1]
    near = terrain[:, REACH - 1 : REACH + side + 1, REACH - 1 : REACH + side + 1].long()
    frame = torch.ones(near.shape[1:], dtype=torch.bool)
    frame[1:-1, 1:-1] = False
    remembered = (near != UNKNOWN) & frame
    one_hot = functional.one_hot(near.clamp(min=0), materials.shape[1]).to(materials.dtype).permute(0, 3, 1, 2)
    known = (remembered | ~frame).unsqueeze(1)
    return torch.where(remembered.unsqueeze(1), one_hot, edged(materials)), known.to(materials.dtype)


def unknown_terrain(count: int, side: int) -> torch.Tensor:
    """Return terrain of which nothing is known, around views of `side` tiles, (count, S, S) int8."""
    return torch.full((count, side + 2 * REACH, side + 2 * REACH), UNKNOWN, dtype=torch.int8)


def moved_terrain(terrain: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    """Shift terrain, (B, S, S), by the number of each agent's move, (B,) int64; tiles at the far end are unknown."""
    size = terrain.shape[-1]
    wide = functional.pad(terrain, (1, 1, 1, 1), value=UNKNOWN)
    parts = torch.stack([wide[:, 1 + row : 1 + row + size, 1 + column : 1 + column + size] for row, column in MOVES])
    return parts[moved, torch.arange(len(terrain))]


def with_view(terrain: torch.Tensor, material: torch.Tensor) -> torch.Tensor:
    """Return terrain, (B, S, S), once the materials in view, (B, V) int64, are seen."""
    side = terrain.shape[-1] - 2 * REACH
    found = terrain.clone()
    found[:, REACH : REACH + side, REACH : REACH + side] = material.view(-1, side, side).to(terrain.dtype)
    return found


def displacement(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return which of `MOVES` leads from one place to the next, (B, 2) twice to (B,) int64; 0 where none does."""
    step = after - before
    found = torch.zeros(len(step), dtype=torch.int64)
    for number, move in enumerate(MOVES):
        found[(step == torch.tensor(move)).all(dim=1)] = number
    return found
