"""The start kit's network: two convolutions over tiles, mean-pooled tables, one LSTM."""

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.base import BasePolicy, RecurrentPolicy
from agent_zoo.layers import Candidates, TileConvolution, entity_features, item_features, mean_over_table, own_rows
from agent_zoo.observation import ObservationLayout, PackedObservation, PackedRows

TILE_EMBEDDING = 32
TILE_CHANNELS = (32, 8)


class Policy(BasePolicy):
    """Concatenates tiles, the agent's own row, the mean of each table and the task, and projects them."""

    def __init__(self, layout: ObservationLayout, hidden_size: int = 256):
        super().__init__(layout, hidden_size)
        first, second = TILE_CHANNELS
        self.tile_convolution = TileConvolution(layout, TILE_EMBEDDING, first)
        self.tile_encoder = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(first, second, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(second * (layout.view_side - 4) ** 2, hidden_size),
            nn.ReLU(),
        )
        self.entity_features = entity_features(layout)
        self.item_features = item_features(layout)
        self.self_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.entity_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.item_encoder = nn.Linear(self.item_features.size, hidden_size)
        self.task_encoder = nn.Linear(layout.task_size, hidden_size)
        self.projection = nn.Linear(6 * hidden_size, hidden_size)

    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        entities = self._embed_entities(observation.entity.values)
        inventory = self._embed_items(observation.inventory.values)
        market = self._embed_items(observation.market.values)
        no_entity = self._embed_entities(_padding_row(observation.entity))[0]  # (hidden,)
        no_item = self._embed_items(_padding_row(observation.inventory))[0]
        parts = [
            self.tile_encoder(self.tile_convolution(observation.material)),
            functional.relu(self.self_encoder(self.entity_features(own_rows(observation)))),
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

    def _embed_entities(self, values: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.entity_encoder(self.entity_features(values)))

    def _embed_items(self, values: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.item_encoder(self.item_features(values)))


class Recurrent(RecurrentPolicy):
    """One LSTM layer unless asked otherwise."""

    def __init__(self, policy: Policy, layers: int = 1):
        super().__init__(policy, layers)


def _padding_row(rows: PackedRows) -> torch.Tensor:
    return rows.values.new_zeros(1, rows.values.shape[1])
