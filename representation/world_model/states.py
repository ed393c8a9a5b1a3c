"""What a world model keeps and says of a tick, and how large its parts are."""

from dataclasses import dataclass
from typing import Literal

import torch

from representation.world_model.scene import SoftScene

Bottleneck = Literal["sphere", "gaussian"]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the network.

    Attributes:
        hidden: units of the deterministic state.
        groups: categorical variables in a latent state.
        classes: values of each.
        embedding: units of an encoded observation.
        bottleneck: dimensions of the bottleneck.
        channels: of the convolutions.
    """

    hidden: int = 256
    groups: int = 16
    classes: int = 16
    embedding: int = 256
    bottleneck: int = 128
    channels: int = 24

    @property
    def latent(self) -> int:
        """Length of a latent state."""
        return self.groups * self.classes


@dataclass(frozen=True)
class WorldState:
    """The world's state in B simulations.

    Attributes:
        hidden: deterministic part, (B, hidden).
        latent: one-hot vectors of all groups, (B, latent).
    """

    hidden: torch.Tensor
    latent: torch.Tensor

    def take(self, chosen: torch.Tensor) -> "WorldState":
        """Return those of some simulations."""
        return WorldState(self.hidden[chosen], self.latent[chosen])


@dataclass(frozen=True)
class Prediction:
    """What the decoder says of a tick, in logits where it is about categories.

    Attributes:
        scene: the scene in probabilities.
        material: logits, (B, materials, V).
        kinds: logits, (B, kinds, V).
        target: logits, (B, V).
        health: (B, V).
        vitals: logits, (B, 3, levels).
        item_type: logits, (B, slots, types).
        legal: logits, (B, options).
        move: logits of the agent's own displacement, (B, moves).
        reward: for the last action, in its standard deviations from its mean, (B,).
        end: logit that the life ended with the last action, (B,).
    """

    scene: SoftScene
    material: torch.Tensor
    kinds: torch.Tensor
    target: torch.Tensor
    health: torch.Tensor
    vitals: torch.Tensor
    item_type: torch.Tensor
    legal: torch.Tensor
    move: torch.Tensor
    reward: torch.Tensor
    end: torch.Tensor
