"""yaofeng: a residual block over tiles, normalised perceptrons on rows, two LSTM layers.

Rewarded for health, skill, armour and gold.
"""

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import MemoryCell
from agent_zoo.agent_settings import RewardRules
from agent_zoo.base import BasePolicy, RecurrentPolicy
from agent_zoo.network_parts.layers import (
    Candidates,
    entity_features,
    item_features,
    mean_over_table,
    own_rows,
    padding_row,
)
from agent_zoo.network_parts.published_features import (
    LinearOverPlaces,
    multiplied_item_features,
    unscaled_entity_features,
)
from agent_zoo.network_parts.tiles import KERNEL, TileConvolution, convolved, convolved_planes, looked_up, tile_encoder
from agent_zoo.observation import CandidateTable, ObservationLayout, PackedObservation
from agent_zoo.rewards import WeightedReward
from agent_zoo.soft_path import SoftCandidates, SoftObservation, SoftRows, grid_of_rows

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]

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
        inner = functional.relu(_over_views(self.norm, inner))
        inner = self.second_convolution(inner.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        places = self.scaled_places.permute(1, 2, 0) + centre.view(-1, 1, 1, PLACE_UNITS)
        tiles = torch.cat([places, embedded], dim=3)  # (B, side, side, units)
        return functional.relu(tiles + _over_views(self.second_norm, inner)).permute(0, 3, 1, 2)


def _over_views(norm: nn.LayerNorm, planes: torch.Tensor) -> torch.Tensor:
    """Normalise over whole views with the channels last: (B, side, side, units) -> the same."""
    weight, bias = (part.permute(1, 2, 0).contiguous() for part in (norm.weight, norm.bias))
    return functional.layer_norm(planes, planes.shape[1:], weight, bias, norm.eps)


MATERIAL_EMBEDDING = 62  # 64 with the row and column
TILE_CHANNELS = (32, 8)


class Policy(BasePolicy):
    """Concatenates tiles, the agent's own row, its items, the mean of the market, and the task; rectifies the result.

    Other entities are visible to the action heads only. The heads read rectified units, the critic unrectified ones.
    """

    def __init__(self, layout: ObservationLayout, hidden_size: int = 256):
        super().__init__(layout, hidden_size, published=True, rectified=True)
        self.material = nn.Embedding(layout.materials, MATERIAL_EMBEDDING)
        self.tile_convolution = ResidualTiles(layout, MATERIAL_EMBEDDING)
        self.tile_encoder = nn.Sequential(
            nn.Conv2d(self.tile_convolution.units, TILE_CHANNELS[0], KERNEL),
            *list(tile_encoder(layout, TILE_CHANNELS, hidden_size))[:-1],
            nn.LayerNorm(hidden_size),
            nn.ReLU(),
        )
        self.entity_features = unscaled_entity_features(layout)
        self.item_features = multiplied_item_features(layout)
        self.entity_perceptron = _perceptron(self.entity_features.size, hidden_size)
        self.entity_perceptron.append(nn.ReLU())
        self.self_encoder = _normalized(hidden_size, hidden_size)
        self.entity_encoder = _normalized(hidden_size, hidden_size)
        self.item_encoder = _perceptron(self.item_features.size, hidden_size)
        self.item_encoder.extend([nn.LayerNorm(hidden_size), nn.ReLU()])
        self.inventory_encoder = LinearOverPlaces(layout.inventory, hidden_size)
        self.inventory_norm = nn.LayerNorm(hidden_size)
        self.market_encoder = _normalized(hidden_size, hidden_size)
        self.task_encoder = _normalized(layout.task_size, hidden_size)
        self.projection = nn.Linear(5 * hidden_size, hidden_size)
        self.initialize_orthogonally()

    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        entities = self.entity_perceptron(self.entity_features(observation.entity.values))
        own = self.entity_perceptron(self.entity_features(own_rows(observation)))
        inventory = self.item_encoder(self.item_features(observation.inventory.values))
        market = self.item_encoder(self.item_features(observation.market.values))
        no_item = self.item_encoder(self.item_features(padding_row(observation.inventory)))[0]  # (hidden,)
        places = self.inventory_encoder.packed(inventory, no_item, observation.inventory)
        parts = [
            self.tile_encoder(self.tile_convolution(observation.material, self.material.weight, observation.centre)),
            self.self_encoder(own),
            functional.relu(self.inventory_norm(places)),
            # The first layer of this encoder is linear, so the mean may come before it.
            self.market_encoder(mean_over_table(market, no_item, observation.market, self.layout.market)),
            self.task_encoder(observation.task.to(self.projection.weight.dtype)),
        ]
        candidates = Candidates(
            rows={"entity": observation.entity, "inventory": observation.inventory, "market": observation.market},
            keys={"entity": self.entity_encoder(entities), "inventory": inventory, "market": market},
        )
        return functional.relu(self.projection(torch.cat(parts, dim=1))), candidates

    def encode_soft(self, observation: SoftObservation) -> tuple[torch.Tensor, SoftCandidates]:
        """Return the same as `encode_observations` for observations known in probabilities.

        Where an agent is on the map is what its own row says.
        """
        own, inventory = observation.own, observation.inventory
        items = self.item_encoder(
            self.item_features.soft(inventory.category, inventory.values, item_features(self.layout))
        )  # (B, R, hidden)
        market = self.item_encoder(self.item_features(observation.market.values))  # (total rows, hidden)
        no_item = self.item_encoder(self.item_features(padding_row(observation.market)))[0]  # (hidden,)
        known = entity_features(self.layout)
        place = [known.other_columns.tolist().index(self.layout.entity_columns.index(name)) for name in ("row", "col")]
        centre = own.values[:, 0, place] * known.scale[place]  # (B, 2)
        parts = [
            self.tile_encoder(self.tile_convolution.soft(observation.material, self.material.weight, centre)),
            self.self_encoder(self._soft_entities(own)[:, 0]),
            functional.relu(self.inventory_norm(self.inventory_encoder.soft(items, no_item, inventory.presence))),
            self.market_encoder(mean_over_table(market, no_item, observation.market, self.layout.market)),
            self.task_encoder(observation.task),
        ]
        keys: dict[CandidateTable, torch.Tensor] = {
            "entity": self.entity_encoder(self._soft_entities(observation.entity)),  # (B, R, hidden)
            "inventory": items,
            "market": grid_of_rows(market, observation.market),
        }
        return functional.relu(self.projection(torch.cat(parts, dim=1))), keys

    def _soft_entities(self, rows: SoftRows) -> torch.Tensor:
        features = self.entity_features.soft(rows.category, rows.values, entity_features(self.layout))
        return self.entity_perceptron(features)


class Recurrent(RecurrentPolicy):
    """Two LSTM layers by default."""

    def __init__(self, policy: BasePolicy, layers: int = 2, cell: MemoryCell = "lstm"):
        super().__init__(policy, layers, cell)


def _perceptron(inputs: int, units: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, units), nn.ReLU(), nn.Linear(units, units))


def _normalized(inputs: int, units: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, units), nn.LayerNorm(units), nn.ReLU())


EarlierPolicy = None  # no policy has that network any more


class RewardWrapper(WeightedReward):
    """Task reward + 0.1 x (0.03 health + 0.002 best skill's experience + 0.04 defence + 0.001 gold).

    All are changes, except the defence, which pays in every tick. Giving, and attacking NPCs that fight back, are
    illegal.
    """

    default = RewardRules(
        hp=0.03, experience=0.002, defence=0.04, gold=0.001, scale=0.1, disable_give=True, spare_dangerous_npcs=True
    )
