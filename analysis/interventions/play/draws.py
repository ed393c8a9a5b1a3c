"""Lots: which agents of an episode are edited, the same in every arm, and from whom they take something.

The episodes of a group are played tick by tick together, so all agents alive are in the same tick of their episode. A
donor may live in another world of the group. Lots depend on the episodes, the tick and the agent alone, so they are the
same in every run and for any number of processes.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agent_zoo.network_parts.own_features import feature_values
from analysis.interventions.edits.donor_rule import DonorRule, far_donors

_EDITED_STREAM = 0x1D7A  # apart from the streams that seats, tasks, maps and actions are drawn from


def drawn_agents(seed: int, number: int, agents: int, count: int) -> np.ndarray:
    """Draw `count` of an episode's agents, (agents,) bool.

    Args:
        count: how many to draw, at most all.
    """
    random = np.random.default_rng(np.random.SeedSequence([_EDITED_STREAM, seed, number]))
    drawn = np.zeros(agents, dtype=bool)
    drawn[random.permutation(agents)[:count]] = True
    return drawn


_DONOR_STREAM = 0xD0_0E  # apart from the streams that seats, tasks, maps, actions and edited agents are drawn from


@dataclass(frozen=True, eq=False)
class Donors:
    """The donors of E edited agents in one tick.

    Attributes:
        rows: of the donors among the acting agents, (E,) int64.
        own: values of the edited agents, (E,) float64.
        given: values of their donors, (E,) float64.
    """

    rows: torch.Tensor
    own: np.ndarray
    given: np.ndarray


class DonorLots:
    """Draws the donors of a group of episodes."""

    def __init__(self, rules: Sequence[DonorRule], drawn: np.ndarray, seed: int, numbers: Sequence[int]):
        """Prepare to draw.

        Args:
            drawn: which slots are edited, and so never donors, (slots,) bool.
        """
        self.rules = tuple(dict.fromkeys(rules))
        self._drawn, self._seed, self._numbers = drawn, seed, numbers

    def draw(
        self, edited: np.ndarray, slots: np.ndarray, own_rows: np.ndarray, columns: Sequence[str], tick: int
    ) -> tuple[np.ndarray, Mapping[DonorRule, Donors]]:
        """Draw the donors of a tick.

        Args:
            edited: rows of the edited agents among the B acting ones, (E,) int64.
            slots: of the acting agents, ascending, (B,) int64.
            own_rows: their own rows in the game, (B, columns).
            tick: of the episode, from 0.

        Returns:
            The edited agents that have a donor by every rule, (at most E,), and their donors. Without rules these are
            all edited agents.
        """
        possible = np.flatnonzero(~self._drawn[slots])  # ascending slots, which decide between equal distances
        chosen, values = {}, {}
        for rule in self.rules:
            values[rule] = feature_values(rule.feature, own_rows, columns, tick).astype(np.float64)
            lots = self._lots(rule, tick)[slots[edited]]
            chosen[rule] = _choose(rule, values[rule][edited], values[rule][possible], lots)
        have_one = np.all([places >= 0 for places in chosen.values()], axis=0) if chosen else slice(None)
        edited = edited[have_one]
        donors = {}
        for rule, places in chosen.items():
            rows = possible[places[have_one]]
            donors[rule] = Donors(torch.from_numpy(rows), values[rule][edited], values[rule][rows])
        return edited, donors

    def _lots(self, rule: DonorRule, tick: int) -> np.ndarray:
        """One number for each slot, (slots,) from 0 to below 1; the same in all arms with the same rule."""
        lottery = 0 if rule.lottery is None else 1 + rule.lottery
        key = [_DONOR_STREAM, self._seed, tick, lottery, zlib.crc32(rule.feature.encode()), *self._numbers]
        return np.random.default_rng(np.random.SeedSequence(key)).random(len(self._drawn))


def _choose(rule: DonorRule, own: np.ndarray, possible: np.ndarray, lots: np.ndarray) -> np.ndarray:
    """Return the places of donors, (E,) int64; -1 where no possible donor has another value.

    Args:
        own: values of the edited agents, (E,).
        possible: values of the possible donors, (D,).
        lots: from 0 to below 1, (E,).
    """
    distance = np.abs(possible - own[:, None])  # (E, D)
    if rule.lottery is None:
        return far_donors(distance, lots)
    return np.where((distance > 0).any(axis=1), (lots * len(possible)).astype(np.int64), -1)
