"""yaofeng's network: a residual block over tiles, normalised perceptrons on rows, two LSTM layers."""

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import MemoryCell
from agent_zoo.base import BasePolicy, RecurrentPolicy
from agent_zoo.network_parts.layers import (
    Candidates,
    entity_features,
    item_features,
    mean_over_table,
    own_rows,
    padding_row,
)
from agent_zoo.network_parts.places import LinearOverPlaces
from agent_zoo.network_parts.published_features import multiplied_item_features, unscaled_entity_features
from agent_zoo.network_parts.soft_observation import SoftCandidates, SoftObservation, SoftRows, grid_of_rows
from agent_zoo.network_parts.tiles import KERNEL, tile_encoder
from agent_zoo.observation import CandidateTable, ObservationLayout, PackedObservation
from agent_zoo.yaofeng.residual_tiles import ResidualTiles

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
        return functional.relu(self.projection(torch.cat(parts, dim=1))), SoftCandidates(keys)

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
