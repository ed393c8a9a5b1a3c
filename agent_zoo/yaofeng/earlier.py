"""yaofeng's network before it computed what the published one does: normalised perceptrons on entities and items."""

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.base import BasePolicy
from agent_zoo.network_parts.layers import (
    ENTITY_ID,
    ENTITY_SCALES,
    Candidates,
    EmbeddedRowFeatures,
    item_features,
    mean_over_table,
    own_rows,
    padding_row,
)
from agent_zoo.network_parts.tiles import TileConvolution, scaled_places, tile_encoder
from agent_zoo.observation import ObservationLayout, PackedObservation

MATERIAL_EMBEDDING = 62  # 64 with the scaled row and column
TILE_CHANNELS = (32, 8)
IDENTITY_EMBEDDING = 64
IDENTITIES = {"id": ENTITY_ID, "attacker_id": ENTITY_ID}


class EarlierPolicy(BasePolicy):
    """Concatenates tiles, the agent's own row, the mean of each table and the task; its heads read rectified units."""

    scaled_places: torch.Tensor

    def __init__(self, layout: ObservationLayout, hidden_size: int = 256):
        super().__init__(layout, hidden_size)
        self.material = nn.Embedding(layout.materials, MATERIAL_EMBEDDING)
        # The residual block reads only a tile's material, so it runs once per material instead of once per tile.
        self.material_block = _Residual(MATERIAL_EMBEDDING)
        self.register_buffer("scaled_places", scaled_places(layout.view_side), persistent=False)
        self.tile_convolution = TileConvolution(layout, 2, MATERIAL_EMBEDDING, TILE_CHANNELS[0])
        self.tile_encoder = tile_encoder(layout, TILE_CHANNELS, hidden_size)
        self.entity_features = EmbeddedRowFeatures(layout.entity_columns, IDENTITIES, ENTITY_SCALES, IDENTITY_EMBEDDING)
        self.item_features = item_features(layout)
        self.self_encoder = _perceptron(self.entity_features.size, hidden_size)
        self.entity_encoder = _perceptron(self.entity_features.size, hidden_size)
        self.item_encoder = _perceptron(self.item_features.size, hidden_size)
        self.task_encoder = nn.Linear(layout.task_size, hidden_size)
        self.projection = nn.Linear(6 * hidden_size, hidden_size)
        self.initialize_orthogonally()

    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        entities = self.entity_encoder(self.entity_features(observation.entity.values))
        inventory = self.item_encoder(self.item_features(observation.inventory.values))
        market = self.item_encoder(self.item_features(observation.market.values))
        no_entity = self.entity_encoder(self.entity_features(padding_row(observation.entity)))[0]  # (hidden,)
        no_item = self.item_encoder(self.item_features(padding_row(observation.inventory)))[0]
        parts = [
            self.tile_encoder(self.tile_convolution(observation.material, self.material_vectors(), self.places())),
            self.self_encoder(self.entity_features(own_rows(observation))),
            mean_over_table(entities, no_entity, observation.entity, self.layout.entities),
            mean_over_table(inventory, no_item, observation.inventory, self.layout.inventory),
            mean_over_table(market, no_item, observation.market, self.layout.market),
            functional.relu(self.task_encoder(observation.task.to(self.task_encoder.weight.dtype))),
        ]
        candidates = Candidates(
            rows={"entity": observation.entity, "inventory": observation.inventory, "market": observation.market},
            keys={"entity": entities, "inventory": inventory, "market": market},
        )
        return self.projection(torch.cat(parts, dim=1)), candidates

    def decoder_input(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the rectified hidden state, (B, hidden)."""
        return functional.relu(hidden)

    def material_vectors(self) -> torch.Tensor:
        """Return the embedding of each material, (materials, embedding)."""
        return self.material_block(self.material.weight)

    def places(self) -> torch.Tensor:
        """Return the scaled row and column of each place in view, (2, side, side)."""
        return self.scaled_places


class _Residual(nn.Module):
    """x + f(x), with layer normalisation."""

    def __init__(self, units: int):
        super().__init__()
        self.block = nn.Sequential(
            nn.LayerNorm(units), nn.Linear(units, units), nn.ReLU(), nn.LayerNorm(units), nn.Linear(units, units)
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.block(values)


def _perceptron(inputs: int, units: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, units),
        nn.LayerNorm(units),
        nn.ReLU(),
        nn.Linear(units, units),
        nn.LayerNorm(units),
        nn.ReLU(),
    )
