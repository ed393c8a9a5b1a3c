"""Edits of the policy inside a world model, in every tick of a simulation: as users ask for them, and as they are made.

Edits with donors take something from other lives of the same tick, which nobody edits: the unedited lives of the same
starts and dice that are alive in that tick. The one that begins as the edited life does is no donor of its.
"""

import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from activation_store.directions import Directions
from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.memory import Hook, MemoryState
from agent_zoo.network_parts.layers import entity_features
from agent_zoo.observation import ObservationLayout
from analysis.interventions.edits.donor_rule import DonorRule, far_donors
from analysis.interventions.edits.edit import Edit, MadeEdits, made_together
from analysis.interventions.edits.edit_options import OWN, EditOptions, feature_values
from analysis.interventions.edits.linear_readings import JointMoments, Reading
from analysis.interventions.edits.state_edits import check_dictionary
from analysis.world_model.held_out import HeldOut
from analysis.world_model.scene import own_columns
from common.user_error import UserError

_STREAM = 0xD0_0F  # apart from the streams that starts and dice are drawn from


@dataclass(frozen=True, eq=False)
class Edits(MadeEdits):
    """What is done to the policy in every tick."""

    name: str  # such as steer-ic_3-dose+2
    described: tuple[dict[str, Any], ...]  # each edit as it is written to a dump's metadata

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor | None = None) -> MemoryState:
        """See `imagination.TickEdits`."""
        agents = torch.arange(memory.hidden.shape[1])
        return self.begun(memory, torch.full_like(agents, tick), agents, {})

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """See `imagination.TickEdits`."""
        return {layer: functools.partial(self.edited, layer, before, donors={}) for layer in self.layers}


def requested_edits(
    options: Sequence[EditOptions], held_out: HeldOut, directions: Directions | None,
    dictionary: SparseDictionary | None,
) -> list[Edits]:  # fmt: skip
    """Return what the options ask for: one set of edits for each dose, or a single one without doses.

    Raises:
        UserError: a direction, a sparse feature or a variable does not exist, or does not fit the policy or the edit; a
            variable does not vary; or simulated lives do not have the feature in which donors are to differ.
    """
    policy, origin, columns = held_out.model.policy, held_out.origin, held_out.model.layout.entity_columns
    if dictionary:
        check_dictionary(dictionary, policy.layer_units, origin.policy, origin.policy_sha256)
    edits = [Edit.named(option, directions, dictionary, policy, columns) for option in options]
    for edit in edits:
        edit.check(policy.layer_units, origin.policy, origin.policy_sha256)
        if edit.donor:
            _check_donor(edit.donor.feature, held_out)
    # Both read the recorded dump, once for all doses.
    covariance, moments = functools.cache(held_out.covariance), functools.cache(held_out.moments)
    doses: list[float | None] = [dose for option in options for dose in option.doses] or [None]
    return [
        Edits(
            "-".join(word for option in options for word in _words(option, dose)),
            tuple(_described(option, edit, dose, moments) for option, edit in zip(options, edits, strict=True)),
            **made_together(edit.made(dose, covariance, moments, origin.policy) for edit in edits),
        )
        for dose in doses
    ]


def _words(option: EditOptions, dose: float | None) -> list[str]:
    """The words of an edit in the name of a dump."""
    words = [option.edit, *(name.replace("/", "_") for name in option.names)]
    words += [*option.variables, option.erased_layer] if option.erased_layer else []
    words += ["change"] if option.change else []
    words += [f"dose{dose:+g}"] if option.doses else []
    words += [f"every_{option.every}"] if option.every > 1 else []
    return [*words, option.donor] if option.donor else words


def _described(
    option: EditOptions, edit: Edit, dose: float | None, moments: Callable[[Reading], JointMoments]
) -> dict[str, Any]:
    """An edit as it is written to a dump's metadata."""
    described: dict[str, Any] = {"edit": option.edit}
    if edit.features:
        source = edit.features.dictionary.source
        described |= {"features": list(option.names)} if option.names else {}
        described |= {"layer": source.layer, "dictionary": f"{source.run}/{edit.features.dictionary.kind}"}
    if edit.erased:
        erased = moments(edit.erased)
        before = dict(zip(option.variables, erased.r_squared().round(6).tolist(), strict=True))
        described |= {"layer": edit.erased.layer, "r_squared": before, "states": erased.sums.count}
    if edit.directions:
        described |= {
            "directions": list(edit.names), "of": edit.of,
            "runs": [direction.source.run for direction in edit.directions],
        }  # fmt: skip
    more = {
        "dose": dose if option.doses else None, "every": edit.every if edit.every > 1 else None, "donor": option.donor
    }  # fmt: skip
    return described | {name: value for name, value in more.items() if value is not None}


def _check_donor(feature: str, held_out: HeldOut) -> None:
    column, withheld = feature.removeprefix(OWN), held_out.model.policy.mask.withheld
    if column not in own_columns(held_out.model.layout) or column in withheld:
        raise UserError(
            f"--donor {feature}: simulated lives do not have it, since they hold only what {held_out.origin.policy} "
            "sees of its own body: name another feature, such as self_gold"
        )


class UneditedLives:
    """What S unedited lives can give, tick by tick. As edits of these lives, it changes nothing and keeps their states.

    Attributes:
        states: of the watched layers in each tick, by layer, (S, units) each.
        own: own rows that the policy sees in each tick, (S, columns), divided by scales.
        alive: which lives are not over in each tick, (S,) bool; whoever plays them adds it.
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
        return lambda states: states.index_copy(0, edited, self._edits.edited(layer, before, states[edited], given))

    def _draw(self, own: torch.Tensor) -> None:
        """Draw the donors of a tick, given the own rows of all lives, (S, columns)."""
        drawn = {rule: self._drawn(rule, own) for rule in self._edits.donors}
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
