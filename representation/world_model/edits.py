"""Edits of the policy inside a world model, in every tick of a simulation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch

from activation_store.directions import Direction, Directions
from activation_store.layers import LSTM_CELL
from activation_store.reader import read_dump
from activation_store.subsample import Subsample
from agent_zoo.edit_options import EditOptions
from agent_zoo.edits_along_directions import check_direction, edit_along
from agent_zoo.hooks import Hook
from agent_zoo.memory import MemoryState
from agent_zoo.memory_edits import Clear, Freeze, MemoryEdit
from agent_zoo.state_edits import EditOf, StateEdit
from representation.world_model.model import Origin, WorldModel

_ONE_IN = 10
EVERYTHING_BUT_STATES = ("tile", "entity", "inventory", "tables", "reward", "value", "log_probability")
"""What `activation_store.reader.read_dump` leaves out where only states are needed."""


class TickEdits(Protocol):
    """Edits the policy in every tick."""

    def begin(self, memory: MemoryState, tick: int) -> MemoryState:
        """Return the memory with which B agents begin a tick, numbered from 0; called before `hooks`."""

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """Return the hooks of a tick, given the memory with which it begins."""


@dataclass(frozen=True, eq=False)
class Edits:
    """What is done to the policy in every tick.

    Attributes:
        name: such as steer-ic_3-dose+2.
        described: each edit as it is written to a dump's metadata.
        states: edits of layers, in their order.
        memories: edits of the memory with which a tick begins, in their order.
    """

    name: str
    described: tuple[dict[str, Any], ...]
    states: tuple[StateEdit, ...] = ()
    memories: tuple[MemoryEdit, ...] = ()

    def begin(self, memory: MemoryState, tick: int) -> MemoryState:
        """Return the memory with which B agents begin a tick, numbered from 0."""
        agents = torch.arange(memory.hidden.shape[1])
        for each in self.memories:
            memory = each.begin(memory, torch.full_like(agents, tick), agents)
        return memory

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """Return the hooks of a tick, given the memory with which it begins."""
        return {layer: self._hook(layer, before) for layer in dict.fromkeys(each.layer for each in self.states)}

    def _hook(self, layer: str, before: MemoryState) -> Hook:
        of_memory = before.cell if layer.startswith(LSTM_CELL) else before.hidden

        def edit(states: torch.Tensor) -> torch.Tensor:
            for each in self.states:
                if each.layer == layer:
                    states = each.edited(of_memory[-1], states)
            return states

        return edit


def requested_edits(
    options: Sequence[EditOptions], found: Directions | None, model: WorldModel, origin: Origin,
    covariance: Callable[[str], np.ndarray],
) -> list[Edits]:  # fmt: skip
    """Return what the options ask for: one set of edits for each dose, or a single one without doses.

    Args:
        options: of the edits, which are made together.
        found: the directions that they name; None if they name none.
        model: whose policy is edited.
        origin: of the model.
        covariance: returns that of a layer's states, (units, units).

    Raises:
        UserError: a direction does not exist, does not fit the policy or the edit.
    """
    named = [tuple(found.named(name) for name in each.names) if found else () for each in options]
    for each, directions in zip(options, named, strict=True):
        for direction in directions:
            check_direction(direction, _of(each), model.policy.layer_units, origin.policy, origin.policy_sha256)
    doses: list[float | None] = [dose for each in options for dose in each.doses] or [None]
    return [_with_dose(options, named, dose, covariance) for dose in doses]


def states_covariance(dump: Path, origin: Origin) -> Callable[[str], np.ndarray]:
    """Return a function that reads the covariance of a layer's states on the maps kept for testing."""

    def covariance(layer: str) -> np.ndarray:
        records = read_dump(
            dump, subsample=Subsample(_ONE_IN), layers=[layer], columns=[], leave_out=EVERYTHING_BUT_STATES,
            episodes=origin.test,
        )  # fmt: skip
        return np.cov(records.activations[layer].astype(np.float64), rowvar=False)

    return covariance


def _with_dose(
    options: Sequence[EditOptions], named: Sequence[tuple[Direction, ...]], dose: float | None,
    covariance: Callable[[str], np.ndarray],
) -> Edits:  # fmt: skip
    words, described = list[str](), list[dict[str, Any]]()
    states, memories = list[StateEdit](), list[MemoryEdit]()
    for each, directions in zip(options, named, strict=True):
        words += [each.edit, *(direction.name.replace("/", "_") for direction in directions)]
        words += ["change"] if each.change else []
        words += [f"dose{dose:+g}"] if each.doses and dose is not None else []
        words += [f"every_{each.every}"] if each.every > 1 else []
        described.append(_described(each, directions, dose))
        if each.edit == "clear":
            memories.append(Clear(each.every))
        elif each.edit == "freeze":
            memories.append(Freeze())
        else:
            kind = cast(Any, each.edit)  # `SimulationOptions.check` refuses the others
            states.append(edit_along(kind, directions, _of(each), dose or 0.0, covariance))
    return Edits("-".join(words), tuple(described), tuple(states), tuple(memories))


def _described(options: EditOptions, directions: Sequence[Direction], dose: float | None) -> dict[str, Any]:
    told: dict[str, Any] = {"edit": options.edit}
    if directions:
        told |= {"directions": [each.name for each in directions], "of": _of(options)}
        told |= {"runs": [each.source.run for each in directions]}
    extra: Mapping[str, Any] = {"dose": dose if options.doses else None, "every": options.every}
    return told | {name: each for name, each in extra.items() if each not in (None, 1)}


def _of(options: EditOptions) -> EditOf:
    return "change" if options.change else "state"
