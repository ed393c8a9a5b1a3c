"""takeru's network: other entities are visible to the action heads only, never to the hidden state."""

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import MemoryCell
from agent_zoo.base import RecurrentPolicy
from agent_zoo.linear_rows import LinearRowsPolicy
from agent_zoo.network_parts.layers import (
    ENTITY_ID,
    ENTITY_SCALES,
    MESSAGE,
    NPC_TYPE,
    Candidates,
    EmbeddedRowFeatures,
    item_features,
    mean_over_table,
    own_rows,
    padding_row,
)
from agent_zoo.network_parts.published_features import LinearOverPlaces, clipped_entity_features, scaled_item_features
from agent_zoo.network_parts.soft_observation import SoftCandidates, SoftObservation, grid_of_rows, soft_mean_over_table
from agent_zoo.network_parts.tiles import TileConvolution, tile_encoder
from agent_zoo.observation import CandidateTable, ObservationLayout, PackedObservation, PackedRows

MATERIAL_EMBEDDING = 32
TILE_CHANNELS = (16, 8)
IDENTITY_EMBEDDING = 32
DISCRETE_COLUMNS = {"id": ENTITY_ID, "npc_type": NPC_TYPE, "attacker_id": ENTITY_ID, "message": MESSAGE}


class Policy(LinearRowsPolicy):
    """Concatenates tiles, the agent's own row, its items, the mean of the market, and the task.

    Attributes:
        published: whether the network computes what the published one does: rows and task are encoded linearly, the
            inventory is read place by place, and four columns of entities share one short table of embeddings.
    """

    linear_parts = ("tiles", "own row", "inventory", "market", "task")

    def __init__(self, layout: ObservationLayout, hidden_size: int = 256):
        super().__init__(layout, hidden_size)
        self.material = nn.Embedding(layout.materials, MATERIAL_EMBEDDING)
        self.tile_convolution = TileConvolution(layout, 0, MATERIAL_EMBEDDING, TILE_CHANNELS[0])
        self.tile_encoder = tile_encoder(layout, TILE_CHANNELS, hidden_size)
        earlier = (layout.entity_columns, DISCRETE_COLUMNS, ENTITY_SCALES, IDENTITY_EMBEDDING)
        self.entity_features = clipped_entity_features(layout) if self.published else EmbeddedRowFeatures(*earlier)
        self.item_features = scaled_item_features(layout) if self.published else item_features(layout)
        self.self_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.entity_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.item_encoder = nn.Linear(self.item_features.size, hidden_size)
        if self.published:
            self.inventory_encoder = LinearOverPlaces(layout.inventory, hidden_size)
            self.market_encoder = nn.Linear(hidden_size, hidden_size)
        self.task_encoder = nn.Linear(layout.task_size, hidden_size)
        self.projection = nn.Linear(5 * hidden_size, hidden_size)

    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        inventory = self._item_keys(observation.inventory.values)
        market = self._item_keys(observation.market.values)
        no_item = self._item_keys(padding_row(observation.inventory))[0]  # (units,)
        parts = [
            self.tile_encoder(self.tile_convolution(observation.material, self.material.weight, self.places())),
            functional.relu(self.self_encoder(self.entity_features(own_rows(observation)))),
            self._inventory(inventory, no_item, observation.inventory),
            self._market(market, no_item, observation.market),
            self.rectify(self.task_encoder(observation.task.to(self.task_encoder.weight.dtype))),
        ]
        candidates = Candidates(
            rows={"entity": observation.entity, "inventory": observation.inventory, "market": observation.market},
            keys={"entity": self._entity_keys(observation.entity.values), "inventory": inventory, "market": market},
            layers=self._layers_of_keys(),
        )
        return self.projection(torch.cat(parts, dim=1)), candidates

    def encode_soft(self, observation: SoftObservation) -> tuple[torch.Tensor, SoftCandidates]:
        """Return the same as `encode_observations` for observations known in probabilities."""
        own, entity, inventory = observation.own, observation.entity, observation.inventory
        items = self._items(self.item_features.soft(inventory.category, inventory.values, item_features(self.layout)))
        market = self._items(self.item_features(observation.market.values))  # (total rows, hidden)
        no_item = self._items(self.item_features(padding_row(observation.market)))[0]  # (hidden,)
        if self.published:
            carried = self.inventory_encoder.soft(items, no_item, inventory.presence)
        else:
            carried = soft_mean_over_table(items, no_item, inventory.presence, self.layout.inventory)
        for_sale = mean_over_table(market, no_item, observation.market, self.layout.market)
        parts = [
            self.tile_encoder(self.tile_convolution.soft(observation.material, self.material.weight, self.places())),
            functional.relu(self.self_encoder(self._soft_entities(own)[:, 0])),
            carried,
            self.market_encoder(for_sale) if self.published else for_sale,
            self.rectify(self.task_encoder(observation.task)),
        ]
        keys: dict[CandidateTable, torch.Tensor] = {
            "entity": self._entities(self._soft_entities(entity)),  # (B, R, hidden)
            "inventory": items,
            "market": grid_of_rows(market, observation.market),
        }
        return self.projection(torch.cat(parts, dim=1)), keys

    def places(self) -> torch.Tensor:
        """Return nothing, (0, side, side): tiles are embedded by their material alone."""
        return self.material.weight.new_zeros(0, self.layout.view_side, self.layout.view_side)

    def _inventory(self, values: torch.Tensor, padding: torch.Tensor, rows: PackedRows) -> torch.Tensor:
        if self.published:
            return self.inventory_encoder.packed(values, padding, rows, self.item_encoder)
        return mean_over_table(values, padding, rows, self.layout.inventory)

    def _market(self, values: torch.Tensor, padding: torch.Tensor, rows: PackedRows) -> torch.Tensor:
        if self.published:
            return self.market_encoder(mean_over_table(values, padding, rows, self.layout.market, self.item_encoder))
        return mean_over_table(values, padding, rows, self.layout.market)


class EarlierPolicy(Policy):
    """The network before it computed what the published one does.

    Rows and the task are rectified, the inventory is a mean, and each column of entities has a table of its own.
    """

    published = False


class Recurrent(RecurrentPolicy):
    """Feed-forward by default."""

    def __init__(self, policy: Policy, layers: int = 0, cell: MemoryCell = "lstm"):
        super().__init__(policy, layers, cell)
