"""How far a tick, predicted or from another course of the same episode, is from the real one. P ticks at once."""

from collections.abc import Mapping

import numpy as np
import torch
from torch.nn import functional

from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from agent_zoo.observation import ObservationLayout
from agent_zoo.soft_observation import log_legality
from representation.sparse_autoencoder.scores import Estimate, Units
from representation.world_model.scene import Scene, SoftScene, legal_heads

POLICY_HEADS = ("Move.Direction", "Attack.Style")
"""Heads whose probabilities are compared; the options of others are rows, which simulated views do not share."""
HIGHER_IS_BETTER = {"tiles": True, "entities": True, "vitals": False, "memory": True, "policy": False}
"""What is measured: share of tiles that are right, F1 of entities, mean error of health, food and water in points,
cosine of the policy's cell state with the recorded one, KL of the recorded policy from the imagined one in nats."""


def scene_errors(found: SoftScene, real: Scene, vitals: list[int]) -> dict[str, np.ndarray]:
    """Return the errors of what is seen: of tiles and vitals (P,), of entities (P, 3): right, found and real.

    Args:
        found: predicted, or of another course.
        real: recorded.
        vitals: places of health, food and water among the own columns.
    """
    right = (found.material.argmax(dim=1) == real.material).float().mean(dim=1)
    there, wanted = found.kinds > 0.5, real.kinds > 0.5
    entities = torch.stack(
        [each.flatten(1).sum(dim=1).float() for each in (there & wanted, there, wanted)], dim=1
    )  # (P, 3)
    vital = 100 * (found.own[:, vitals] - real.own[:, vitals]).abs().mean(dim=1)
    return {"tiles": right.numpy(), "entities": entities.numpy(), "vitals": vital.numpy()}


def cosine(found: torch.Tensor, real: MemoryState) -> np.ndarray:
    """Return the cosines of cell states, (P, units), with those of a memory, (P,)."""
    return functional.cosine_similarity(found, real.cell[-1], dim=1).numpy()


def head_log_probabilities(
    policy: RecurrentPolicy, layout: ObservationLayout, memory: MemoryState, real: Scene
) -> dict[str, torch.Tensor]:
    """Log-probabilities of `POLICY_HEADS` after a memory, with the real legality."""
    heads = legal_heads(layout)
    legal = dict(
        zip((head.name for head in heads), real.legal.split([head.size for head in heads], dim=1), strict=True)
    )
    read = policy.read(memory.hidden[-1])
    decoder = policy.policy.action_decoder
    return {
        head.name: (decoder.own_scores(head, read) + log_legality(legal[head.name])).log_softmax(dim=1)
        for head in heads
        if head.name in POLICY_HEADS
    }


def policy_kl(wanted: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> np.ndarray:
    """KL of one policy's log-probabilities, by head, from another's, summed over the heads of the first, (P,)."""
    parts = [(each.exp() * (each - found[name]).clamp(-1e3, 1e3)).sum(dim=1) for name, each in wanted.items()]
    return torch.stack(parts).sum(dim=0).numpy()


def compared(units: Units, mine: np.ndarray, other: np.ndarray) -> tuple[Estimate, Estimate, Estimate]:
    """Return estimates of one side's measure, of another's, and of their difference; (P, 3) counts become F1."""
    if mine.ndim == 1:
        return units.mean(mine), units.mean(other), units.difference(mine, other)
    first, second = (units.mean(2 * each[:, 0], np.maximum(each[:, 1] + each[:, 2], 1e-9)) for each in (mine, other))
    # The difference of two ratios, linear around their values, so that it can be resampled as a mean.
    scale = [float((each[:, 1] + each[:, 2]).mean()) for each in (mine, other)]
    influence = [
        one.value + (2 * each[:, 0] - one.value * (each[:, 1] + each[:, 2])) / max(size, 1e-9)
        for one, each, size in zip((first, second), (mine, other), scale, strict=True)
    ]
    return first, second, units.difference(*influence)
