"""What random edits would do at once in the states of the edit's own arm: many controls, at a forward pass a tick each.

A control that is played shows what it does to lives, but costs a whole arm. At once, a control is what the policy would
have done in the very state in which an agent was edited, had it been edited along a random direction instead.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from activation_store.interventions import IN_PLAY, compared
from agent_zoo.donor_rule import DonorRule
from reinforcement_learning.interventions.donor_outcomes import DonorOutcomes
from reinforcement_learning.interventions.donors import Donors


class ControlAtOnce:
    """What one control did at once, for every slot during one group of episodes."""

    def __init__(self, name: str, slots: int):
        """Start to count for this number of slots."""
        self.name = name
        self._ticks = np.zeros(slots)
        self._sums: dict[str, np.ndarray] = {}
        self._donor_outcomes = DonorOutcomes(slots)

    def add(self, slots: np.ndarray, numbers: Mapping[str, torch.Tensor], donors: Mapping[DonorRule, Donors]) -> None:
        """Add a tick of E agents: their slots, (E,) int64, what the control did, (E,) by name, and their donors.

        A control edits the state that the edit's own arm was in, so it is compared in play, never in total.
        """
        self._ticks[slots] += 1
        for name, values in numbers.items():
            of_slots = self._sums.setdefault(compared(name, IN_PLAY), np.zeros(len(self._ticks)))
            of_slots[slots] += values.cpu().numpy()
        if donors:
            self._donor_outcomes.add(slots, numbers, donors)

    def row(self, slot: int) -> dict[str, Any]:
        """Return the outcomes of one life by name; none if it was never edited."""
        ticks = self._ticks[slot]
        means = {name: sums[slot] / ticks for name, sums in self._sums.items()} if ticks else {}
        return {**means, **self._donor_outcomes.row(slot)}


def donors_behind(count: int, donors: Mapping[DonorRule, Donors]) -> tuple[torch.Tensor, dict[DonorRule, Donors]]:
    """Line donors up behind E edited agents.

    Args:
        count: E.
        donors: of the edited agents.

    Returns:
        Rows of all donors among the acting agents, (D,), and the donors with their rows among E + D agents instead.
    """
    found, rows = {}, [torch.zeros(0, dtype=torch.int64)]
    behind = count
    for rule, each in donors.items():
        rows.append(each.rows)
        found[rule] = replace(each, rows=torch.arange(behind, behind + len(each.rows)))
        behind += len(each.rows)
    return torch.cat(rows), found
