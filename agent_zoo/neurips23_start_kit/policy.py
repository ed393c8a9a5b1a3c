"""The start kit's network: two convolutions over tiles, mean-pooled tables, one LSTM."""

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import MemoryCell
from agent_zoo.base import RecurrentPolicy
from agent_zoo.linear_rows import LinearRowsPolicy
from agent_zoo.network_parts.layers import (
    Candidates,
    entity_features,
    item_features,
    mean_over_table,
    own_rows,
    padding_row,
)
from agent_zoo.network_parts.published_features import raw_entity_features, raw_item_features
from agent_zoo.network_parts.soft_observation import SoftCandidates, SoftObservation, grid_of_rows, soft_mean_over_table
from agent_zoo.network_parts.tiles import TileConvolution, tile_encoder
from agent_zoo.observation import CandidateTable, ObservationLayout, PackedObservation

TILE_EMBEDDING = 32
TILE_CHANNELS = (32, 8)


class Policy(LinearRowsPolicy):
    """Concatenates tiles, the agent's own row, the mean of each table and the task, and projects them.

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

    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        entities = self._entity_keys(observation.entity.values)
        inventory = self._item_keys(observation.inventory.values)
        market = self._item_keys(observation.market.values)
        no_entity = self._entity_keys(padding_row(observation.entity))[0]  # (units,)
        no_item = self._item_keys(padding_row(observation.inventory))[0]
        layers = self._layers_of_keys()
        parts = [
            self.tile_encoder(self.tile_convolution(observation.material, self.material.weight, self.places())),
            functional.relu(self.self_encoder(self.entity_features(own_rows(observation)))),
            mean_over_table(entities, no_entity, observation.entity, self.layout.entities, layers.get("entity")),
            mean_over_table(inventory, no_item, observation.inventory, self.layout.inventory, layers.get("inventory")),
            self.market_encoder(
                mean_over_table(market, no_item, observation.market, self.layout.market, layers.get("market"))
            ),
            self.rectify(self.task_encoder(observation.task.to(self.task_encoder.weight.dtype))),
        ]
        candidates = Candidates(
            rows={"entity": observation.entity, "inventory": observation.inventory, "market": observation.market},
            keys={"entity": entities, "inventory": inventory, "market": market},
            layers=layers,
        )
        return self.projection(torch.cat(parts, dim=1)), candidates

    def encode_soft(self, observation: SoftObservation) -> tuple[torch.Tensor, SoftCandidates]:
        """Return the same as `encode_observations` for observations known in probabilities."""
        no_row = padding_row(observation.market)
        no_entity = self._entities(self.entity_features(no_row.new_zeros(1, len(self.layout.entity_columns))))[0]
        no_item = self._items(self.item_features(no_row))[0]  # (hidden,)
        own, entity, inventory = observation.own, observation.entity, observation.inventory
        entities = self._entities(self._soft_entities(entity))  # (B, R, hidden)
        items = self._items(self.item_features.soft(inventory.category, inventory.values, item_features(self.layout)))
        market = self._items(self.item_features(observation.market.values))  # (total rows, hidden)
        parts = [
            self.tile_encoder(self.tile_convolution.soft(observation.material, self.material.weight, self.places())),
            functional.relu(self.self_encoder(self._soft_entities(own)[:, 0])),
            soft_mean_over_table(entities, no_entity, entity.presence, self.layout.entities),
            soft_mean_over_table(items, no_item, inventory.presence, self.layout.inventory),
            self.market_encoder(mean_over_table(market, no_item, observation.market, self.layout.market)),
            self.rectify(self.task_encoder(observation.task)),
        ]
        sold = grid_of_rows(market, observation.market)
        keys: dict[CandidateTable, torch.Tensor] = {"entity": entities, "inventory": items, "market": sold}
        return self.projection(torch.cat(parts, dim=1)), keys

    def places(self) -> torch.Tensor:
        """Return the embeddings of the row and column of each place in view, (2 embeddings, side, side)."""
        rows = self.row.weight.T.unsqueeze(2).expand(-1, -1, self.side)  # (embedding, side, side)
        columns = self.column.weight.T.unsqueeze(1).expand(-1, self.side, -1)
        return torch.cat([rows, columns])


class EarlierPolicy(Policy):
    """The network before it computed what the published one does; rows are scaled, and they and the task rectified."""

    published = False


class Recurrent(RecurrentPolicy):
    """One LSTM layer by default."""

    def __init__(self, policy: Policy, layers: int = 1, cell: MemoryCell = "lstm"):
        super().__init__(policy, layers, cell)
