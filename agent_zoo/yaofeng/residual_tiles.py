"""The residual block over embedded tiles of yaofeng's network, its first convolution by lookup."""

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.network_parts.tiles import KERNEL, TileConvolution, convolved, convolved_planes, looked_up
from agent_zoo.observation import ObservationLayout

PLACE_UNITS = 2
_MAP_SIDE = 128


class ResidualTiles(TileConvolution):
    """Two convolutions with layer normalisation over the whole view, added to the embedded tiles, and rectified.

    A tile is embedded as its row and column on the map, scaled, and the embedding of its material. Within a view the
    place on the map is that of the agent plus what is the same for all agents; the convolution of the latter is a
    constant map. Beyond the view there is nothing, which the lookup takes for one more material.
    """

    scaled_places: torch.Tensor

    def __init__(self, layout: ObservationLayout, material_units: int):
        units = PLACE_UNITS + material_units
        super().__init__(layout, PLACE_UNITS, material_units, units)
        self.units = units
        view = (units, self.side, self.side)
        self.norm = nn.LayerNorm(view)
        self.second_convolution = nn.Conv2d(units, units, KERNEL, padding=1)
        self.second_norm = nn.LayerNorm(view)
        along = (torch.arange(self.side) - self.side // 2) / _MAP_SIDE - 0.5
        places = torch.stack(torch.meshgrid(along, along, indexing="ij"))  # of an agent at the map's corner
        self.register_buffer("scaled_places", places, persistent=False)

    def forward(self, material: torch.Tensor, vectors: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
        """Compute the block as if every tile were embedded.

        Args:
            material: of the tiles in view, (B, tiles) uint8.
            vectors: embedding of each material, (materials, material units).
            centre: row and column of the agent on the map, (B, 2).

        Returns:
            (B, units, side, side), with the channels last in memory.
        """
        views = material.view(-1, self.side, self.side)
        beyond = functional.pad(views, (1, 1, 1, 1), value=self.materials)
        kernel = self._kernel(torch.cat([vectors, vectors.new_zeros(1, vectors.shape[1])]))
        convolve = looked_up if material.device.type == "cpu" else convolved
        first = convolve(beyond, kernel, self._place_map(self.scaled_places))
        embedded = vectors.index_select(0, views.flatten().int()).view(*views.shape, vectors.shape[1])
        return self._block(first, embedded, self._scaled(centre))

    def soft(self, material: torch.Tensor, vectors: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
        """Return the same for materials known in probabilities, (B, tiles, materials)."""
        planes = material.unflatten(1, (self.side, self.side))
        beyond = functional.pad(planes, (0, 0, 1, 1, 1, 1))
        first = convolved_planes(beyond, self._kernel(vectors), self._place_map(self.scaled_places))
        return self._block(first, planes @ vectors, self._scaled(centre))

    def _scaled(self, centre: torch.Tensor) -> torch.Tensor:
        return centre.to(self.scaled_places.dtype) / _MAP_SIDE

    def _place_map(self, places: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(places, self.convolution.weight[:, :PLACE_UNITS], self.convolution.bias, padding=1)

    def _maps_of_agent(self) -> torch.Tensor:
        """What an agent's own row and column add if they are 1, (2, side * side * units)."""
        weight = self.convolution.weight[:, :PLACE_UNITS]  # (units, 2, 3, 3)
        view = weight.new_ones(1, 1, self.side, self.side)
        maps = functional.conv2d(view, weight.flatten(0, 1).unsqueeze(1), padding=1)  # (1, units * 2, side, side)
        return maps.view(len(weight), PLACE_UNITS, self.side, self.side).permute(1, 2, 3, 0).flatten(1)

    def _block(self, first: torch.Tensor, embedded: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
        """Add the rest of the block.

        Args:
            first: first convolution without the agents' own places, (B, units, side, side).
            embedded: materials of the tiles, (B, side, side, material units).
            centre: scaled row and column of each agent, (B, 2).
        """
        inner = first.permute(0, 2, 3, 1)  # (B, side, side, units), as it lies in memory
        inner = torch.addmm(inner.flatten(1), centre, self._maps_of_agent()).view(inner.shape)
        inner = functional.relu(_normalized(self.norm, inner))
        inner = self.second_convolution(inner.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        places = self.scaled_places.permute(1, 2, 0) + centre.view(-1, 1, 1, PLACE_UNITS)
        tiles = torch.cat([places, embedded], dim=3)  # (B, side, side, units)
        return functional.relu(tiles + _normalized(self.second_norm, inner)).permute(0, 3, 1, 2)


def _normalized(norm: nn.LayerNorm, planes: torch.Tensor) -> torch.Tensor:
    """Normalise over whole views with the channels last: (B, side, side, units) -> the same."""
    weight, bias = (part.permute(1, 2, 0).contiguous() for part in (norm.weight, norm.bias))
    return functional.layer_norm(planes, planes.shape[1:], weight, bias, norm.eps)
