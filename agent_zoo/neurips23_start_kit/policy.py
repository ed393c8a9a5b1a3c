"""The start kit's network: two convolutions over tiles, mean-pooled tables, one LSTM."""

import torch
from torch import nn

from agent_zoo.linear_rows import LinearRowsPolicy
from agent_zoo.network_parts.layers import entity_features, item_features, mean_over_table, padding_row
from agent_zoo.network_parts.published_features import raw_entity_features, raw_item_features
from agent_zoo.network_parts.soft_observation import SoftObservation, soft_mean_over_table
from agent_zoo.network_parts.tiles import TileConvolution, tile_encoder
from agent_zoo.observation import ObservationLayout, PackedObservation

TILE_EMBEDDING = 32
TILE_CHANNELS = (32, 8)


class Policy(LinearRowsPolicy):
    """Reads the mean of each table.

    Attributes:
        published: whether the network computes what the published one does: rows and task are encoded linearly, and
            rows are read in the game's own units.
    """

    linear_parts = ("tiles", "own row", "entities", "inventory", "market", "task")

    def __init__(self, layout: ObservationLayout, hidden_size: int = 256):
        super().__init__(layout, hidden_size)
        self.side = layout.view_side
        self.material = nn.Embedding(layout.materials, TILE_EMBEDDING)
        self.row = nn.Embedding(self.side, TILE_EMBEDDING)
        self.column = nn.Embedding(self.side, TILE_EMBEDDING)
        self.tile_convolution = TileConvolution(layout, 2 * TILE_EMBEDDING, TILE_EMBEDDING, TILE_CHANNELS[0])
        self.tile_encoder = tile_encoder(layout, TILE_CHANNELS, hidden_size)
        self.entity_features = raw_entity_features(layout) if self.published else entity_features(layout)
        self.item_features = raw_item_features(layout) if self.published else item_features(layout)
        self.self_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.entity_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.item_encoder = nn.Linear(self.item_features.size, hidden_size)
        self.market_encoder = nn.Linear(hidden_size, hidden_size) if self.published else nn.Identity()
        self.task_encoder = nn.Linear(layout.task_size, hidden_size)
        self.projection = nn.Linear(6 * hidden_size, hidden_size)

    def places(self) -> torch.Tensor:
        """Return the embeddings of the row and column of each place in view, (2 embeddings, side, side)."""
        rows = self.row.weight.T.unsqueeze(2).expand(-1, -1, self.side)  # (embedding, side, side)
        columns = self.column.weight.T.unsqueeze(1).expand(-1, self.side, -1)
        return torch.cat([rows, columns])

    def of_tables(
        self, observation: PackedObservation, entities: torch.Tensor, inventory: torch.Tensor, no_item: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return the means of entities and of items."""
        no_entity = self._entity_keys(padding_row(observation.entity))[0]  # (units,)
        layers, layout = self._layers_of_keys(), self.layout
        return [
            mean_over_table(entities, no_entity, observation.entity, layout.entities, layers.get("entity")),
            mean_over_table(inventory, no_item, observation.inventory, layout.inventory, layers.get("inventory")),
        ]

    def of_soft_tables(
        self, observation: SoftObservation, entities: torch.Tensor, inventory: torch.Tensor, no_item: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return the means of entities and of items."""
        no_row = observation.market.values.new_zeros(1, len(self.layout.entity_columns))
        no_entity = self._entities(self.entity_features(no_row))[0]
        return [
            soft_mean_over_table(entities, no_entity, observation.entity.presence, self.layout.entities),
            soft_mean_over_table(inventory, no_item, observation.inventory.presence, self.layout.inventory),
        ]


class EarlierPolicy(Policy):
    """The network before it computed what the published one does; rows are scaled, and they and the task rectified."""

    published = False
