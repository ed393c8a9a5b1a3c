"""Search by gradient for starts that maximise the value, or a read-out of the policy's memory."""

from collections.abc import Callable

import torch
from torch.nn import functional

from activation_store.directions import Direction
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from representation.world_model.imagination import ImaginedTick, Start, bottleneck_start, imagine
from representation.world_model.model import WorldModel
from user_error import UserError

Target = Callable[[ImaginedTick], torch.Tensor]
"""Returns a number of each simulation in a tick, (S,), with gradients."""

TICKS = 4
"""The target is the mean over these first ticks, with the most probable actions and latent states."""
UPDATES = 40
_RATE = 0.05


def value_target(tick: ImaginedTick) -> torch.Tensor:
    """Return the policy's value."""
    return tick.choices.value


def direction_target(direction: Direction) -> Target:
    """Return the read-out of a direction in the policy's memory.

    Raises:
        UserError: it is a direction of another layer.
    """
    if direction.layer not in (LSTM_HIDDEN, LSTM_CELL):
        raise UserError(
            f"--maximise {direction.name}: a direction of {direction.layer}, but only value and directions of "
            f"{LSTM_HIDDEN} and {LSTM_CELL} can be maximised"
        )
    weight = torch.from_numpy(direction.weight)

    def read_out(tick: ImaginedTick) -> torch.Tensor:
        state = tick.memory.cell if direction.layer == LSTM_CELL else tick.memory.hidden
        return state[-1] @ weight + direction.bias

    return read_out


def searched(model: WorldModel, start: Start, target: Target) -> Start:
    """Return the best start met on the way up from each given one by gradient ascent (Adam) on its bottleneck."""
    with torch.enable_grad():
        free = start.vector.clone().requires_grad_()
        optimiser = torch.optim.Adam([free], lr=_RATE)
        best, found = torch.full((len(start),), -torch.inf), start.vector
        for _ in range(UPDATES + 1):
            vector = functional.normalize(free, dim=1) if model.network.kind == "sphere" else free
            begun = bottleneck_start(model, vector, start.around, None)
            ticks = [target(tick) for tick in imagine(model, begun, TICKS, None)]
            reached = torch.stack(ticks).mean(dim=0)  # (S,)
            better = reached.detach() > best
            best = torch.where(better, reached.detach(), best)
            found = torch.where(better.unsqueeze(1), vector.detach(), found)
            (free.grad,) = torch.autograd.grad(-reached.sum(), free)
            optimiser.step()
    return bottleneck_start(model, found, start.around, None)
