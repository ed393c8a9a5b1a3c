"""What a prediction costs in nats, and how the costs of different parts are balanced."""

import torch
from torch.nn import functional

from agent_zoo.memory import MemoryState
from representation.world_model.scene import Scene
from representation.world_model.states import Prediction
from representation.world_model.statistics import Statistics
from representation.world_model.vitals import spread_levels

Costs = dict[str, torch.Tensor]
"""For each of `statistics.HEADS`, the cost of each prediction in nats, (B,)."""


def scene_costs(prediction: Prediction, scene: Scene, stats: Statistics, vitals: list[int]) -> Costs:
    """Return the costs of predicted scenes.

    A number that is off by x units of `Statistics.own_step` costs log(1 + x^2 / 2): x^2 / 2 where it is near, as in a
    normal distribution, and little more the further it is off.

    Args:
        prediction: of B ticks.
        scene: what was there, B.
        stats: of the training records.
        vitals: places of the vitals in `Scene.own`.
    """
    occupied = (scene.kinds.sum(dim=1) > 0).float()
    carried = (scene.item_type > 0).float()
    own = _distance(prediction.scene.own - scene.own, stats.own_step)
    items = _distance(prediction.scene.items - scene.items, stats.item_step)
    levels = spread_levels(scene.own[:, vitals])
    return {
        "material": functional.cross_entropy(prediction.material, scene.material, reduction="none").sum(dim=1),
        "kinds": _flags(prediction.kinds, scene.kinds),
        "target": _flags(prediction.target, scene.target),
        "health": ((prediction.health - scene.health).square() * occupied).sum(dim=1) / (2 * 0.2**2),
        "vitals": -(levels * prediction.vitals.log_softmax(dim=2)).sum(dim=(1, 2)),
        "own": own.sum(dim=1),
        "item_type": functional.cross_entropy(
            prediction.item_type.transpose(1, 2), scene.item_type, reduction="none"
        ).sum(dim=1),
        "items": (items.sum(dim=2) * carried).sum(dim=1),
        "legal": _flags(prediction.legal, scene.legal),
    }


def memory_costs(found: MemoryState, recorded: MemoryState, stats: Statistics) -> Costs:
    """Return half the squared distance of the policy's memory from the recorded one, as a share of its variance."""
    pairs = {"hidden": (found.hidden, recorded.hidden), "cell": (found.cell, recorded.cell)}
    return {
        name: (mine - other).square().mean(dim=(0, 2)) / (2 * variance)
        for (name, (mine, other)), variance in zip(pairs.items(), stats.memory, strict=True)
    }


def divergence(posterior: torch.Tensor, prior: torch.Tensor) -> torch.Tensor:
    """KL(posterior || prior) of latent states in nats, log-probabilities (B, groups, classes) to (B,)."""
    return (posterior.exp() * (posterior - prior)).sum(dim=(1, 2))


def balanced_divergence(posterior: torch.Tensor, prior: torch.Tensor, share: float) -> torch.Tensor:
    """Return the divergence with most of its gradient going to the prior (Hafner et al. 2021, section 2.2), (B,).

    Args:
        posterior: log-probabilities, (B, groups, classes).
        prior: likewise.
        share: of the prior in the gradient.
    """
    return share * divergence(posterior.detach(), prior) + (1 - share) * divergence(posterior, prior.detach())


def spreading(vectors: torch.Tensor) -> torch.Tensor:
    """Return the penalty that spreads B vectors over the sphere: the log of the mean of exp(-squared distance).

    Minimal where vectors are as far from each other as they can be; 0 if all are the same.
    """
    if len(vectors) < 2:
        return vectors.sum() * 0
    distances = torch.cdist(vectors, vectors).square()
    others = ~torch.eye(len(vectors), dtype=torch.bool)
    return (-distances[others]).exp().mean().log()


def gaussian_divergence(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """KL of normal distributions from the standard one in nats, (B, dimensions) twice to (B,)."""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2


def _flags(logits: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(logits, flags, reduction="none").flatten(1).sum(dim=1)


def _distance(error: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    scaled = error[..., step > 0] / step[step > 0]
    return (scaled.square() / 2).log1p()
