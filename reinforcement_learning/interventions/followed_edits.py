"""How long an edit lasts: agents that were edited in one tick, beside copies of them that were not.

A copy has the memory that the agent would have had without the edit, and from then on gets the observations of the
edited agent. So the two differ in nothing but what is left of the edit.
"""

from typing import Any

import numpy as np
import torch

from activation_store.interventions import LASTING
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from reinforcement_learning.play.stepper import Decision

_NOT_FOLLOWED = -1


class FollowedEdits:
    """The copies of one group of episodes."""

    def __init__(self, policy: RecurrentPolicy, slots: int, ticks: int):
        """Follow agents in so many slots for `ticks` ticks after each edit."""
        self._policy, self._ticks = policy, ticks
        self._copies = policy.initial_state(slots)
        self._lag = np.full(slots, _NOT_FOLLOWED)
        self._first: dict[str, np.ndarray] = {}
        self._sums: dict[str, np.ndarray] = {}
        self._count: dict[str, np.ndarray] = {}

    def due(self, slots: np.ndarray) -> np.ndarray:
        """Say which agents are to be edited in a tick, (B,) bool: those that are not followed in it."""
        lag = self._lag[slots]
        return np.asarray((lag == _NOT_FOLLOWED) | (lag == self._ticks))

    def begin(self, slots: np.ndarray, edited: MemoryState, unedited: MemoryState, divergence: np.ndarray) -> None:
        """Begin to follow E agents, after the tick in which they were edited.

        Args:
            slots: of the agents, (E,) int64.
            edited: their memories after the tick.
            unedited: the memories that they would have without the edit.
            divergence: of their distributions over actions, with the edit from without, (E,) nats.
        """
        self._lag[slots] = 0
        self._copies.put(torch.from_numpy(slots).to(unedited.hidden.device), unedited)
        apart = _apart(edited, unedited)
        for name, far in apart.items():
            self._first.setdefault(name, np.zeros(len(self._lag)))[slots] = far
        self._add(slots, apart, divergence)

    @torch.no_grad()
    def follow(self, decision: Decision) -> None:
        """Play a tick of the copies of all followed agents, and compare them with the agents' own decision."""
        self._lag[self._lag >= 0] += 1
        self._lag[self._lag > self._ticks] = _NOT_FOLLOWED
        rows = np.flatnonzero(self._lag[decision.present] >= 0)
        if not len(rows):
            return
        slots, chosen = decision.present[rows], torch.from_numpy(rows)
        device = self._copies.hidden.device
        places = torch.from_numpy(slots).to(device)
        seen = decision.observation.take(chosen).to(device)
        distribution, _, after = self._policy(seen, self._copies.take(places))
        self._copies.put(places, after)
        divergence = distribution.divergence(decision.distribution.take(chosen.to(device))).sum(dim=1)
        self._add(slots, _apart(decision.next_state.take(chosen.to(device)), after), divergence.cpu().numpy())

    def row(self, slot: int) -> dict[str, Any]:
        """Return what is left after each number of ticks of one life's edits, on average, by name."""
        return {
            f"{name}/{lag}": float(self._sums[name][slot, lag] / count)
            for name, counts in self._count.items()
            for lag, count in enumerate(counts[slot])
            if count
        }

    def _add(self, slots: np.ndarray, apart: dict[str, np.ndarray], divergence: np.ndarray) -> None:
        lag = self._lag[slots]
        self._count_in(f"{LASTING}actions", slots, lag, divergence)
        for name, far in apart.items():
            first = self._first[name][slots]
            moved = first > 0
            self._count_in(LASTING + name, slots[moved], lag[moved], far[moved] / first[moved])

    def _count_in(self, name: str, slots: np.ndarray, lag: np.ndarray, values: np.ndarray) -> None:
        shape = len(self._lag), self._ticks + 1
        self._sums.setdefault(name, np.zeros(shape))[slots, lag] += values
        self._count.setdefault(name, np.zeros(shape, dtype=np.int64))[slots, lag] += 1


def _apart(one: MemoryState, other: MemoryState) -> dict[str, np.ndarray]:
    """Euclidean distance of two memories of each agent over all layers, (B,) for each kind of state they have."""
    states = {"hidden": one.hidden - other.hidden, "cell": one.cell - other.cell}
    return {
        name: each.double().square().sum(dim=(0, 2)).sqrt().cpu().numpy() for name, each in states.items() if len(each)
    }
