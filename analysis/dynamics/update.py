"""The policy's own update of its memory as a function of one vector, and its derivatives by automatic differentiation.

The state of an agent is the vector of all its memory's states: hidden states of all layers, then cell states. Inputs of
the memory (`encoder_output`) are held as recorded: nothing passes through the game.
"""

import copy
from collections.abc import Mapping

import numpy as np
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from analysis.recorded.recorded_observation import state_layers
from common.user_error import UserError

_NO_CELL = 1e-4
"""Below this |tanh(c)|, the output gate cannot be told from h = o tanh(c)."""


class Update:
    """One tick of a memory, in double precision.

    Attributes:
        states: the memory's state layers, in the order in which they make up the vector.
        units: of each of them.
    """

    def __init__(self, policy: RecurrentPolicy):
        """Copy the memory of a policy.

        Raises:
            UserError: the policy has no memory.
        """
        if policy.memory is None:
            raise UserError("the policy is feed-forward: it has no memory whose dynamics could be analysed")
        self._memory = copy.deepcopy(policy.memory).double().requires_grad_(False)
        self._layers = policy.layers
        self.states = tuple(state_layers(policy))
        self.units = policy.policy.hidden_size

    @property
    def size(self) -> int:
        """Numbers in the state vector."""
        return len(self.states) * self.units

    def place(self, layer: str) -> slice:
        """Return where a state layer lies in the vector.

        Raises:
            UserError: it is no state of this memory.
        """
        if layer not in self.states:
            raise UserError(f"{layer} is not a state of this policy's memory, which has: {', '.join(self.states)}")
        start = self.states.index(layer) * self.units
        return slice(start, start + self.units)

    def vector(self, activations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the state vectors of records, (B, S) float32."""
        return np.concatenate([activations[name] for name in self.states], axis=1)

    def __call__(self, state: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        """Return the state after one tick.

        Args:
            state: before it, (B, S) float64.
            read: what the memory reads, (B, units) float64.
        """
        parts = state.unflatten(1, (-1, self.units)).transpose(0, 1)  # (states, B, units)
        before = MemoryState(parts[: self._layers].contiguous(), parts[self._layers :].contiguous())
        _, after = self._memory.play(read.unsqueeze(0), before)
        return torch.cat([after.hidden, after.cell]).transpose(0, 1).flatten(1)

    def push(
        self, state: torch.Tensor, read: torch.Tensor, tangents: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the state after one tick, (B, S), and what becomes of small changes of the state before.

        Args:
            state: before the tick, (B, S).
            read: (B, units).
            tangents: changes, (K, B, S).

        Returns:
            The state, and Jacobian @ change of every record, (K, B, S); by forward-mode differentiation.
        """

        def along(change: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            after, moved = torch.func.jvp(lambda before: self(before, read), (state,), (change,))[:2]
            return after, moved

        after, moved = torch.func.vmap(along)(tangents)
        return after[0], moved

    def jacobian(self, state: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        """Return the derivative of every state after the tick by every state before: (B, S after, S before)."""
        units = torch.eye(self.size, dtype=torch.float64).unsqueeze(1).expand(-1, len(state), -1)
        return self.push(state, read, units)[1].permute(1, 2, 0)

    def changed(self, layer: str, state: torch.Tensor, changes: torch.Tensor) -> torch.Tensor:
        """Return changes of the whole state for small changes of one layer.

        A changed cell state changes its layer's hidden state too, h = o tanh(c), as an intervention does; a changed
        hidden state leaves the cell as it is.

        Args:
            state: (B, S).
            changes: of the layer, (K, units).

        Returns:
            (K, B, S).
        """
        own = self.place(layer)
        whole = state.new_zeros(len(changes), len(state), self.size)
        whole[:, :, own] = changes.unsqueeze(1)
        if layer.startswith(LSTM_CELL):
            follows, gate = self._gate(layer, state)
            slope = gate * (1 - state[:, own].tanh() ** 2)  # (B, units)
            whole[:, :, follows] = changes.unsqueeze(1) * slope
        return whole

    def edited(self, layer: str, state: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
        """Return the state, (B, S), once a change, (B, units), was added to one layer; as `changed`, but not small."""
        own = self.place(layer)
        after = state.clone()
        after[:, own] += change
        if layer.startswith(LSTM_CELL):
            follows, gate = self._gate(layer, state)
            after[:, follows] = gate * after[:, own].tanh()
        return after

    def _gate(self, layer: str, state: torch.Tensor) -> tuple[slice, torch.Tensor]:
        """Where a cell's hidden state lies, and its output gate in this tick, from h = o tanh(c), (B, units)."""
        read, hidden = state[:, self.place(layer)].tanh(), self.place(LSTM_HIDDEN + layer.removeprefix(LSTM_CELL))
        known = read.abs() > _NO_CELL
        return hidden, torch.where(known, state[:, hidden] / torch.where(known, read, 1.0), 0.5).clamp(0, 1)
