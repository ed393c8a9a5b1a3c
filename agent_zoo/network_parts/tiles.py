"""Encodes the tiles in view: a first convolution by lookup, and the layers after it."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from agent_zoo.network_parts.layers import at_least_float32
from agent_zoo.observation import ObservationLayout


class SumsOfRows(torch.autograd.Function):
    """Adds up K rows of a table for each of N sums, on the CPU.

    `apply` takes the table, (R, units), and which of its rows, (N, K) int32. torch's own gradient of an embedding bag
    sorts all rows first; a sparse product needs no sorting.
    """

    @staticmethod
    def forward(context: Any, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the sums, (N, units)."""
        context.save_for_backward(rows)
        context.table_rows = len(table)
        return functional.embedding_bag(rows, table, mode="sum")

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient of the table, (R, units)."""
        from scipy.sparse import csc_array  # imported here: a policy that only plays needs no scipy

        (rows,) = context.saved_tensors
        sums, terms = rows.shape
        numbers = at_least_float32(gradient).contiguous().numpy()  # (N, units)
        ends = np.arange(0, sums * terms + 1, terms, dtype=np.int32)
        ones = np.ones(sums * terms, dtype=numbers.dtype)
        uses = csc_array((ones, rows.numpy().ravel(), ends), shape=(context.table_rows, sums))
        return torch.from_numpy(uses @ numbers), None


KERNEL = 3


class TileConvolution(nn.Module):
    """First convolution over embedded tiles, computed without embedding each tile.

    A tile's vector has a part for its place in the view, which is the same for every agent, and a part for its
    material, of which there are few. A convolution is linear, so the places contribute a constant map, and the
    materials contribute one vector per row of the kernel, which depends on three materials only. All 3 x 16^3 of these
    vectors are computed once per pass and looked up, which replaces nearly all multiplications.
    """

    def __init__(self, layout: ObservationLayout, place_units: int, material_units: int, channels: int):
        super().__init__()
        self.side = layout.view_side
        self.materials = layout.materials
        self.place_units = place_units
        self.convolution = nn.Conv2d(place_units + material_units, channels, KERNEL)

    def forward(self, material: torch.Tensor, vectors: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Convolve as if every tile were embedded.

        Args:
            material: of the tiles in view, (B, tiles) uint8.
            vectors: embedding of each material, (materials, material units).
            places: embedding of each place in the view, (place units, side, side).

        Returns:
            (B, channels, side - 2, side - 2), with the channels last in memory.
        """
        views = material.view(-1, self.side, self.side)
        convolve = looked_up if material.device.type == "cpu" else convolved
        return convolve(views, self._kernel(vectors), self._place_map(places))

    def soft(self, material: torch.Tensor, vectors: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return the same for materials known in probabilities, (B, tiles, materials)."""
        planes = material.unflatten(1, (self.side, self.side))
        return convolved_planes(planes, self._kernel(vectors), self._place_map(places))

    def _kernel(self, vectors: torch.Tensor) -> torch.Tensor:
        """What each material adds at each place of the kernel, (3, 3, materials, channels)."""
        return torch.einsum("oekl,me->klmo", self.convolution.weight[:, self.place_units :], vectors)

    def _place_map(self, places: torch.Tensor) -> torch.Tensor:
        """What places and bias add, (channels, side - 2, side - 2)."""
        bias, side = self.convolution.bias, self.side - KERNEL + 1
        assert bias is not None
        if self.place_units == 0:
            return bias.view(-1, 1, 1).expand(-1, side, side)
        return functional.conv2d(places, self.convolution.weight[:, : self.place_units], bias)


def looked_up(views: torch.Tensor, kernel: torch.Tensor, place_map: torch.Tensor) -> torch.Tensor:
    """Sum four vectors for each place, on the CPU: one for each row of the kernel, and one of the place itself.

    Args:
        views: material of each tile, (B, side, side) uint8.
        kernel: what each material adds at each place of the kernel, (3, 3, materials, channels).
        place_map: what is added for each agent, (channels, side - 2, side - 2).

    Returns:
        (B, channels, side - 2, side - 2).
    """
    materials, (channels, side, _) = kernel.shape[2], place_map.shape
    left, middle, right = kernel.unbind(1)  # (3, materials, channels) each
    pairs = left.unsqueeze(2) + middle.unsqueeze(1)  # (3, materials, materials, channels)
    triples = pairs.unsqueeze(3) + right.view(KERNEL, 1, 1, materials, channels)
    table = torch.cat([triples.flatten(0, 3), place_map.flatten(1).T])  # (3 * materials^3 + (side - 2)^2, channels)
    sums = SumsOfRows.apply(table, _rows_of_table(views, materials))
    return sums.view(len(views), side, side, channels).permute(0, 3, 1, 2)


def convolved(views: torch.Tensor, kernel: torch.Tensor, place_map: torch.Tensor) -> torch.Tensor:
    """Compute the same as `looked_up` on any device, by convolving the materials as one-hot planes."""
    planes = functional.one_hot(views.long(), kernel.shape[2]).to(kernel.dtype)  # (B, side, side, materials)
    return convolved_planes(planes, kernel, place_map)


def convolved_planes(planes: torch.Tensor, kernel: torch.Tensor, place_map: torch.Tensor) -> torch.Tensor:
    """Convolve the probabilities of materials, (B, side, side, materials); see `looked_up`."""
    return functional.conv2d(planes.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1)) + place_map


def _rows_of_table(views: torch.Tensor, materials: int) -> torch.Tensor:
    """The four rows of the table that each place sums, (B * (side - 2)^2, 4) int32."""
    views, side = views.int(), views.shape[1] - KERNEL + 1
    triple = (views[:, :, :-2] * materials + views[:, :, 1:-1]) * materials + views[:, :, 2:]  # (B, side + 2, side)
    rows = triple.new_empty(len(views), side, side, KERNEL + 1)
    for row in range(KERNEL):
        torch.add(triple[:, row : row + side], row * materials**3, out=rows[:, :, :, row])
    rows[:, :, :, KERNEL] = KERNEL * materials**3 + torch.arange(side**2, dtype=torch.int32).view(side, side)
    return rows.view(-1, KERNEL + 1)


def tile_encoder(layout: ObservationLayout, channels: tuple[int, int], hidden_size: int) -> nn.Sequential:
    """Build the layers after the first convolution over tiles: a second convolution and a linear layer.

    They map (B, channels, side - 2, side - 2) into (B, hidden).

    Args:
        channels: of the first and the second convolution.
    """
    first, second = channels
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(first, second, KERNEL),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * (layout.view_side - 4) ** 2, hidden_size),
        nn.ReLU(),
    )
