"""A low-dimensional plane and a codebook of skills between a policy's memory and its heads.

After Zhang, Lieffers and Pyarelal 2025 (arXiv:2409.17411): a linear map from the hidden state to the plane, and vector
quantisation there. The number of the nearest code is fed to the heads along with the hidden state.
"""

import torch
from torch import nn

from agent_zoo.semantic.shape import SemanticShape

MIDDLE_UNITS = 128
"""Units between the two linear maps to the plane."""


class SemanticModule(nn.Module):
    """The map to the plane, the codebook, and what heads are fed of the code."""

    def __init__(self, units: int, shape: SemanticShape):
        """Build with new weights; an embedding starts at zero, so at first the heads read the hidden state alone."""
        super().__init__()
        self.shape = shape
        self.to_plane = nn.Sequential(nn.Linear(units, MIDDLE_UNITS), nn.Linear(MIDDLE_UNITS, shape.plane_dimensions))
        reach = 1 / shape.codes
        self.codebook = nn.Parameter(torch.empty(shape.codes, shape.plane_dimensions).uniform_(-reach, reach))
        if shape.feed == "embedding":
            self.embedding = nn.Parameter(torch.zeros(shape.codes, units))

    def plane(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states' places in the plane: (B, units) -> (B, dimensions)."""
        place: torch.Tensor = self.to_plane(hidden)
        return place

    def nearest(self, plane: torch.Tensor) -> torch.Tensor:
        """Return the number of the code nearest to each place, (B,) int64; the first of several."""
        return nearest_code(plane, self.codebook)

    def code(self, plane: torch.Tensor) -> torch.Tensor:
        """Return the nearest code of each place as a row with a single 1, (B, codes)."""
        return nn.functional.one_hot(self.nearest(plane), self.shape.codes).to(plane.dtype)

    def fed(self, code: torch.Tensor) -> torch.Tensor:
        """Return what is added to the hidden state: (B, codes) -> (B, 1) for the number, else (B, units)."""
        if self.shape.feed == "embedding":
            return code @ self.embedding
        numbers = torch.arange(self.shape.codes, device=code.device, dtype=code.dtype) / self.shape.codes
        return (code @ numbers).unsqueeze(1)


@torch.no_grad()
def nearest_code(plane: torch.Tensor, codebook: torch.Tensor) -> torch.Tensor:
    """Return the index of the row of the codebook nearest to each place, (B,) int64; the first of several."""
    squared = (plane.unsqueeze(1) - codebook).square().sum(dim=2)  # (B, codes)
    return squared.argmin(dim=1)
