"""Base classes of every agent: a policy that encodes and decodes, a memory between the two, and a reward.

A policy plays a tick in three steps: encode, remember, decode. Between them are the layers of
`activation_store.layers`, whose values hooks can read and replace.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import nmmo
import torch
from pettingzoo.utils.wrappers import BaseParallelWrapper
from torch import nn

from activation_store.layers import (
    ACTION_DECODER,
    ENCODER_OUTPUT,
    LSTM_CELL,
    LSTM_HIDDEN,
    check_policy_layers,
    layer_names,
    memory_names,
)
from agent_zoo.distribution import ActionDistribution
from agent_zoo.hooks import Hook, Hooks
from agent_zoo.layers import ActionDecoder, Candidates
from agent_zoo.lstm_hooks import through_hooks
from agent_zoo.observation import ObservationLayout, PackedObservation
from agent_zoo.observation_masking import ObservationMask


@dataclass(frozen=True)
class LSTMState:
    """The memory of B agents.

    Attributes:
        hidden: (layers, B, units).
        cell: (layers, B, units).
    """

    hidden: torch.Tensor
    cell: torch.Tensor

    def to(self, device: torch.device) -> "LSTMState":
        """Return the same memory on another device."""
        return LSTMState(self.hidden.to(device), self.cell.to(device))

    def take(self, agents: torch.Tensor) -> "LSTMState":
        """Return the memory of the given agents, in their order."""
        return LSTMState(self.hidden[:, agents], self.cell[:, agents])

    def put(self, agents: torch.Tensor, state: "LSTMState") -> None:
        """Overwrite the memory of the given agents in place."""
        self.hidden[:, agents] = state.hidden
        self.cell[:, agents] = state.cell

    def clear(self, agents: torch.Tensor) -> None:
        """Zero the memory of the given agents in place, as at the start of a life."""
        self.hidden[:, agents] = 0
        self.cell[:, agents] = 0


@dataclass(frozen=True)
class SegmentOutputs:
    """A policy's outputs for N observations in segments of consecutive ticks, all in the order of the observations.

    Attributes:
        distribution: over the actions.
        value: (N,).
        encoder_output: input of the memory, (N, units).
        hidden: input of the decode step, (N, units): the last LSTM layer's hidden state, or the encoder's output in a
            feed-forward policy.
    """

    distribution: ActionDistribution
    value: torch.Tensor
    encoder_output: torch.Tensor
    hidden: torch.Tensor


class BasePolicy(nn.Module, ABC):
    """Encoder, action decoder and critic; subclasses define how observations are encoded."""

    def __init__(self, layout: ObservationLayout, hidden_size: int):
        super().__init__()
        if hidden_size < 1:
            raise ValueError(f"hidden_size is {hidden_size}")
        self.layout = layout
        self.hidden_size = hidden_size
        self.action_decoder = ActionDecoder(layout, hidden_size)
        self.critic = nn.Linear(hidden_size, 1)

    @abstractmethod
    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""

    def decoder_input(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the input of `decode_actions`, (B, hidden): the hidden state itself, unless overridden."""
        return hidden

    def decode_actions(
        self, read: torch.Tensor, candidates: Candidates, observation: PackedObservation
    ) -> tuple[ActionDistribution, torch.Tensor]:
        """Return the distribution over actions and the value, (B,), given the output of `decoder_input`."""
        return self.action_decoder(read, candidates, observation), self.critic(read).squeeze(-1)


class RecurrentPolicy(nn.Module):
    """A policy with an LSTM between its encoder and its decoder; with zero layers, a feed-forward policy.

    Attributes:
        layers: of the LSTM, 0 for none.
        mask: hides parts of its agents' observations.
    """

    mask: ObservationMask = ObservationMask()

    def __init__(self, policy: BasePolicy, layers: int):
        super().__init__()
        if layers < 0:
            raise ValueError(f"layers is {layers}")
        self.policy = policy
        self.layers = layers
        self.lstm = nn.LSTM(policy.hidden_size, policy.hidden_size, layers) if layers else None
        self._hooks = Hooks()
        for name, parameter in self.lstm.named_parameters() if self.lstm else ():
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    @property
    def layer_units(self) -> dict[str, int]:
        """The number of units of each of the policy's layers by name, in the order of computation."""
        return dict.fromkeys(layer_names(self.layers), self.policy.hidden_size)

    def hooked(self, hooks: Mapping[str, Hook]) -> AbstractContextManager[None]:
        """Within the block, call a function with the tensor of each named layer whenever the policy computes it.

        A tensor returned by the function replaces the layer's in the rest of the tick and of the life. A replaced
        `lstm_cell` also gives its layer a new hidden state. In `forward_segments`, hooks at states of the LSTM are
        called once per tick, with the segments that include that tick.

        Args:
            hooks: layer -> function of (B, units) that returns (B, units), or None to change nothing.

        Raises:
            UserError: the policy has no layer of that name.
        """
        check_policy_layers(hooks, self.layers)
        return self._hooks.attached(hooks)

    def initial_state(self, agents: int) -> LSTMState:
        """Return an empty memory for `agents` agents; for a feed-forward policy it has no layers."""
        shape = (self.layers, agents, self.policy.hidden_size)
        device = next(self.parameters()).device
        return LSTMState(torch.zeros(shape, device=device), torch.zeros(shape, device=device))

    def encode(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        encoded, candidates = self.policy.encode_observations(observation)
        return self._hooks.through(ENCODER_OUTPUT, encoded), candidates

    def remember(self, encoded: torch.Tensor, state: LSTMState) -> tuple[torch.Tensor, LSTMState]:
        """Return the input of the decode step, (B, hidden), and the memory after the tick."""
        if self.lstm is None:
            return encoded, state
        output, after = self.lstm(encoded.unsqueeze(0), (state.hidden, state.cell))
        if not self._memory_is_hooked():
            return output.squeeze(0), LSTMState(*after)
        after = through_hooks(self.lstm, self._hooks, encoded, (state.hidden, state.cell), after)
        return after[0][-1], LSTMState(*after)

    def decode(
        self, hidden: torch.Tensor, candidates: Candidates, observation: PackedObservation
    ) -> tuple[ActionDistribution, torch.Tensor]:
        """Return the distribution over actions and the value, (B,)."""
        read = self._hooks.through(ACTION_DECODER, self.policy.decoder_input(hidden))
        return self.policy.decode_actions(read, candidates, observation)

    def forward(
        self, observation: PackedObservation, state: LSTMState
    ) -> tuple[ActionDistribution, torch.Tensor, LSTMState]:
        """Play one tick of B agents: distribution over actions, value (B,), and the memory afterwards."""
        encoded, candidates = self.encode(observation)
        hidden, after = self.remember(encoded, state)
        return *self.decode(hidden, candidates, observation), after

    def forward_segments(
        self, observation: PackedObservation, lengths: torch.Tensor, state: LSTMState
    ) -> SegmentOutputs:
        """Replay S segments of consecutive ticks, each from its own starting memory.

        Args:
            observation: the ticks of all segments, concatenated, (sum of lengths) in total.
            lengths: ticks of each segment, (S,) int64.
            state: memory before each segment's first tick.
        """
        encoded, candidates = self.encode(observation)
        hidden = self._remember_segments(encoded, lengths, state)
        distribution, value = self.decode(hidden, candidates, observation)
        return SegmentOutputs(distribution, value, encoded, hidden)

    def _remember_segments(self, encoded: torch.Tensor, lengths: torch.Tensor, state: LSTMState) -> torch.Tensor:
        """The input of the decode step in every tick of every segment, (sum of lengths, hidden)."""
        if self.lstm is None:
            return encoded
        if self._memory_is_hooked():
            return self._remember_tick_by_tick(encoded, lengths.to(encoded.device), state)
        # Segments in parallel, padded to the longest: on the CPU much faster than torch's packed sequences.
        ticks, segments = int(lengths.max()), len(lengths)
        place = _places_in_grid(lengths).to(encoded.device)
        grid = encoded.new_zeros(ticks * segments, encoded.shape[1]).index_copy(0, place, encoded)
        output, _ = self.lstm(grid.view(ticks, segments, -1), (state.hidden, state.cell))  # (ticks, S, hidden)
        return output.flatten(0, 1).index_select(0, place)

    def _remember_tick_by_tick(self, encoded: torch.Tensor, lengths: torch.Tensor, state: LSTMState) -> torch.Tensor:
        """As above, but slower: tick by tick, so that hooks see every tick's states."""
        starts = torch.cumsum(lengths, 0) - lengths
        rows, outputs = [], []
        for tick in range(int(lengths.max())):
            (lasting,) = (lengths > tick).nonzero(as_tuple=True)
            rows.append(starts[lasting] + tick)
            before = LSTMState(state.hidden.index_select(1, lasting), state.cell.index_select(1, lasting))
            output, after = self.remember(encoded.index_select(0, rows[-1]), before)
            outputs.append(output)
            state = LSTMState(
                state.hidden.index_copy(1, lasting, after.hidden), state.cell.index_copy(1, lasting, after.cell)
            )
        return torch.zeros_like(encoded).index_copy(0, torch.cat(rows), torch.cat(outputs))

    def _memory_is_hooked(self) -> bool:
        names = (*memory_names(LSTM_HIDDEN, self.layers), *memory_names(LSTM_CELL, self.layers))
        return self._hooks.any_at(names)


class BaseRewardWrapper(BaseParallelWrapper):
    """Defines an agent's reward and which actions are forbidden; the default is the task's own reward."""

    def __init__(self, env: Any, game: nmmo.Env):
        super().__init__(env)
        self.game = game

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode; every agent's first observation passes through `restrict`."""
        observations, infos = super().reset(seed=seed, options=options)
        for observation in observations.values():
            self.restrict(observation)
        return observations, infos

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Play one tick; living agents' rewards pass through `reward`, their observations through `restrict`."""
        observations, rewards, terminated, truncated, infos = super().step(actions)
        self.after_tick(actions, observations, terminated)
        for agent, died in terminated.items():
            if not died:
                self.restrict(observations[agent])
        rewards = {
            agent: rewards[agent] if died else self.reward(agent, rewards[agent]) for agent, died in terminated.items()
        }
        return observations, rewards, terminated, truncated, infos

    def restrict(self, observation: dict) -> None:
        """Forbid options by changing a living agent's `ActionTargets` in place."""

    def after_tick(self, actions: dict, observations: dict, died: dict) -> None:
        """Called once after each tick, before `reward` is called for each living agent."""

    def reward(self, agent: int, task_reward: float) -> float:
        """Return a living agent's reward for this tick."""
        return task_reward


def _places_in_grid(lengths: torch.Tensor) -> torch.Tensor:
    """Position of each row of S concatenated segments in a flattened grid of (ticks, S)."""
    starts = torch.cumsum(lengths, 0) - lengths
    segment = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    tick = torch.arange(len(segment), device=lengths.device) - starts[segment]
    return tick * len(lengths) + segment
