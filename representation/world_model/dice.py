"""Random numbers of a training batch: what is drawn for a window does not depend on which others are with it."""

from dataclasses import dataclass

import torch

from representation.world_model.states import Sizes
from representation.world_model.windows import CONTEXT, Windows


@dataclass(frozen=True)
class Dice:
    """Random numbers for W windows of T ticks.

    Attributes:
        latent: uniform, of the latent states of the last given tick and of each predicted one, (W, T - 1, groups).
        bottleneck: normal, (W, dimensions).
        imagined: uniform, decides which windows go on from the bottleneck, (W,).
        foreseen: uniform, decides in which windows latent states are drawn from the prior, (W,).
    """

    latent: torch.Tensor
    bottleneck: torch.Tensor
    imagined: torch.Tensor
    foreseen: torch.Tensor

    @staticmethod
    def thrown(windows: Windows, sizes: Sizes, generator: torch.Generator) -> "Dice":
        """Draw the numbers of a whole batch."""
        count = len(windows)
        return Dice(
            torch.rand((count, windows.ticks - CONTEXT + 2, sizes.groups), generator=generator),
            torch.randn((count, sizes.bottleneck), generator=generator),
            torch.rand(count, generator=generator),
            torch.rand(count, generator=generator),
        )

    def part(self, first: int, last: int) -> "Dice":
        """Return those of some consecutive windows."""
        return Dice(**{name: each[first:last] for name, each in vars(self).items()})
