"""Edits with donors inside a simulation: lives take something from other lives of the same tick, which nobody edits.

Donors are the unedited lives of the same starts and dice, alive in the same tick of the simulation. The one that begins
as the edited life does is no donor of its.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import torch

from agent_zoo.donor_rule import DonorRule, far_donors
from agent_zoo.hooks import Hook
from agent_zoo.layers import entity_features
from agent_zoo.memory import MemoryState
from agent_zoo.observation import ObservationLayout
from agent_zoo.own_features import feature_values
from representation.world_model.edits import Edits, Given
from representation.world_model.scene import own_columns

_STREAM = 0xD0_0F  # apart from the streams that starts and dice are drawn from


class UneditedLives:
    """What S unedited lives can give, tick by tick. As edits of these lives, it changes nothing and keeps their states.

    Attributes:
        memory: with which each tick begins.
        states: of the watched layers in each tick, by layer, (S, units) each.
        own: own rows that the policy sees in each tick, (S, columns), divided by scales.
        alive: which lives are not over in each tick, (S,) bool.
    """

    def __init__(self, layers: Sequence[str]):
        """Watch these layers."""
        self.memory: list[MemoryState] = []
        self.states: dict[str, list[torch.Tensor]] = {layer: [] for layer in layers}
        self.own: list[torch.Tensor] = []
        self.alive: list[np.ndarray] = []

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor) -> MemoryState:
        """See `edits.TickEdits`."""
        self.memory.append(memory)
        self.own.append(own)
        return memory

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """See `edits.TickEdits`."""
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
        """Prepare to draw.

        Args:
            edits: to make.
            unedited: lives of the same starts.
            layout: of observations.
            seed: of the simulation.
            batch: number of the batch.
        """
        self._edits, self._unedited, self._key = edits, unedited, (seed, batch)
        self._columns, self._scale = own_columns(layout), entity_features(layout).scale
        self._age: torch.Tensor | None = None
        self._tick = 0
        self.donors: dict[DonorRule, torch.Tensor] = {}
        self.edited = torch.arange(0)

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor) -> MemoryState:
        """See `edits.TickEdits`."""
        lives = memory.hidden.shape[1]
        if self._age is None:
            self._age = torch.zeros(lives, dtype=torch.int64)
        self._tick = tick
        self._draw(own.detach())
        begun = MemoryState(memory.hidden.clone(), memory.cell.clone())
        if len(self.edited):
            mine = self._edits.begun(memory.take(self.edited), self._age[self.edited], self.edited, self._given())
            begun.put(self.edited, mine)
            self._age[self.edited] += 1
        return begun

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """See `edits.TickEdits`."""
        if not len(self.edited):
            return {}
        return {layer: self._hook(layer, before.take(self.edited)) for layer in self._edits.layers}

    def _hook(self, layer: str, before: MemoryState) -> Hook:
        edited, given = self.edited, self._given()
        return lambda states: states.index_copy(0, edited, self._edits.made(layer, before, states[edited], given))

    def _given(self) -> Given:
        kept, tick, donors = self._unedited, self._tick, self.donors
        return Given(
            {rule: kept.memory[tick].take(lives) for rule, lives in donors.items()},
            {(rule, layer): each[tick][lives] for rule, lives in donors.items() for layer, each in kept.states.items()},
        )

    def _draw(self, own: torch.Tensor) -> None:
        """Draw the donors of a tick, given the own rows of all lives, (S, columns)."""
        drawn = {rule: self._drawn(rule, own) for rule in self._edits.rules}
        has_all = np.all([each >= 0 for each in drawn.values()], axis=0)
        self.edited = torch.from_numpy(np.flatnonzero(has_all))
        self.donors = {rule: torch.from_numpy(each[has_all]) for rule, each in drawn.items()}

    def _drawn(self, rule: DonorRule, own: torch.Tensor) -> np.ndarray:
        """Return the number of each life's donor, (S,) int64; -1 for none."""
        if self._tick >= len(self._unedited.alive):  # all unedited lives are over
            return np.full(len(own), -1)
        (possible,) = np.nonzero(self._unedited.alive[self._tick])
        mine, theirs = (self._values(rule, each) for each in (own, self._unedited.own[self._tick]))
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
