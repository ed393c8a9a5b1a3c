"""What the networks of the start kit and takeru share: rows of tables that a single linear layer encodes."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.base import BasePolicy
from agent_zoo.network_parts.layers import (
    Candidates,
    RowFeatures,
    entity_features,
    item_features,
    mean_over_table,
    own_rows,
    padding_row,
)
from agent_zoo.network_parts.published_features import LinearOverPlaces
from agent_zoo.network_parts.tiles import TileConvolution, tile_encoder
from agent_zoo.observation import CandidateTable, ObservationLayout, PackedObservation
from agent_zoo.soft_path import SoftCandidates, SoftObservation, SoftRows, grid_of_rows, soft_mean_over_table

EMBEDDING = 32
"""Numbers in which a material is embedded, and a row or column in view."""


class LinearRowsPolicy(BasePolicy):
    """Concatenates tiles, the agent's own row, tables, the mean of the market and the task, and projects them.

    Rows are encoded by one layer each, for entities and for items.
    """

    published: ClassVar[bool] = True
    """Whether it computes what the published one does: rows and task are encoded linearly. Otherwise they are
    rectified."""
    tile_channels: ClassVar[tuple[int, int]]
    """Of the first and the second convolution."""
    embeds_places: ClassVar[bool]
    """Whether tiles are embedded by their row and column in view, too."""
    reads_entities: ClassVar[bool]
    """Whether it reads the mean of the entities in view; otherwise only the action heads see them."""
    reads_item_places: ClassVar[bool]
    """Whether it reads the items carried place by place as published; otherwise their mean."""

    def __init__(self, layout: ObservationLayout, hidden_size: int = 256):
        super().__init__(layout, hidden_size, published=self.published)
        self.rectify = nn.Identity() if self.published else nn.ReLU()
        self.material = nn.Embedding(layout.materials, EMBEDDING)
        if self.embeds_places:
            self.row = nn.Embedding(layout.view_side, EMBEDDING)
            self.column = nn.Embedding(layout.view_side, EMBEDDING)
        place_units = 2 * EMBEDDING if self.embeds_places else 0
        self.tile_convolution = TileConvolution(layout, place_units, EMBEDDING, self.tile_channels[0])
        self.tile_encoder = tile_encoder(layout, self.tile_channels, hidden_size)
        self.entity_features, self.item_features = self.row_features(layout)
        self.self_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.entity_encoder = nn.Linear(self.entity_features.size, hidden_size)
        self.item_encoder = nn.Linear(self.item_features.size, hidden_size)
        self.inventory_encoder = None
        if self.published and self.reads_item_places:
            self.inventory_encoder = LinearOverPlaces(layout.inventory, hidden_size)
        self.market_encoder = nn.Linear(hidden_size, hidden_size) if self.published else nn.Identity()
        self.task_encoder = nn.Linear(layout.task_size, hidden_size)
        self.projection = nn.Linear(len(self.linear_parts) * hidden_size, hidden_size)

    @abstractmethod
    def row_features(self, layout: ObservationLayout) -> tuple[RowFeatures, RowFeatures]:
        """Build what turns rows of entities, and of items, into features."""

    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        inventory = self._item_keys(observation.inventory.values)
        market = self._item_keys(observation.market.values)
        no_item = self._item_keys(padding_row(observation.inventory))[0]  # (units,)
        tiles = self.tile_convolution(observation.material, self.material.weight, self.places())
        own = self.entity_features(own_rows(observation))
        entities, layers = self._entity_keys(observation.entity.values), self._layers_of_keys()
        parts = [self.tile_encoder(tiles), functional.relu(self.self_encoder(own))]
        if self.reads_entities:
            no_entity = self._entity_keys(padding_row(observation.entity))[0]  # (units,)
            parts.append(
                mean_over_table(entities, no_entity, observation.entity, self.layout.entities, layers.get("entity"))
            )
        if self.inventory_encoder:
            carried = self.inventory_encoder.packed(inventory, no_item, observation.inventory, self.item_encoder)
        else:
            layer = layers.get("inventory")
            carried = mean_over_table(inventory, no_item, observation.inventory, self.layout.inventory, layer)
        sold = mean_over_table(market, no_item, observation.market, self.layout.market, layers.get("market"))
        task = self.task_encoder(observation.task.to(self.task_encoder.weight.dtype))
        parts += [carried, self.market_encoder(sold), self.rectify(task)]
        candidates = Candidates(
            rows={"entity": observation.entity, "inventory": observation.inventory, "market": observation.market},
            keys={"entity": entities, "inventory": inventory, "market": market},
            layers=layers,
        )
        return self.projection(torch.cat(parts, dim=1)), candidates

    def encode_soft(self, observation: SoftObservation) -> tuple[torch.Tensor, SoftCandidates]:
        """Return the same as `encode_observations` for observations known in probabilities."""
        carried = observation.inventory
        inventory = self._items(self.item_features.soft(carried.category, carried.values, item_features(self.layout)))
        market = self._items(self.item_features(observation.market.values))  # (total rows, hidden)
        no_item = self._items(self.item_features(padding_row(observation.market)))[0]  # (hidden,)
        tiles = self.tile_convolution.soft(observation.material, self.material.weight, self.places())
        own = self._soft_entities(observation.own)[:, 0]
        entities = self._entities(self._soft_entities(observation.entity))  # (B, R, hidden)
        parts = [self.tile_encoder(tiles), functional.relu(self.self_encoder(own))]
        if self.reads_entities:
            no_row = observation.market.values.new_zeros(1, len(self.layout.entity_columns))
            no_entity = self._entities(self.entity_features(no_row))[0]
            parts.append(soft_mean_over_table(entities, no_entity, observation.entity.presence, self.layout.entities))
        if self.inventory_encoder:
            parts.append(self.inventory_encoder.soft(inventory, no_item, carried.presence))
        else:
            parts.append(soft_mean_over_table(inventory, no_item, carried.presence, self.layout.inventory))
        sold = self.market_encoder(mean_over_table(market, no_item, observation.market, self.layout.market))
        parts += [sold, self.rectify(self.task_encoder(observation.task))]
        keys: dict[CandidateTable, torch.Tensor] = {
            "entity": entities, "inventory": inventory, "market": grid_of_rows(market, observation.market)
        }  # fmt: skip
        return self.projection(torch.cat(parts, dim=1)), keys

    def places(self) -> torch.Tensor:
        """Return the embedding of each place in view, (units, side, side); no units if places are not embedded."""
        side = self.layout.view_side
        if not self.embeds_places:
            return self.material.weight.new_zeros(0, side, side)
        rows = self.row.weight.T.unsqueeze(2).expand(-1, -1, side)  # (embedding, side, side)
        columns = self.column.weight.T.unsqueeze(1).expand(-1, side, -1)
        return torch.cat([rows, columns])

    def _layers_of_keys(self) -> dict[CandidateTable, nn.Linear]:
        """As published, rows are encoded by nothing but a layer, which can wait: see `Candidates`."""
        if not self.published:
            return {}
        return {"entity": self.entity_encoder, "inventory": self.item_encoder, "market": self.item_encoder}

    def _entity_keys(self, values: torch.Tensor) -> torch.Tensor:
        features = self.entity_features(values)
        return features if self.published else self._entities(features)

    def _item_keys(self, values: torch.Tensor) -> torch.Tensor:
        features = self.item_features(values)
        return features if self.published else self._items(features)

    def _entities(self, features: torch.Tensor) -> torch.Tensor:
        encoded: torch.Tensor = self.rectify(self.entity_encoder(features))
        return encoded

    def _items(self, features: torch.Tensor) -> torch.Tensor:
        encoded: torch.Tensor = self.rectify(self.item_encoder(features))
        return encoded

    def _soft_entities(self, rows: SoftRows) -> torch.Tensor:
        return self.entity_features.soft(rows.category, rows.values, entity_features(self.layout))
