"""Networks that watch a policy play: they see what it sees, remember for themselves, and never act.

What a trained memory holds is worth telling only beside what a memory holds that was never trained, or trained less,
on the very same observations.
"""

from dataclasses import replace

import numpy as np
import torch

from activation_store.layers import STATES, UNTRAINED
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import build_policy
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.stepper import Decision, remember
from user_error import UserError


class ShadowNetwork:
    """One network that watches all agents of an entrant."""

    def __init__(self, entrant: Entrant, slots: int, device: torch.device):
        """Start with an empty memory in every slot."""
        self.name = entrant.name
        self.policy = entrant.policy.to(device)
        self.memory = self.policy.initial_state(slots)

    @torch.no_grad()
    def watch(self, decision: Decision) -> dict[str, np.ndarray]:
        """Take in what the entrant saw this tick; return the own memory afterwards, layer -> (P, units) float32."""
        device = self.memory.hidden.device
        state = self.memory.take(torch.from_numpy(decision.present).to(device))
        encoded, _ = self.policy.encode(decision.observation.to(device))  # (P, hidden)
        _, after = self.policy.remember(encoded, state)
        remember(self.memory, replace(decision, next_state=after))
        last = [states[-1].cpu().numpy() for states in (after.hidden, after.cell) if len(states)]
        return dict(zip(shadow_layers(self.name, self.policy), last, strict=True))


def shadow_layers(name: str, policy: RecurrentPolicy) -> tuple[str, ...]:
    """Return what the recorded layers of a shadow network, the states of its last layer, are called in a dump."""
    return tuple(f"{name}_{state}" for state in STATES[policy.cell])


def untrained_twin(entrant: Entrant, seed: int) -> Entrant:
    """Build a network like an entrant's with fresh weights, the same ones for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        policy = build_policy(entrant.info)
    return Entrant(UNTRAINED, policy.eval(), replace(entrant.info, steps=0, seed=seed), sha256=None)


def with_shadow_networks(entrant: Entrant, shadow_networks: tuple[Entrant, ...]) -> Entrant:
    """Let others watch what an entrant sees.

    Raises:
        UserError: one of them has no memory to be recorded, or sees another kind of world.
    """
    for each in shadow_networks:
        if not each.policy.layers:
            raise UserError(f"{each.name} cannot watch {entrant.name}: it is feed-forward and has no memory")
        if (each.info.layout, each.policy.mask) != (entrant.info.layout, entrant.policy.mask):
            raise UserError(f"{each.name} cannot watch {entrant.name}: it was trained to see another kind of world")
    return replace(entrant, shadow_networks=shadow_networks)
