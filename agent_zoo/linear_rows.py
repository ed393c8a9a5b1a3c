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
from agent_zoo.network_parts.soft_observation import SoftCandidates, SoftObservation, SoftRows, grid_of_rows
from agent_zoo.network_parts.tiles import TileConvolution
from agent_zoo.observation import CandidateTable, ObservationLayout, PackedObservation


class LinearRowsPolicy(BasePolicy):
    """Concatenates tiles, the agent's own row, tables, the mean of the market and the task, and projects them.

    Rows are encoded by one layer each, for entities and for items.
    """

    published: ClassVar[bool] = True
    """Whether it computes what the published one does: rows and task are encoded linearly. Otherwise they are
    rectified."""
    material: nn.Embedding
    tile_convolution: TileConvolution
    tile_encoder: nn.Sequential
    entity_features: RowFeatures
    item_features: RowFeatures
    self_encoder: nn.Linear
    entity_encoder: nn.Linear
    item_encoder: nn.Linear
    market_encoder: nn.Module
    task_encoder: nn.Linear
    projection: nn.Linear

    def __init__(self, layout: ObservationLayout, hidden_size: int):
        super().__init__(layout, hidden_size, published=self.published)
        self.rectify = nn.Identity() if self.published else nn.ReLU()

    def encode_observations(self, observation: PackedObservation) -> tuple[torch.Tensor, Candidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""
        inventory = self._item_keys(observation.inventory.values)
        market = self._item_keys(observation.market.values)
        no_item = self._item_keys(padding_row(observation.inventory))[0]  # (units,)
        tiles = self.tile_convolution(observation.material, self.material.weight, self.places())
        own = self.entity_features(own_rows(observation))
        entities, layers = self._entity_keys(observation.entity.values), self._layers_of_keys()
        parts = [
            self.tile_encoder(tiles),
            functional.relu(self.self_encoder(own)),
            *self.of_tables(observation, entities, inventory, no_item),
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
        carried = observation.inventory
        inventory = self._items(self.item_features.soft(carried.category, carried.values, item_features(self.layout)))
        market = self._items(self.item_features(observation.market.values))  # (total rows, hidden)
        no_item = self._items(self.item_features(padding_row(observation.market)))[0]  # (hidden,)
        tiles = self.tile_convolution.soft(observation.material, self.material.weight, self.places())
        own = self._soft_entities(observation.own)[:, 0]
        entities = self._entities(self._soft_entities(observation.entity))  # (B, R, hidden)
        parts = [
            self.tile_encoder(tiles),
            functional.relu(self.self_encoder(own)),
            *self.of_soft_tables(observation, entities, inventory, no_item),
            self.market_encoder(mean_over_table(market, no_item, observation.market, self.layout.market)),
            self.rectify(self.task_encoder(observation.task)),
        ]
        sold = grid_of_rows(market, observation.market)
        keys: dict[CandidateTable, torch.Tensor] = {"entity": entities, "inventory": inventory, "market": sold}
        return self.projection(torch.cat(parts, dim=1)), keys

    @abstractmethod
    def places(self) -> torch.Tensor:
        """Return the embedding of each place in view, (units, side, side)."""

    @abstractmethod
    def of_tables(
        self, observation: PackedObservation, entities: torch.Tensor, inventory: torch.Tensor, no_item: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return what the network reads of the tables of entities and items carried, (B, hidden) each.

        Args:
            entities: keys of their rows, (total rows, units); likewise `inventory`.
            no_item: key of a padding row of items, (units,).
        """

    @abstractmethod
    def of_soft_tables(
        self, observation: SoftObservation, entities: torch.Tensor, inventory: torch.Tensor, no_item: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return the same as `of_tables` for encoded rows known in probabilities, (B, R, hidden)."""

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
