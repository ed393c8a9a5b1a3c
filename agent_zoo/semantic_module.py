"""A low-dimensional plane and a codebook of skills between a policy's memory and its heads.

After Zhang, Lieffers and Pyarelal 2025 (arXiv:2409.17411): a linear map from the hidden state to the plane, and vector
quantisation there. The number of the nearest code is fed to the heads along with the hidden state. Also the losses that
shape plane and codebook, and the restart of codes that nothing uses.
"""

import math

import torch
from torch import nn

from agent_zoo.agent_settings import BETA, SemanticShape

MIDDLE_UNITS = 128
"""Units between the two linear maps to the plane."""
ALPHA = 20.0
"""Degrees of freedom of the similarities, among hidden states and in the plane."""
DEAD_SHARE = 0.01
"""A code is dead if it is nearest to less than this times the states that it would have if all had equally many."""
CODEBOOK_SPEED = 10.0
"""Learning rate of the codebook relative to that of the network: codes have to travel as far as the plane expands."""
_LOG_SMALLEST = math.log(1e-10)


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


def log_similarities(rows: torch.Tensor, alpha: float = ALPHA) -> torch.Tensor:
    """Return log(s_ij), (N, N), where s_ij = (1 + |x_i - x_j|^2 / alpha)^(-(alpha + 1) / 2), divided by its row's sum.

    The diagonal does not count, and the s are at least 1e-10. The paper divides by sums of columns; since s is
    symmetric before, this is the transpose, and what is summed over i and j the same.

    Args:
        rows: x, (N, units).
        alpha: degrees of freedom.
    """
    squares = rows.square().sum(dim=1)
    distances = (squares.unsqueeze(1) + squares).addmm(rows, rows.T, alpha=-2).clamp(min=0)  # (N, N), squared
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    logarithm = torch.log1p(distances / alpha) * (-(alpha + 1) / 2)
    return logarithm.masked_fill(itself, -torch.inf).log_softmax(dim=1).clamp(min=_LOG_SMALLEST)


def pairwise_loss(
    features: torch.Tensor, plane: torch.Tensor, alpha: float = ALPHA, states: int | None = None
) -> torch.Tensor:
    """Return L_FDR = -sum_ij p_ij log(q_ij) / (N states): states that are neighbours should be so in the plane.

    Gradients reach the features too, as in the paper.

    Args:
        features: hidden states, (N, units), whose similarities are p.
        plane: their places, (N, dimensions), whose similarities are q.
        alpha: degrees of freedom.
        states: the sum over i is of order N, so dividing by N^2, as the paper does with N = 2048, makes the loss depend
            on the number of states at hand; with a fixed number here it does not. None for N.
    """
    total = (log_similarities(features, alpha).exp() * log_similarities(plane, alpha)).sum()
    return -total / (len(features) * (states or len(features)))


def quantisation_loss(plane: torch.Tensor, codebook: torch.Tensor, beta: float = BETA) -> torch.Tensor:
    """Return L_VQ: the mean squared distance of codes to the places they are nearest to, plus beta times the reverse.

    The first term moves codes only, the second places only (van den Oord et al. 2017, without reconstruction).

    Args:
        plane: (N, dimensions).
        codebook: (codes, dimensions).
        beta: weight of the second term.
    """
    codes = codebook[nearest_code(plane, codebook)]  # (N, dimensions)
    return (codes - plane.detach()).square().mean() + beta * (codes.detach() - plane).square().mean()


def perplexity(counts: torch.Tensor) -> float:
    """Return the exponential of the entropy of the codes' shares: their number if all are equal."""
    shares = counts.double() / counts.sum().clamp(min=1)
    return float(torch.exp(-torch.xlogy(shares, shares).sum()))


@torch.no_grad()
def restart_dead_codes(codebook: torch.Tensor, plane: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move codes that almost no place is nearest to, in place, each to a place drawn at random.

    Args:
        codebook: (codes, dimensions).
        plane: (N, dimensions).

    Returns:
        Numbers of the codes that were moved, (moved,) int64; none if there are fewer places than codes.
    """
    if len(plane) < len(codebook):
        return torch.zeros(0, dtype=torch.int64)
    counts = torch.bincount(nearest_code(plane, codebook), minlength=len(codebook)).cpu()
    dead = (counts * len(codebook) < DEAD_SHARE * len(plane)).nonzero().squeeze(1)
    drawn = torch.randperm(len(plane), generator=generator)[: len(dead)]
    codebook[dead.to(codebook.device)] = plane[drawn.to(plane.device)]
    return dead
