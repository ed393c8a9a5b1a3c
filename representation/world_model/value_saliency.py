"""What the policy's value depends on in a tick: how much on each part of what it sees and on its memory."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from agent_zoo.memory import MemoryState
from agent_zoo.soft_path import soft_tick
from representation.world_model.model import WorldModel
from representation.world_model.policy_interface import Surroundings, imagined_view
from representation.world_model.scene import VITALS, SoftScene

PARTS = {
    "tiles": ("material",), "entities": ("kinds", "health", "target"), "own row": ("own",),
    "inventory": ("item_type", "items"), "memory": ("hidden", "cell"),
}  # fmt: skip
"""Parts of what a tick's value is computed from, with the tensors that they are made of."""
_POINTS = 100


class Ratio(NamedTuple):
    """A measure of B ticks: the sum of `above` divided by the sum of `below`, (B,) each."""

    above: np.ndarray
    below: np.ndarray


def value_saliency(model: WorldModel, scene: SoftScene, around: Surroundings, before: MemoryState) -> dict[str, Ratio]:
    """Differentiate the policy's value in a tick by everything that it reads.

    The saliency of a part is the sum of the absolute values of gradient times input over its numbers.

    Args:
        model: whose policy reads the scenes.
        scene: that B agents see.
        around: what stays as it was.
        before: memory with which they begin the tick.

    Returns:
        Shares of the saliency by part, and the mean derivative of the value by each vital, per point.
    """
    names = [name for tensors in PARTS.values() for name in tensors]
    given = {**vars(scene), "hidden": before.hidden.transpose(0, 1), "cell": before.cell.transpose(0, 1)}
    read = {name: given[name].detach().clone().requires_grad_() for name in names}
    seen = {name: each for name, each in read.items() if name not in ("hidden", "cell")}
    with torch.enable_grad():
        view = imagined_view(replace(scene, **seen), model.stats.kind_means, around, model.layout)
        memory = MemoryState(read["hidden"].transpose(0, 1), read["cell"].transpose(0, 1))
        choices, _ = soft_tick(model.policy, view.observation, memory)
        gradients = torch.autograd.grad(choices.value.sum(), list(read.values()), allow_unused=True)
    found = dict(zip(read, gradients, strict=True))
    sums = {part: _sum([(read[name], found[name]) for name in tensors]) for part, tensors in PARTS.items()}
    total = np.sum(list(sums.values()), axis=0)
    ratios = {f"share of the value's saliency: {part}": Ratio(each, total) for part, each in sums.items()}
    by_own = found["own"]
    assert by_own is not None  # every policy with a soft path reads its own row
    for name, place in zip(VITALS, model.network.vitals, strict=True):
        slope = by_own[:, place].double().numpy() / _POINTS
        ratios[f"change of the value per point of {name}"] = Ratio(slope, np.ones(len(slope)))
    return ratios


def _sum(tensors: list[tuple[torch.Tensor, torch.Tensor | None]]) -> np.ndarray:
    """Add up |gradient times input| over some tensors, (B,); those that the value does not depend on add nothing."""
    total = np.zeros(len(tensors[0][0]))
    for each, gradient in tensors:
        if gradient is not None:
            total += (each * gradient).detach().abs().double().flatten(1).sum(dim=1).numpy()
    return total
