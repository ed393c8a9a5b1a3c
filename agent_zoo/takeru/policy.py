"""takeru's network: other entities are visible to the action heads only, never to the hidden state."""

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import MemoryCell
from agent_zoo.base import BasePolicy, RecurrentPolicy
from agent_zoo.layers import (
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
from agent_zoo.observation import ObservationLayout, PackedObservation
from agent_zoo.tiles import TileConvolution, tile_encoder

MATERIAL_EMBEDDING = 32
TILE_CHANNELS = (16, 8)
IDENTITY_EMBEDDING = 32
DISCRETE_COLUMNS = {"id": ENTITY_ID, "npc_type": NPC_TYPE, "attacker_id": ENTITY_ID, "message": MESSAGE}


class Policy(BasePolicy):
    """Concatenates tiles, the agent's own row, the mean of its items and of the market, and the task."""

    def __init__(self, layout: ObservationLayout, hidden_size: int = 256):
        super().__init__(layout, hidden_size)
        self.material = nn.Embedding(layout.materials, MATERIAL_EMBEDDING)
        self.tile_convolution = TileConvolution(layout, 0, MATERIAL_EMBEDDING, TILE_CHANNELS[0])
        self.tile_encoder = tile_encoder(layout, TILE_CHANNELS, hidden_size)
        self.entity_features = EmbeddedRowFeatures(
            layout.entity_columns, DISCRETE_COLUMNS, ENTITY_SCALES, IDENTITY_EMBEDDING
        )
        self.item_features = item_features(layout)
        self.self_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.entity_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.item_encoder = nn.Linear(self.item_features.size, hidden_size)
        self.task_encoder = nn.Linear(layout.task_size, hidden_size)
        self.projection = nn.Linear(5 * hidden_size, hidden_size)

    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        inventory = self._embed_items(observation.inventory.values)
        market = self._embed_items(observation.market.values)
        no_item = self._embed_items(padding_row(observation.inventory))[0]  # (hidden,)
        parts = [
            self.tile_encoder(self.tile_convolution(observation.material, self.material.weight, self.places())),
            functional.relu(self.self_encoder(self.entity_features(own_rows(observation)))),
            mean_over_table(inventory, no_item, observation.inventory, self.layout.inventory),
            mean_over_table(market, no_item, observation.market, self.layout.market),
            functional.relu(self.task_encoder(observation.task.to(self.task_encoder.weight.dtype))),
        ]
        entities = functional.relu(self.entity_encoder(self.entity_features(observation.entity.values)))
        candidates = Candidates(
            rows={"entity": observation.entity, "inventory": observation.inventory, "market": observation.market},
            keys={"entity": entities, "inventory": inventory, "market": market},
        )
        return self.projection(torch.cat(parts, dim=1)), candidates

    def places(self) -> torch.Tensor:
        """Return nothing, (0, side, side): tiles are embedded by their material alone."""
        return self.material.weight.new_zeros(0, self.layout.view_side, self.layout.view_side)

    def _embed_items(self, values: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.item_encoder(self.item_features(values)))


class Recurrent(RecurrentPolicy):
    """Feed-forward by default."""

    def __init__(self, policy: Policy, layers: int = 0, cell: MemoryCell = "lstm"):
        super().__init__(policy, layers, cell)
