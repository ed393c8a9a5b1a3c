"""Edits of the policy inside a world model: as users ask for them, as they are made, and what they do at once.

Edits with donors take something from other lives of the same tick, which nobody edits: the unedited lives of the same
starts and dice that are alive in that tick. The one that begins as the edited life does is no donor of its.

At once, two outputs of the policy are compared in each tick, without and with the edit of this tick, as intervene.py
compares them in play: as the gradient predicts it, in full on recorded ticks, and in full in simulated ones, from the
same recorded starts.
"""

import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from activation_store.directions import Directions
from activation_store.interventions import Outcome
from activation_store.schema import OPTIONS
from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import Hook, MemoryState
from agent_zoo.network_parts.layers import entity_features
from agent_zoo.observation import ObservationLayout, PackedObservation
from agent_zoo.soft_path import SoftChoices, SoftObservation, soft_tick
from analysis.interventions.edits.donor_rule import DonorRule, far_donors
from analysis.interventions.edits.edit import Edit, MadeEdits, made_together
from analysis.interventions.edits.edit_options import OWN, EditOptions, feature_values
from analysis.interventions.edits.linear_readings import JointMoments, Reading
from analysis.interventions.edits.state_edits import check_dictionary
from analysis.world_model.held_out import HeldOut
from analysis.world_model.imagination import MOVE_HEAD, STYLE_HEAD, imagine, informed_start, lived
from analysis.world_model.model import WorldModel
from analysis.world_model.options import SETTLING
from analysis.world_model.scene import own_columns
from analysis.world_model.windows import CONTEXT, Windows
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


Made = Literal["in every tick", "once"]
QUANTITIES = {
    "value": Outcome("value_change", against="in_play").name,
    **{
        f"probability of {name}": Outcome("gain", f"{head}/{name.title()}", "in_play").name
        for head, names in OPTIONS.items()
        for name in names
    },
}
"""What is compared, by the names of the outcomes of intervene.py that say how much it changed at once, in play: what a
gradient predicts is what this tick's edit does in the state that it finds."""
SIDES = ("predicted", "replayed", "simulated")
"""Predicted by the gradient on recorded ticks; the same edit in full on recorded ticks; in full in simulated ticks."""

Play = Callable[[MemoryState], tuple[torch.Tensor, MemoryState]]
"""Plays a tick of B agents that see one observation, given their memory before it. Returns the value and the
probabilities of moves and attack styles, (B, quantities) in the order of `QUANTITIES`, and the memory after
the tick."""


def soft_quantities(choices: SoftChoices) -> torch.Tensor:
    """Return the quantities of choices on probabilities, (B, quantities)."""
    heads = [choices.log_probabilities[head].exp() for head in (MOVE_HEAD, STYLE_HEAD)]
    return torch.cat([choices.value.unsqueeze(1), *heads], dim=1)


def soft_play(policy: RecurrentPolicy, observation: SoftObservation) -> Play:
    """Return the tick of agents that see probabilities."""

    def play(memory: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        choices, after = soft_tick(policy, observation, memory)
        return soft_quantities(choices), after

    return play


def exact_play(policy: RecurrentPolicy, observation: PackedObservation) -> Play:
    """Return the tick of agents that see recorded observations."""

    def play(memory: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        distribution, value, after = policy(observation, memory)
        place = {head.name: index for index, head in enumerate(distribution.heads)}
        heads = [distribution.log_probabilities_of(place[head]).exp() for head in (MOVE_HEAD, STYLE_HEAD)]
        return torch.cat([value.view(-1, 1), *heads], dim=1), after

    return play


def made(
    policy: RecurrentPolicy, play: Play, before: MemoryState, edits: Edits, tick: int
) -> tuple[torch.Tensor, MemoryState]:
    """Play a tick with edits.

    Args:
        tick: since the edits began, from 0.
    """
    begun = edits.begin(before, tick)
    with policy.hooked(edits.hooks(begun)):
        return play(begun)


def first_order(policy: RecurrentPolicy, play: Play, before: MemoryState, edits: Edits, tick: int) -> torch.Tensor:
    """Return the change of each quantity that the gradient predicts, (B, quantities).

    Each state is moved by a share of what the edit does to it. The prediction is the derivative by that share, at 0.
    Arguments as for `made`.
    """
    with torch.enable_grad():
        share = torch.zeros(before.hidden.shape[1], 1, requires_grad=True)  # (B, 1)
        begun = edits.begin(before, tick)
        memory = MemoryState(
            *(old + share * (new - old) for old, new in ((before.hidden, begun.hidden), (before.cell, begun.cell)))
        )

        def partly(hook: Hook) -> Hook:
            def edit(states: torch.Tensor) -> torch.Tensor:
                edited = hook(states.detach())
                assert edited is not None
                return states + share * (edited - states).detach()

            return edit

        with policy.hooked({layer: partly(hook) for layer, hook in edits.hooks(before).items()}):
            quantities, _ = play(memory)
        columns = range(quantities.shape[1])
        slopes = [torch.autograd.grad(quantities[:, column].sum(), share, retain_graph=True)[0] for column in columns]
    return torch.cat(slopes, dim=1)


@torch.no_grad()
def changes_at_once(
    model: WorldModel, windows: Windows, observation: PackedObservation, edits: Edits, how: Made, ticks: int, seed: int
) -> dict[str, np.ndarray]:
    """Return the mean changes of all `SIDES`, (windows, quantities) each.

    Args:
        how: in every tick; or once, in each tick of lives that are not edited otherwise.
    """
    predicted, replayed = _replayed(model, windows, observation, edits, how, ticks)
    return {
        "predicted": predicted,
        "replayed": replayed,
        "simulated": _simulated(model, windows, edits, how, ticks, seed),
    }


def _replayed(
    model: WorldModel, windows: Windows, observation: PackedObservation, edits: Edits, how: Made, ticks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Make the edits while the policy sees what was recorded: changes by the gradient, and in full."""
    policy, once = model.policy, how == "once"
    memory = windows.memory(CONTEXT - 2, torch.arange(len(windows)))  # a copy: it goes on, and the recorded one stays
    predicted, replayed = (_no_changes(windows, ticks) for _ in range(2))
    for tick in range(CONTEXT - 1, min(windows.ticks, CONTEXT - 1 + ticks)):
        (there,) = (windows.lengths > tick).nonzero(as_tuple=True)
        number = tick - (CONTEXT - 1)
        before = windows.memory(tick - 1, there) if once else memory.take(there)
        play = exact_play(policy, observation.take(windows.starts[there] + tick))
        age = 0 if once else number
        plain, _ = play(before)
        edited, after = made(policy, play, before, edits, age)
        memory.put(there, after)
        predicted[number, there] = first_order(policy, play, before, edits, age).double()
        replayed[number, there] = (edited - plain).double()
    return _over_ticks(predicted, how), _over_ticks(replayed, how)


def _simulated(
    model: WorldModel, windows: Windows, edits: Edits, how: Made, ticks: int, seed: int
) -> np.ndarray:  # fmt: skip
    """Make the edits in simulated lives, (windows, quantities)."""
    generator = torch.Generator().manual_seed(seed)
    start = informed_start(model, windows, generator)
    before, changes, once = start.memory, _no_changes(windows, ticks), how == "once"
    steps = imagine(model, start, ticks, generator, (), None if once else edits)
    for number, (tick, alive, ends) in enumerate(lived(steps, generator)):
        play, own = soft_play(model.policy, tick.view.observation), soft_quantities(tick.choices)
        edited, plain = (made(model.policy, play, before, edits, 0)[0], own) if once else (own, play(before)[0])
        changes[number, alive] = (edited - plain)[alive].double()
        before = tick.memory
        if not (alive & ~ends).any():
            break
    return _over_ticks(changes, how)


def _no_changes(windows: Windows, ticks: int) -> torch.Tensor:
    """Return changes of each tick, start and quantity, of which none is known yet."""
    return torch.full((ticks, len(windows), len(QUANTITIES)), torch.nan, dtype=torch.float64)


def _over_ticks(changes: torch.Tensor, how: Made) -> np.ndarray:
    """Return means over the ticks that count and are known, (starts, quantities)."""
    counted = changes[0 if how == "once" else SETTLING :].numpy()
    known = (~np.isnan(counted)).sum(axis=0)
    return np.divide(np.nansum(counted, axis=0), known, out=np.full(known.shape, np.nan), where=known > 0)
