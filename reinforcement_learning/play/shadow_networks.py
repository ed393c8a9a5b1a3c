"""Networks that watch a policy play: they receive its observations, keep their own memory, and never act.

They are baselines: the information in a trained memory is compared with that in an untrained or less trained memory on
the same observations.
"""

from dataclasses import replace

import numpy as np
import torch

from activation_store.layers import STATES, UNTRAINED
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import build_untrained
from common.user_error import UserError
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.stepper import Decision, remember


class ShadowNetwork:
    """One network that watches all agents of an entrant."""

    def __init__(self, entrant: Entrant, slots: int, device: torch.device):
        self.name = entrant.name
        self.policy = entrant.policy.to(device)
        self.memory = self.policy.initial_state(slots)

    @torch.no_grad()
    def watch(self, decision: Decision) -> dict[str, np.ndarray]:
        """Process the entrant's observations of one tick; return the memory afterwards, layer -> (P, units) float32."""
        device = self.memory.hidden.device
        state = self.memory.take(torch.from_numpy(decision.present).to(device))
        encoded, _ = self.policy.encode(decision.observation.to(device))  # (P, hidden)
        _, after = self.policy.remember(encoded, state)
        remember(self.memory, replace(decision, next_state=after))
        last = [states[-1].cpu().numpy() for states in (after.hidden, after.cell) if len(states)]
        return dict(zip(shadow_layers(self.name, self.policy), last, strict=True))


def shadow_layers(name: str, policy: RecurrentPolicy) -> tuple[str, ...]:
    """Return the names in a dump of a shadow network's layers, the states of its last layer."""
    return tuple(f"{name}_{state}" for state in STATES[policy.cell])


def untrained_twin(entrant: Entrant, seed: int) -> Entrant:
    """Build a network like an entrant's with untrained weights determined by the seed."""
    policy = build_untrained(entrant.info, seed)
    return Entrant(UNTRAINED, policy, replace(entrant.info, steps=0, seed=seed), sha256=None)


def with_shadow_networks(entrant: Entrant, shadow_networks: tuple[Entrant, ...]) -> Entrant:
    """Attach networks that receive an entrant's observations.

    Raises:
        UserError: one of them has no memory to record, or a different layout of observations.
    """
    for network in shadow_networks:
        if not network.policy.layers:
            raise UserError(f"{network.name} cannot watch {entrant.name}: it is feed-forward and has no memory")
        if (network.info.layout, network.policy.mask) != (entrant.info.layout, entrant.policy.mask):
            raise UserError(f"{network.name} cannot watch {entrant.name}: it was trained to see another kind of world")
    return replace(entrant, shadow_networks=shadow_networks)
