"""Edits of the policy inside a world model, in every tick of a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch

from activation_store.directions import Direction, Directions
from activation_store.layers import LSTM_CELL, check_policy_layers
from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.edit_options import EditOptions
from agent_zoo.edits_along_directions import check_direction, edit_along
from agent_zoo.erasure import fitted_eraser
from agent_zoo.feature_edits import EditedFeatures, check_dictionary, edit_of, features_of
from agent_zoo.hooks import Hook
from agent_zoo.linear_readings import JointMoments, Reading
from agent_zoo.memory import MemoryState
from agent_zoo.memory_edits import Clear, Freeze, MemoryEdit
from agent_zoo.own_features import check_feature
from agent_zoo.state_edits import EditOf, Eraser, StateEdit
from representation.world_model.model import Origin, WorldModel
from representation.world_model.recorded_states import RecordedStates


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


@dataclass(frozen=True, eq=False)
class EditSources:
    """What the names in edits stand for.

    Attributes:
        directions: None if no edit names any.
        dictionary: of sparse features; None likewise.
        states: recorded ones.
    """

    directions: Directions | None
    dictionary: SparseDictionary | None
    states: RecordedStates


def requested_edits(
    options: Sequence[EditOptions], sources: EditSources, model: WorldModel, origin: Origin
) -> list[Edits]:
    """Return what the options ask for: one set of edits for each dose, or a single one without doses.

    Args:
        options: of the edits, which are made together.
        sources: of what they name.
        model: whose policy is edited.
        origin: of the model.

    Raises:
        UserError: a direction, a sparse feature or a variable does not exist, or does not fit the policy or the edit; a
            variable does not vary.
    """
    units = model.policy.layer_units
    if sources.dictionary:
        check_dictionary(sources.dictionary, units, origin.policy, origin.policy_sha256)
    named = [_named(each, sources, model, origin.policy) for each in options]
    for each in named:
        for direction in each.directions:
            check_direction(direction, _of(each.options), units, origin.policy, origin.policy_sha256)
    doses: list[float | None] = [dose for each in options for dose in each.doses] or [None]
    return [_with_dose(named, dose, sources.states) for dose in doses]


@dataclass(frozen=True, eq=False)
class _Named:
    """An edit with what its names stand for."""

    options: EditOptions
    directions: tuple[Direction, ...] = ()
    features: EditedFeatures | None = None
    erasure: "_Erasure | None" = None


@dataclass(frozen=True, eq=False)
class _Erasure:
    """An eraser, with the moments of the states that it was fitted to."""

    eraser: Eraser
    moments: JointMoments


def _named(options: EditOptions, sources: EditSources, model: WorldModel, policy: str) -> _Named:
    if features := features_of(options, sources.dictionary):
        return _Named(options, features=features)
    if options.erased_layer:
        return _Named(options, erasure=_erasure(options, options.erased_layer, sources.states, model, policy))
    found = sources.directions
    return _Named(options, tuple(found.named(name) for name in options.names) if found else ())


def _erasure(options: EditOptions, layer: str, recorded: RecordedStates, model: WorldModel, policy: str) -> _Erasure:
    check_policy_layers([layer], model.policy.layers, model.policy.cell)
    for name in options.variables:
        check_feature(f"--variable {options.variable}", name, model.layout.entity_columns)
    reading = Reading(layer, options.variables)
    moments = recorded.moments(reading)
    return _Erasure(fitted_eraser(reading, moments, policy), moments)


def _with_dose(named: Sequence[_Named], dose: float | None, recorded: RecordedStates) -> Edits:
    words, described = list[str](), list[dict[str, Any]]()
    states, memories = list[StateEdit](), list[MemoryEdit]()
    for each in named:
        options = each.options
        words += [options.edit, *(name.replace("/", "_") for name in options.names)]
        words += [*options.variables, options.erased_layer] if options.erased_layer else []
        words += ["change"] if options.change else []
        words += [f"dose{dose:+g}"] if options.doses and dose is not None else []
        words += [f"every_{options.every}"] if options.every > 1 else []
        described.append(_described(each, dose))
        strength = dose if options.doses and dose is not None else 0.0
        if options.edit == "clear":
            memories.append(Clear(options.every))
        elif options.edit == "freeze":
            memories.append(Freeze())
        elif each.erasure:
            states.append(each.erasure.eraser)
        elif each.features:
            states.append(edit_of(each.features, strength))
        else:
            kind = cast(Any, options.edit)  # `SimulationOptions.check` refuses the others
            states.append(edit_along(kind, each.directions, _of(options), strength, recorded.covariance))
    return Edits("-".join(words), tuple(described), tuple(states), tuple(memories))


def _described(edit: _Named, dose: float | None) -> dict[str, Any]:
    options, told = edit.options, dict[str, Any](edit=edit.options.edit)
    if edit.directions:
        told |= {"directions": [each.name for each in edit.directions], "of": _of(options)}
        told |= {"runs": [each.source.run for each in edit.directions]}
    if edit.features:
        told |= {"features": list(options.names)} if options.names else {}
        source = edit.features.dictionary.source
        told |= {"layer": source.layer, "dictionary": f"{source.run}/{edit.features.dictionary.kind}"}
    if edit.erasure:
        before = dict(zip(options.variables, edit.erasure.moments.r_squared().round(6).tolist(), strict=True))
        told |= {"layer": options.erased_layer, "r_squared": before, "states": edit.erasure.moments.sums.count}
    extra: Mapping[str, Any] = {"dose": dose if options.doses else None, "every": options.every}
    return told | {name: each for name, each in extra.items() if each not in (None, 1)}


def _of(options: EditOptions) -> EditOf:
    return "change" if options.change else "state"
