"""takeru's network: other entities are visible to the action heads only, never to the hidden state."""

import torch
from torch import nn

from activation_store.layers import MemoryCell
from agent_zoo.base import RecurrentPolicy
from agent_zoo.linear_rows import LinearRowsPolicy
from agent_zoo.network_parts.layers import (
    ENTITY_ID,
    ENTITY_SCALES,
    MESSAGE,
    NPC_TYPE,
    EmbeddedRowFeatures,
    item_features,
    mean_over_table,
)
from agent_zoo.network_parts.published_features import LinearOverPlaces, clipped_entity_features, scaled_item_features
from agent_zoo.network_parts.soft_observation import SoftObservation, soft_mean_over_table
from agent_zoo.network_parts.tiles import TileConvolution, tile_encoder
from agent_zoo.observation import ObservationLayout, PackedObservation

MATERIAL_EMBEDDING = 32
TILE_CHANNELS = (16, 8)
IDENTITY_EMBEDDING = 32
DISCRETE_COLUMNS = {"id": ENTITY_ID, "npc_type": NPC_TYPE, "attacker_id": ENTITY_ID, "message": MESSAGE}


class Policy(LinearRowsPolicy):
    """Reads no entities but the agent itself, and items place by place.

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
        self.market_encoder = nn.Linear(hidden_size, hidden_size) if self.published else nn.Identity()
        self.task_encoder = nn.Linear(layout.task_size, hidden_size)
        self.projection = nn.Linear(5 * hidden_size, hidden_size)

    def places(self) -> torch.Tensor:
        """Return nothing, (0, side, side): tiles are embedded by their material alone."""
        return self.material.weight.new_zeros(0, self.layout.view_side, self.layout.view_side)

    def of_tables(
        self, observation: PackedObservation, entities: torch.Tensor, inventory: torch.Tensor, no_item: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return what is carried."""
        if self.published:
            return [self.inventory_encoder.packed(inventory, no_item, observation.inventory, self.item_encoder)]
        return [mean_over_table(inventory, no_item, observation.inventory, self.layout.inventory)]

    def of_soft_tables(
        self, observation: SoftObservation, entities: torch.Tensor, inventory: torch.Tensor, no_item: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return what is carried."""
        presence = observation.inventory.presence
        if self.published:
            return [self.inventory_encoder.soft(inventory, no_item, presence)]
        return [soft_mean_over_table(inventory, no_item, presence, self.layout.inventory)]


class EarlierPolicy(Policy):
    """The network before it computed what the published one does.

    Rows and the task are rectified, the inventory is a mean, and each column of entities has a table of its own.
    """

    published = False


class Recurrent(RecurrentPolicy):
    """Feed-forward by default."""

    def __init__(self, policy: Policy, layers: int = 0, cell: MemoryCell = "lstm"):
        super().__init__(policy, layers, cell)
