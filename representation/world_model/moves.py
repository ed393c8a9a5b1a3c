"""The agent's own displacement in a tick, and how its view shifts with it."""

import torch
from torch.nn import functional

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""Rows and columns that an agent can move by in a tick."""


def shift(planes: torch.Tensor, moved: torch.Tensor, repeat_edge: bool = False) -> torch.Tensor:
    """Shift views, (B, channels, side, side), by the agent's own displacement, known in probabilities, (B, moves).

    Tiles that come into view hold zeros, or with `repeat_edge` what the nearest tile holds.
    """
    side = planes.shape[-1]
    wide = functional.pad(planes, (1, 1, 1, 1), mode="replicate" if repeat_edge else "constant")
    total = torch.zeros_like(planes)
    for number, (row, column) in enumerate(MOVES):
        part = wide[:, :, 1 + row : 1 + row + side, 1 + column : 1 + column + side]
        total = total + moved[:, number].view(-1, 1, 1, 1) * part
    return total


def displacement(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return which of `MOVES` leads from one place to the next, (B, 2) twice to (B,) int64; 0 where none does."""
    step = after - before
    found = torch.zeros(len(step), dtype=torch.int64)
    for number, move in enumerate(MOVES):
        found[(step == torch.tensor(move)).all(dim=1)] = number
    return found
