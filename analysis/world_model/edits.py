"""Edits of the policy inside a world model, in every tick of a simulation: as users ask for them, and as they are made.

Edits with donors take something from other lives of the same tick, which nobody edits: the unedited lives of the same
starts and dice that are alive in that tick. The one that begins as the edited life does is no donor of its.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from activation_store.directions import Directions
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, check_policy_layers, memory_names
from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.hooks import Hook
from agent_zoo.memories.memory import MemoryState
from agent_zoo.network_parts.layers import entity_features
from agent_zoo.network_parts.own_features import OWN, check_feature, feature_values
from agent_zoo.observation import ObservationLayout
from analysis.interventions.edits.donor_rule import DonorRule, far_donors
from analysis.interventions.edits.edit_options import EditOptions
from analysis.interventions.edits.feature_edits import check_dictionary, features_of
from analysis.interventions.edits.linear_readings import Reading, fitted_eraser
from analysis.interventions.edits.memory_edits import Clear, Freeze, MemoryEdit, Transplant
from analysis.interventions.edits.state_edits import (
    EditOf,
    Interchange,
    StateEdit,
    check_direction,
    edit_along,
    interchange,
)
from analysis.world_model.held_out import HeldOut
from analysis.world_model.scene import own_columns
from common.user_error import UserError

Edit = StateEdit | Interchange | MemoryEdit | Transplant
Made = tuple[dict[str, Any], Callable[[float], Edit]]
"""How an edit is written to a dump's metadata, but for its dose, and what makes it, given the dose."""

_STREAM = 0xD0_0F  # apart from the streams that starts and dice are drawn from


@dataclass(frozen=True, eq=False)
class Edits:
    """What is done to the policy in every tick."""

    name: str  # such as steer-ic_3-dose+2
    described: tuple[dict[str, Any], ...]  # each edit as it is written to a dump's metadata
    states: tuple[StateEdit | Interchange, ...] = ()
    memories: tuple[MemoryEdit | Transplant, ...] = ()

    @property
    def rules(self) -> tuple[DonorRule, ...]:
        """How donors are drawn; none if the edits need none. Edits with donors are made by `EditsWithDonors`."""
        edits = (*self.memories, *self.states)
        return tuple(dict.fromkeys(edit.donor for edit in edits if isinstance(edit, Transplant | Interchange)))

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers whose states are edited."""
        return tuple(dict.fromkeys(edit.layer for edit in self.states))

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor | None = None) -> MemoryState:
        """See `imagination.TickEdits`."""
        agents = torch.arange(memory.hidden.shape[1])
        return self.begun(memory, torch.full_like(agents, tick), agents, {})

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """See `imagination.TickEdits`."""
        return {layer: self._hook(layer, before) for layer in self.layers}

    def begun(
        self, memory: MemoryState, age: torch.Tensor, agents: torch.Tensor, donors: Mapping[DonorRule, MemoryState]
    ) -> MemoryState:
        """Return the memory with which B agents begin a tick.

        Args:
            age: in how many ticks each was edited before, (B,) int64.
            agents: their numbers, (B,) int64.
            donors: memories with which the donors begin the tick, by rule.
        """
        for planned in self.memories:
            edit = planned.taking(donors[planned.donor]) if isinstance(planned, Transplant) else planned
            memory = edit.begin(memory, age, agents)
        return memory

    def made(
        self, layer: str, before: MemoryState, states: torch.Tensor, donors: Mapping[DonorRule, torch.Tensor]
    ) -> torch.Tensor:
        """Return the edited states of a layer.

        Args:
            before: memory with which the tick begins, of B agents.
            states: that the tick computed, (B, units).
            donors: their donors' states of the layer, by rule, (B, units) each.
        """
        kind, of_memory = (LSTM_CELL, before.cell) if layer.startswith(LSTM_CELL) else (LSTM_HIDDEN, before.hidden)
        names = memory_names(kind, len(of_memory))
        place = names.index(layer) if layer in names else -1
        for planned in self.states:
            if planned.layer == layer:
                edit = planned.taking(donors[planned.donor]) if isinstance(planned, Interchange) else planned
                states = edit.edited(of_memory[place], states)
        return states

    def _hook(self, layer: str, before: MemoryState) -> Hook:
        return lambda states: self.made(layer, before, states, {})


def requested_edits(
    options: Sequence[EditOptions], held_out: HeldOut, directions: Directions | None,
    dictionary: SparseDictionary | None,
) -> list[Edits]:  # fmt: skip
    """Return what the options ask for: one set of edits for each dose, or a single one without doses.

    Raises:
        UserError: a direction, a sparse feature or a variable does not exist, or does not fit the policy or the edit; a
            variable does not vary; or simulated lives do not have the feature in which donors are to differ.
    """
    units, origin = held_out.model.policy.layer_units, held_out.origin
    if dictionary:
        check_dictionary(dictionary, units, origin.policy, origin.policy_sha256)
    made = [_edit(option, held_out, directions, dictionary) for option in options]
    doses: list[float | None] = [dose for option in options for dose in option.doses] or [None]
    return [_with_dose(options, made, dose) for dose in doses]


def _with_dose(options: Sequence[EditOptions], made: Sequence[Made], dose: float | None) -> Edits:
    words, described, edits = list[str](), list[dict[str, Any]](), list[Edit]()
    for option, (own, edit) in zip(options, made, strict=True):
        strength = dose if option.doses else None
        words += [option.edit, *(name.replace("/", "_") for name in option.names)]
        words += [*option.variables, option.erased_layer] if option.erased_layer else []
        words += ["change"] if option.change else []
        words += [f"dose{strength:+g}"] if strength is not None else []
        words += [f"every_{option.every}"] if option.every > 1 else []
        words += [option.donor] if option.donor else []
        more = {"dose": strength, "every": option.every if option.every > 1 else None, "donor": option.donor}
        described.append(own | {name: value for name, value in more.items() if value is not None})
        edits.append(edit(strength or 0.0))
    return Edits(
        "-".join(words), tuple(described),
        tuple(part for part in edits if isinstance(part, StateEdit | Interchange)),
        tuple(part for part in edits if isinstance(part, MemoryEdit | Transplant)),
    )  # fmt: skip


def _edit(
    options: EditOptions, held_out: HeldOut, directions: Directions | None, dictionary: SparseDictionary | None
) -> Made:
    """Find what the names in an edit stand for."""
    model, policy, described = held_out.model, held_out.origin.policy, dict[str, Any](edit=options.edit)
    if features := features_of(options, dictionary):
        source = features.dictionary.source
        described |= {"features": list(options.names)} if options.names else {}
        described |= {"layer": source.layer, "dictionary": f"{source.run}/{features.dictionary.kind}"}
        return described, lambda dose: replace(features, strength=dose)
    if options.erased_layer:
        return _erasure(options, options.erased_layer, held_out)
    if options.edit == "clear":
        return described, lambda dose: Clear(options.every)
    if options.edit == "freeze":
        return described, lambda dose: Freeze()
    rule = _rule(options.donor, held_out) if options.donor else None
    if rule and options.edit == "transplant":
        return described, lambda dose: Transplant(rule, options.every)
    named = directions.all_named(options.names) if directions else ()
    of: EditOf = "change" if options.change else "state"
    for direction in named:
        check_direction(direction, of, model.policy.layer_units, policy, held_out.origin.policy_sha256)
    described |= {
        "directions": [direction.name for direction in named],
        "of": of,
        "runs": [direction.source.run for direction in named],
    }
    if rule:
        own = held_out.covariance(named[0].layer) if options.along == "covariance" else None
        return described, lambda dose: interchange(named, rule, own)
    kind = cast(Any, options.edit)
    return described, lambda dose: edit_along(kind, named, of, dose, held_out.covariance, options.along)


def _rule(feature: str, held_out: HeldOut) -> DonorRule:
    layout = held_out.model.layout
    rule = DonorRule.parse(feature, layout.entity_columns)
    column = feature.removeprefix(OWN)
    if column not in own_columns(layout) or column in held_out.model.policy.mask.withheld:
        raise UserError(
            f"--donor {feature}: simulated lives do not have it, since they hold only what {held_out.origin.policy} "
            "sees of its own body: name another feature, such as self_gold"
        )
    return rule


def _erasure(options: EditOptions, layer: str, held_out: HeldOut) -> Made:
    policy = held_out.model.policy
    check_policy_layers([layer], policy.layers, policy.cell)
    for name in options.variables:
        check_feature(f"--variable {options.variable}", name, held_out.model.layout.entity_columns)
    reading = Reading(layer, options.variables)
    moments = held_out.moments(reading)
    eraser = fitted_eraser(reading, moments, held_out.origin.policy)
    before = dict(zip(options.variables, moments.r_squared().round(6).tolist(), strict=True))
    described = {"edit": options.edit, "layer": layer, "r_squared": before, "states": moments.sums.count}
    return described, lambda dose: eraser


class UneditedLives:
    """What S unedited lives can give, tick by tick. As edits of these lives, it changes nothing and keeps their states.

    Attributes:
        states: of the watched layers in each tick, by layer, (S, units) each.
        own: own rows that the policy sees in each tick, (S, columns), divided by scales.
        alive: which lives are not over in each tick, (S,) bool.
    """

    def __init__(self, layers: Sequence[str]):
        self.memory: list[MemoryState] = []
        self.states: dict[str, list[torch.Tensor]] = {layer: [] for layer in layers}
        self.own: list[torch.Tensor] = []
        self.alive: list[np.ndarray] = []

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor) -> MemoryState:
        """See `imagination.TickEdits`."""
        self.memory.append(memory)
        self.own.append(own)
        return memory

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """See `imagination.TickEdits`."""
        return {layer: kept.append for layer, kept in self.states.items()}

    def lived(self, alive: np.ndarray) -> None:
        """Keep which lives are not over in the latest tick, (S,) bool."""
        self.alive.append(alive.copy())


class EditsWithDonors:
    """Edits of the lives of one batch; a life without a donor for every edit is not edited in that tick.

    Attributes:
        donors: of the latest tick, by rule: the number of each edited life's donor, (E,) int64.
        edited: the lives that are edited in it, (E,) int64.
    """

    def __init__(self, edits: Edits, unedited: UneditedLives, layout: ObservationLayout, seed: int, batch: int):
        self._edits, self._unedited, self._key = edits, unedited, (seed, batch)
        self._columns, self._scale = own_columns(layout), entity_features(layout).scale
        self._age: torch.Tensor | None = None
        self._tick = 0
        self.donors: dict[DonorRule, torch.Tensor] = {}
        self.edited = torch.arange(0)

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor) -> MemoryState:
        """See `imagination.TickEdits`."""
        lives = memory.hidden.shape[1]
        if self._age is None:
            self._age = torch.zeros(lives, dtype=torch.int64)
        self._tick = tick
        self._draw(own.detach())
        begun = MemoryState(memory.hidden.clone(), memory.cell.clone())
        if len(self.edited):
            memories = {rule: self._unedited.memory[tick].take(lives) for rule, lives in self.donors.items()}
            mine = self._edits.begun(memory.take(self.edited), self._age[self.edited], self.edited, memories)
            begun.put(self.edited, mine)
            self._age[self.edited] += 1
        return begun

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """See `imagination.TickEdits`."""
        if not len(self.edited):
            return {}
        return {layer: self._hook(layer, before.take(self.edited)) for layer in self._edits.layers}

    def _hook(self, layer: str, before: MemoryState) -> Hook:
        edited, theirs = self.edited, self._unedited.states[layer][self._tick]
        given = {rule: theirs[lives] for rule, lives in self.donors.items()}
        return lambda states: states.index_copy(0, edited, self._edits.made(layer, before, states[edited], given))

    def _draw(self, own: torch.Tensor) -> None:
        """Draw the donors of a tick, given the own rows of all lives, (S, columns)."""
        drawn = {rule: self._drawn(rule, own) for rule in self._edits.rules}
        has_all = np.all([places >= 0 for places in drawn.values()], axis=0)
        self.edited = torch.from_numpy(np.flatnonzero(has_all))
        self.donors = {rule: torch.from_numpy(places[has_all]) for rule, places in drawn.items()}

    def _drawn(self, rule: DonorRule, own: torch.Tensor) -> np.ndarray:
        """Return the number of each life's donor, (S,) int64; -1 for none."""
        if self._tick >= len(self._unedited.alive):  # all unedited lives are over
            return np.full(len(own), -1)
        (possible,) = np.nonzero(self._unedited.alive[self._tick])
        mine, theirs = (self._values(rule, side) for side in (own, self._unedited.own[self._tick]))
        distance = np.abs(theirs[possible] - mine[:, None])  # (S, D)
        distance[np.arange(len(own))[:, None] == possible] = 0
        seed, batch = self._key
        key = [_STREAM, seed, batch, self._tick, zlib.crc32(rule.feature.encode())]
        places = far_donors(distance, np.random.default_rng(np.random.SeedSequence(key)).random(len(own)))
        return np.where(places >= 0, possible[places] if len(possible) else -1, -1)

    def _values(self, rule: DonorRule, own: torch.Tensor) -> np.ndarray:
        """Values of the rule's feature in the game's units, (S,)."""
        rows = (own.detach() * self._scale).round().double().numpy()
        return feature_values(rule.feature, rows, self._columns, self._tick)
