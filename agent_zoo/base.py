"""What every agent is: a policy that encodes and decodes, a memory between the two, and a reward.

A policy's parts have fixed names, because hooks find them by name: `projection` is the last module of the encoder,
`action_decoder` reads the tensor that is recorded as the activation, `critic` estimates the value.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import nmmo
import torch
from pettingzoo.utils.wrappers import BaseParallelWrapper
from torch import nn

from agent_zoo.distribution import ActionDistribution
from agent_zoo.layers import ActionDecoder, Candidates
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


class BasePolicy(nn.Module, ABC):
    """Encoder, action decoder and critic; subclasses build `projection` and say how observations are encoded."""

    projection: nn.Module

    def __init__(self, layout: ObservationLayout, hidden_size: int):
        super().__init__()
        self.layout = layout
        self.hidden_size = hidden_size
        self.action_decoder = ActionDecoder(layout, hidden_size)
        self.critic = nn.Linear(hidden_size, 1)

    @abstractmethod
    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""

    def decode_actions(
        self, hidden: torch.Tensor, candidates: Candidates, observation: PackedObservation
    ) -> tuple[ActionDistribution, torch.Tensor]:
        """Return the distribution over actions and the value, (B,)."""
        return self.action_decoder(hidden, candidates, observation), self.critic(hidden).squeeze(-1)


class RecurrentPolicy(nn.Module):
    """A policy with an LSTM between its encoder and its decoder; with no layers of it, a feed-forward policy.

    Attributes:
        mask: what it is shown of what its agents see.
    """

    mask: ObservationMask = ObservationMask()

    def __init__(self, policy: BasePolicy, layers: int):
        super().__init__()
        self.policy = policy
        self.layers = layers
        self.lstm = nn.LSTM(policy.hidden_size, policy.hidden_size, layers) if layers else None
        for name, parameter in self.lstm.named_parameters() if self.lstm else ():
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    def initial_state(self, agents: int) -> LSTMState:
        """Return the empty memory of `agents` agents; that of a feed-forward policy has no layers."""
        shape = (self.layers, agents, self.policy.hidden_size)
        device = next(self.parameters()).device
        return LSTMState(torch.zeros(shape, device=device), torch.zeros(shape, device=device))

    def forward(
        self, observation: PackedObservation, state: LSTMState
    ) -> tuple[ActionDistribution, torch.Tensor, LSTMState]:
        """Play one tick of B agents: distribution over actions, value (B,), and the memory afterwards."""
        encoded, candidates = self.policy.encode_observations(observation)  # (B, hidden)
        if self.lstm is None:
            return *self.policy.decode_actions(encoded, candidates, observation), state
        output, (hidden, cell) = self.lstm(encoded.unsqueeze(0), (state.hidden, state.cell))
        actions, value = self.policy.decode_actions(output.squeeze(0), candidates, observation)
        return actions, value, LSTMState(hidden, cell)

    def forward_segments(
        self, observation: PackedObservation, lengths: torch.Tensor, state: LSTMState
    ) -> tuple[ActionDistribution, torch.Tensor]:
        """Replay S segments of consecutive ticks, each from its own starting memory.

        Args:
            observation: one segment's ticks after the other's, (sum of lengths) in all.
            lengths: ticks of each segment, (S,) int64.
            state: memory before each segment's first tick.

        Returns:
            The distribution over actions and the value (sum of lengths,), in the order of `observation`.
        """
        encoded, candidates = self.policy.encode_observations(observation)
        if self.lstm is None:
            return self.policy.decode_actions(encoded, candidates, observation)
        # Segments side by side, padded to the longest: on the CPU much faster than torch's packed sequences.
        ticks, segments = int(lengths.max()), len(lengths)
        place = _places_in_grid(lengths).to(encoded.device)
        grid = encoded.new_zeros(ticks * segments, encoded.shape[1]).index_copy(0, place, encoded)
        output, _ = self.lstm(grid.view(ticks, segments, -1), (state.hidden, state.cell))  # (ticks, S, hidden)
        hidden = output.flatten(0, 1).index_select(0, place)
        return self.policy.decode_actions(hidden, candidates, observation)


class BaseRewardWrapper(BaseParallelWrapper):
    """What an agent is paid for, and what it may not do; the default is the task's own reward."""

    def __init__(self, env: Any, game: nmmo.Env):
        super().__init__(env)
        self.game = game

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode; every agent's first choices pass through `restrict`."""
        observations, infos = super().reset(seed=seed, options=options)
        for observation in observations.values():
            self.restrict(observation)
        return observations, infos

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Play one tick; living agents' rewards pass through `reward`, their next choices through `restrict`."""
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
        """Make options illegal that the agent is not to choose, in a living agent's `ActionTargets`, in place."""

    def after_tick(self, actions: dict, observations: dict, died: dict) -> None:
        """Look at the world once after each tick, before `reward` is asked for each living agent."""

    def reward(self, agent: int, task_reward: float) -> float:
        """Return what a living agent is paid for this tick."""
        return task_reward


def _places_in_grid(lengths: torch.Tensor) -> torch.Tensor:
    """Position of each row of S segments, one segment after the other, in a flattened grid of (ticks, S)."""
    starts = torch.cumsum(lengths, 0) - lengths
    segment = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    tick = torch.arange(len(segment), device=lengths.device) - starts[segment]
    return tick * len(lengths) + segment
