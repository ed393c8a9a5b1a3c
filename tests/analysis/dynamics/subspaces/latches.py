"""Policies built by hand: a latch that holds a cue, heads that read it, and units that hold something else."""

import numpy as np
import torch

from agent_zoo.base import BasePolicy, RecurrentPolicy
from agent_zoo.memory import LSTM, MemoryState
from agent_zoo.network_parts.layers import Candidates
from agent_zoo.observation import ActionHead, ObservationLayout, PackedObservation
from analysis.dynamics.alignment import AHEAD, Situations

UNITS, LIVES, TICKS = 6, 120, 8
NORTH, SOUTH = 0, 1
_OPEN = 12.0
INPUT, FORGET, CANDIDATE, OUTPUT = range(4)
LAYOUT = ObservationLayout(
    ("material_id",), ("id",), ("id",), 9, 1, 1, 1, 4, 8, 4,
    (ActionHead("Move.Direction", 5, None, None), ActionHead("Attack.Target", 4, 3, "entity")),
)  # fmt: skip


class Blind(BasePolicy):
    """A policy whose memory is given what it reads."""

    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        raise NotImplementedError


@torch.no_grad()
def latch(*, heads_read: bool = True, turn: np.ndarray | None = None) -> RecurrentPolicy:
    """Two units hold a cue that input 0 brings, with opposite signs, two a second cue of input 1, two nothing.

    Args:
        heads_read: whether moves to the north and the south follow the first cue; else nothing follows anything.
        turn: how far apart the two units of the cue are written, (2,); by default 1 and -1.
    """
    policy = RecurrentPolicy(Blind(LAYOUT, UNITS), 1)
    for parameter in policy.parameters():
        parameter.zero_()
    memory = policy.memory
    assert isinstance(memory, LSTM)
    input_weight, _, bias, _ = (part.unflatten(0, (4, UNITS)) for part in memory.all_weights[0])
    bias[INPUT], bias[FORGET], bias[OUTPUT] = _OPEN, _OPEN, _OPEN
    written = torch.tensor([1.0, -1.0]) if turn is None else torch.from_numpy(turn).float()
    input_weight[CANDIDATE, 0:2, 0] = written
    input_weight[CANDIDATE, 2:4, 1] = torch.tensor([1.0, 1.0])
    if heads_read:
        head = policy.policy.action_decoder.heads["Move_Direction"]
        assert isinstance(head, torch.nn.Linear)
        head.weight[NORTH, 0:2] = written
        head.weight[SOUTH, 0:2] = -written
    return policy.eval()


@torch.no_grad()
def situations(policy: RecurrentPolicy, seed: int = 0) -> Situations:
    """Lives that are shown both cues, of random signs, in their first tick; the first cue is the value."""
    random = np.random.default_rng(seed)
    cues = random.choice([-1.0, 1.0], size=(LIVES, 2))
    read = np.zeros((TICKS + AHEAD, LIVES, UNITS), np.float32)
    read[0, :, :2] = cues
    read[:, :, 2:] = 0.3 * random.normal(size=read[:, :, 2:].shape)
    given, memory = torch.from_numpy(read), policy.initial_state(LIVES)
    parts = []
    for tick in range(TICKS):
        _, after = policy.remember(given[tick], memory)
        parts.append((memory, given[tick : tick + 1 + AHEAD], after.cell[0]))
        memory = after
    label = np.tile((cues[:, 0] > 0).astype(np.int64), TICKS)
    return Situations(
        MemoryState.concatenate([before for before, _, _ in parts]), torch.cat([read for _, read, _ in parts], dim=1),
        torch.cat([cell for _, _, cell in parts]), label, np.tile(np.arange(LIVES), TICKS),
        np.repeat(np.arange(TICKS), LIVES),
    )  # fmt: skip
