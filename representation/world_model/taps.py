"""Inputs of a simulation whose influence on what follows is asked for, with and without passing through the world."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from agent_zoo.hooks import Hook
from agent_zoo.memory import MemoryState
from representation.world_model.imagination import ImaginedTick, Start, imagine
from representation.world_model.model import WorldModel
from representation.world_model.scene import SoftScene

Number = Callable[[ImaginedTick], torch.Tensor]
"""Returns a number of each simulation in a tick, (S,), with gradients."""


@dataclass(frozen=True, eq=False)
class Patterns:
    """What a unit of each of K components adds to the policy's states after a tick.

    Attributes:
        hidden: (K, units).
        cell: (K, units); the hidden state follows a changed cell in the same tick, as in interventions.
    """

    hidden: torch.Tensor
    cell: torch.Tensor


class Taps:
    """Zeros that are added to the components after each tick, and to the agents' own rows in each tick.

    Attributes:
        strengths: of the components after each tick, (S, K) each, with gradients.
        own: of the own row's columns in each tick, (S, columns) each, with gradients.
    """

    def __init__(self, patterns: Patterns, simulations: int, columns: int, ticks: int, through_world: bool):
        """Make them for so many ticks.

        Args:
            patterns: of the components.
            simulations: S.
            columns: of an own row.
            ticks: of the simulation.
            through_world: whether gradients pass from what the world model decodes to what the policy sees.
        """
        self.strengths = [torch.zeros(simulations, len(patterns.cell), requires_grad=True) for _ in range(ticks)]
        self.own = [torch.zeros(simulations, columns, requires_grad=True) for _ in range(ticks)]
        self._patterns = {LSTM_HIDDEN: patterns.hidden, LSTM_CELL: patterns.cell}
        self._through_world, self._tick = through_world, 0

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor) -> MemoryState:
        """See `edits.TickEdits`."""
        self._tick = tick
        return memory

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """See `edits.TickEdits`."""
        return {layer: self._hook(pattern) for layer, pattern in self._patterns.items() if pattern.any()}

    def shown(self, scene: SoftScene, tick: int) -> tuple[SoftScene, SoftScene]:
        """See `imagination.Shown`."""
        if self._through_world:
            scene = replace(scene, own=scene.own + self.own[tick])
            return scene, scene
        seen = SoftScene(**{name: each.detach() for name, each in vars(scene).items()})
        return scene, replace(seen, own=seen.own + self.own[tick])

    def _hook(self, pattern: torch.Tensor) -> Hook:
        strength = self.strengths[self._tick]
        return lambda states: states + strength @ pattern


@dataclass(frozen=True, eq=False)
class Slopes:
    """Derivatives of a number in one tick of S simulations by inputs of that and earlier ticks.

    Attributes:
        components: after the tick L ticks before, by lag L from 0, (S, lags + 1, K).
        own: of the row seen in that tick, (S, lags + 1, columns).
        number: the number itself, (S,).
        alive: lives that are not over by then, (S,) bool.
    """

    components: np.ndarray
    own: np.ndarray
    number: np.ndarray
    alive: np.ndarray


def slopes(
    model: WorldModel, start: Start, number: Number, patterns: Patterns, lags: int, seed: int, through_world: bool,
    soft: bool = False,
) -> Slopes:  # fmt: skip
    """Simulate lags + 1 ticks, and differentiate a number of the last one.

    Actions and latent states are drawn. They pass gradients on as if they were their probabilities (straight-through).
    The dice do not depend on `through_world`, so simulations are the same.

    Args:
        model: to simulate with.
        start: of S simulations.
        number: to differentiate.
        patterns: of the components.
        lags: the largest.
        seed: of the dice.
        through_world: whether gradients pass from what the world model decodes to what the policy sees.
        soft: as for `imagine`.
    """
    generator = torch.Generator().manual_seed(seed)
    taps = Taps(patterns, len(start), start.scene.own.shape[1], lags + 1, through_world)
    alive = torch.ones(len(start), dtype=torch.bool)
    with torch.enable_grad():
        for place, tick in enumerate(imagine(model, start, lags + 1, generator, (), taps, taps.shown, soft)):
            last = tick
            if place < lags:
                alive &= torch.rand(len(start), generator=generator) >= tick.end.detach()
        found = number(last)
        leaves = [*taps.strengths, *taps.own]
        gradients = torch.autograd.grad(found.sum(), leaves, allow_unused=True, materialize_grads=True)
    by_lag = [each.numpy() for each in gradients]
    components, own = (np.stack(each[::-1], axis=1) for each in (by_lag[: lags + 1], by_lag[lags + 1 :]))
    return Slopes(components, own, found.detach().numpy(), alive.numpy())
