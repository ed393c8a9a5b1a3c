"""Interchange interventions: read-outs take the values that they have in another agent's state of the same tick.

Exchanging the part of a state that a direction reads, and leaving the rest, is an interchange intervention on a
distributed representation (Geiger et al. 2021, "Causal abstractions of neural networks"; Geiger et al. 2024, "Finding
alignments between interpretable causal variables and distributed neural representations").
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.functional import normalize

from activation_store.directions import Direction
from agent_zoo.donor_rule import DonorRule
from agent_zoo.state_edits import EditOf, ReadOutEdit, StateEdit, collapse


@dataclass(frozen=True, eq=False)
class Interchange:
    """An edit of states that becomes a `StateEdit` in each tick, when the donors' states are known.

    Attributes:
        read_outs: holds the read-outs at constants, in whose place the donors' come.
        donor: how donors are drawn.
        along: None, or for a control orthonormal directions along which states are moved instead, (K, units).
    """

    read_outs: ReadOutEdit
    donor: DonorRule
    along: np.ndarray | None = None

    @property
    def layer(self) -> str:
        """Name of the edited layer."""
        return self.read_outs.layer

    def taking(self, donors: torch.Tensor) -> StateEdit:
        """Return the edit of E agents, given the states of their donors in this tick, (E, units)."""
        edit = replace(self.read_outs, constant=self.read_outs.read_out(donors).cpu().numpy())
        return edit if self.along is None else TowardsDonors(edit, self.along, donors)


@dataclass(frozen=True, eq=False)
class TowardsDonors(StateEdit):
    """Moves each state as far as another edit would, but along other directions, towards its donor's state.

    Attributes:
        original: the other edit.
        directions: orthonormal, (K, units).
        donors: their states, (B, units).
    """

    original: StateEdit
    directions: np.ndarray
    donors: torch.Tensor
    of: EditOf = "state"

    @property
    def layer(self) -> str:  # type: ignore[override]
        """See `StateEdit`."""
        return self.original.layer

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """See `StateEdit.apply`."""
        directions = torch.from_numpy(self.directions).to(activations.device)
        far = (self.original.apply(activations) - activations).double().norm(dim=1, keepdim=True)  # (B, 1)
        towards = (self.donors - activations).double() @ directions.T @ directions  # (B, units)
        return (activations + far * normalize(towards, dim=1)).to(activations.dtype)


def interchange(directions: Sequence[Direction], donor: DonorRule) -> Interchange:
    """Give the read-outs of directions the values that they have in the donor's state.

    Raises:
        UserError: the directions are of several layers, or not independent.
    """
    return Interchange(collapse(directions, "state"), donor)
