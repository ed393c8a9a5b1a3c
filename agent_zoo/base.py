"""Base classes of every agent: a policy that encodes and decodes, a memory between the two, and a reward.

A policy plays a tick in three steps: encode, remember, decode. Between them are the layers of
`activation_store.layers`, whose values hooks can read and replace.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import nmmo
import torch
from pettingzoo.utils.wrappers import BaseParallelWrapper
from torch import nn

from activation_store.layers import (
    ACTION_DECODER,
    ENCODER_OUTPUT,
    LSTM_CELL,
    LSTM_HIDDEN,
    SEMANTIC_CODE,
    SEMANTIC_PLANE,
    STATES,
    MemoryCell,
    check_policy_layers,
    layer_names,
    memory_names,
)
from agent_zoo.agent_settings import SemanticShape
from agent_zoo.memory import CELLS, Hook, Hooks, Memory, MemoryState
from agent_zoo.network_parts.distribution import ActionDistribution
from agent_zoo.network_parts.layers import ActionDecoder, Candidates, at_least_float32, initialize_orthogonally
from agent_zoo.observation import ObservationLayout, PackedObservation
from agent_zoo.observation_masking import ObservationMask
from agent_zoo.semantic_module import SemanticModule

_ACTION_GAIN = 0.01  # nearly equal probabilities before training


@dataclass(frozen=True)
class SegmentOutputs:
    """A policy's outputs for N observations in segments of consecutive ticks, all in the order of the observations."""

    distribution: ActionDistribution  # over the actions
    value: torch.Tensor  # (N,)
    encoder_output: torch.Tensor  # input of the memory, (N, units)
    hidden: torch.Tensor
    """Input of the decode step, (N, units): the hidden state of the memory's last layer, or the encoder's output in a
    feed-forward policy."""


class BasePolicy(nn.Module, ABC):
    """Encoder, action decoder and critic; subclasses define how observations are encoded."""

    linear_parts: ClassVar[tuple[str, ...]] = ()
    """Of the observation, if the encoder's output is `projection`, a linear layer, of what becomes of each of them,
    equally wide and side by side; empty for other encoders."""

    def __init__(
        self, layout: ObservationLayout, hidden_size: int, *, published: bool = False, rectified: bool = False
    ):
        super().__init__()
        if hidden_size < 1:
            raise ValueError(f"hidden_size is {hidden_size}")
        self.layout = layout
        self.hidden_size = hidden_size
        self.action_decoder = ActionDecoder(layout, hidden_size, published=published, rectified=rectified)
        self.critic = nn.Linear(hidden_size, 1)

    def initialize_orthogonally(self) -> None:
        """Give all linear layers and convolutions orthogonal weights, with a small gain for the action heads."""
        initialize_orthogonally(self)
        initialize_orthogonally(self.action_decoder, _ACTION_GAIN)
        initialize_orthogonally(self.critic, 1.0)

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
    """A policy with a memory between its encoder and its decoder; with zero layers, a feed-forward policy.

    Attributes:
        layers: of the memory, 0 for none.
        cell: of the memory; names its module in the weights, as in `lstm.weight_ih_l0`.
        mask: hides parts of its agents' observations.
        bfloat16_encoder: whether the encoder multiplies in bfloat16, as a policy may do while it is trained; its
            weights, the memory and the heads are in full precision.
        semantic: the semantic plane and its codebook; None in a policy without.
    """

    mask: ObservationMask = ObservationMask()
    bfloat16_encoder: bool = False
    semantic: SemanticModule | None

    def __init__(self, policy: BasePolicy, layers: int = 1, cell: MemoryCell = "lstm"):
        super().__init__()
        if layers < 0:
            raise ValueError(f"layers is {layers}")
        if cell not in CELLS:
            raise ValueError(f"cell is {cell!r}, not one of {', '.join(CELLS)}")
        self.policy = policy
        self.layers = layers
        self.cell = cell
        self.semantic = None
        if layers:
            self.add_module(cell, CELLS[cell](policy.hidden_size, layers))
        self._hooks = Hooks()

    def add_codebook(self, shape: SemanticShape) -> None:
        """Give the policy a semantic plane and a codebook, with new weights."""
        self.semantic = SemanticModule(self.policy.hidden_size, shape)

    @property
    def memory(self) -> Memory | None:
        """The recurrent module; None in a feed-forward policy."""
        memory = getattr(self, self.cell) if self.layers else None
        assert memory is None or isinstance(memory, Memory)
        return memory

    @property
    def layer_units(self) -> dict[str, int]:
        """The number of units of each of the policy's layers by name, in the order of computation."""
        units = dict.fromkeys(layer_names(self.layers, self.cell, bool(self.semantic)), self.policy.hidden_size)
        if self.semantic:
            shape = self.semantic.shape
            units |= {SEMANTIC_PLANE: shape.plane_dimensions, SEMANTIC_CODE: shape.codes}
        return units

    def hooked(self, hooks: Mapping[str, Hook]) -> AbstractContextManager[None]:
        """Within the block, call a function with the tensor of each named layer whenever the policy computes it.

        A tensor returned by the function replaces the layer's in the rest of the tick and of the life. A replaced
        `lstm_cell` also gives its layer a new hidden state. In `forward_segments`, hooks at states of the memory are
        called once per tick, with the segments that include that tick.

        Args:
            hooks: layer -> function of (B, units) that returns (B, units), or None to change nothing.

        Raises:
            UserError: the policy has no layer of that name.
        """
        check_policy_layers(hooks, self.layers, self.cell, bool(self.semantic))
        return self._hooks.attached(hooks)

    def initial_state(self, agents: int) -> MemoryState:
        """Return an empty memory for `agents` agents; for a feed-forward policy it has no layers."""
        device = next(self.parameters()).device

        def empty(state: str) -> torch.Tensor:
            layers = self.layers if state in STATES[self.cell] else 0
            return torch.zeros((layers, agents, self.policy.hidden_size), device=device)

        return MemoryState(empty(LSTM_HIDDEN), empty(LSTM_CELL))

    def encode(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        device = next(self.parameters()).device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.bfloat16_encoder):
            encoded, candidates = self.policy.encode_observations(observation)
        if self.bfloat16_encoder:
            encoded, candidates = at_least_float32(encoded), candidates.at_least_float32()
        return self._hooks.through(ENCODER_OUTPUT, encoded), candidates

    def remember(self, encoded: torch.Tensor, state: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        """Return the input of the decode step, (B, hidden), and the memory after the tick."""
        memory = self.memory
        if memory is None:
            return encoded, state
        output, after = memory.play(encoded.unsqueeze(0), state)
        if not self._memory_is_hooked():
            return output.squeeze(0), after
        after = memory.through_hooks(self._hooks, encoded, state, after)
        return after.hidden[-1], after

    def decode(
        self, hidden: torch.Tensor, candidates: Candidates, observation: PackedObservation
    ) -> tuple[ActionDistribution, torch.Tensor]:
        """Return the distribution over actions and the value, (B,)."""
        return self.policy.decode_actions(self.read(hidden), candidates, observation)

    def read(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the input of the action heads and the critic, (B, hidden), given the input of the decode step."""
        if self.semantic is not None:  # add what the heads are fed of the state's code
            plane = self.through(SEMANTIC_PLANE, self.semantic.plane(hidden))
            hidden = hidden + self.semantic.fed(self.through(SEMANTIC_CODE, self.semantic.code(plane)))
        return self.through(ACTION_DECODER, self.policy.decoder_input(hidden))

    def through(self, layer: str, values: torch.Tensor) -> torch.Tensor:
        """Show a layer's values to the hook at that layer, if there is one, and return them or what replaces them."""
        return self._hooks.through(layer, values)

    def forward(
        self, observation: PackedObservation, state: MemoryState
    ) -> tuple[ActionDistribution, torch.Tensor, MemoryState]:
        """Play one tick of B agents: distribution over actions, value (B,), and the memory afterwards."""
        encoded, candidates = self.encode(observation)
        hidden, after = self.remember(encoded, state)
        return *self.decode(hidden, candidates, observation), after

    def forward_segments(
        self, observation: PackedObservation, lengths: torch.Tensor, state: MemoryState
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

    def _remember_segments(self, encoded: torch.Tensor, lengths: torch.Tensor, state: MemoryState) -> torch.Tensor:
        """The input of the decode step in every tick of every segment, (sum of lengths, hidden)."""
        memory = self.memory
        if memory is None:
            return encoded
        if self._memory_is_hooked():
            return self._remember_tick_by_tick(encoded, lengths.to(encoded.device), state)
        # Segments in parallel, padded to the longest: on the CPU much faster than torch's packed sequences.
        ticks, segments = int(lengths.max()), len(lengths)
        starts = torch.cumsum(lengths, 0) - lengths
        segment = torch.repeat_interleave(torch.arange(segments, device=lengths.device), lengths)
        tick = torch.arange(len(segment), device=lengths.device) - starts[segment]
        place = (tick * segments + segment).to(encoded.device)  # of each observation in the flattened grid
        grid = encoded.new_zeros(ticks * segments, encoded.shape[1]).index_copy(0, place, encoded)
        output, _ = memory.play(grid.view(ticks, segments, -1), state)  # (ticks, S, hidden)
        return output.flatten(0, 1).index_select(0, place)

    def _remember_tick_by_tick(self, encoded: torch.Tensor, lengths: torch.Tensor, state: MemoryState) -> torch.Tensor:
        """As above, but slower: tick by tick, so that hooks see every tick's states."""
        starts = torch.cumsum(lengths, 0) - lengths
        rows, outputs = [], []
        for tick in range(int(lengths.max())):
            (lasting,) = (lengths > tick).nonzero(as_tuple=True)
            rows.append(starts[lasting] + tick)
            before = MemoryState(state.hidden.index_select(1, lasting), state.cell.index_select(1, lasting))
            output, after = self.remember(encoded.index_select(0, rows[-1]), before)
            outputs.append(output)
            state = MemoryState(
                state.hidden.index_copy(1, lasting, after.hidden), state.cell.index_copy(1, lasting, after.cell)
            )
        return torch.zeros_like(encoded).index_copy(0, torch.cat(rows), torch.cat(outputs))

    def _memory_is_hooked(self) -> bool:
        return any(self._hooks.any_at(memory_names(state, self.layers)) for state in STATES[self.cell])


class BaseRewardWrapper(BaseParallelWrapper):
    """Defines an agent's reward and which actions are forbidden; the default is the task's own reward.

    Attributes:
        noops_permitted: in this episode, how often each agent was left no legal option in a head, so that its no-op was
            permitted against the game's mask.
    """

    def __init__(self, env: Any, game: nmmo.Env):
        super().__init__(env)
        self.game = game
        self.noops_permitted: Counter[int] = Counter()

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode; every agent's first observation passes through `restrict`."""
        self.noops_permitted.clear()
        observations, infos = super().reset(seed=seed, options=options)
        for observation in observations.values():
            self.restrict(observation)
        return observations, infos

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Play one tick; paid agents' rewards pass through `reward`, living agents' observations through `restrict`."""
        observations, rewards, terminated, truncated, infos = super().step(actions)
        self.after_tick(actions, observations, terminated)
        for agent, died in terminated.items():
            if not died:
                self.restrict(observations[agent])
        rewards = {
            agent: self.reward(agent, rewards[agent]) if self.is_paid(died, truncated[agent]) else rewards[agent]
            for agent, died in terminated.items()
        }
        for agent, died in terminated.items():
            if died or truncated[agent]:
                infos[agent]["noops_permitted"] = self.noops_permitted[agent]
        return observations, rewards, terminated, truncated, infos

    def restrict(self, observation: dict) -> None:
        """Forbid options by changing a living agent's `ActionTargets` in place."""

    def after_tick(self, actions: dict, observations: dict, died: dict) -> None:
        """Called once after each tick, before `reward` is called for each paid agent."""

    def is_paid(self, died: bool, cut_off: bool) -> bool:
        """Return whether `reward` is called for an agent in this tick: by default while it lives."""
        return not died

    def reward(self, agent: int, task_reward: float) -> float:
        """Return a living agent's reward for this tick."""
        return task_reward
