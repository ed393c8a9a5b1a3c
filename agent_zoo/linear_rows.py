"""What the networks of the start kit and takeru share: rows of tables that a single linear layer encodes."""

from typing import ClassVar

import torch
from torch import nn

from agent_zoo.base import BasePolicy
from agent_zoo.network_parts.layers import RowFeatures, entity_features
from agent_zoo.network_parts.soft_observation import SoftRows
from agent_zoo.observation import CandidateTable, ObservationLayout


class LinearRowsPolicy(BasePolicy):
    """A network whose rows are encoded by one layer each, for entities and for items.

    Attributes:
        published: whether it computes what the published one does: rows and task are encoded linearly. Otherwise they
            are rectified.
    """

    published: ClassVar[bool] = True
    entity_features: RowFeatures
    item_features: RowFeatures
    entity_encoder: nn.Linear
    item_encoder: nn.Linear

    def __init__(self, layout: ObservationLayout, hidden_size: int):
        super().__init__(layout, hidden_size, published=self.published)
        self.rectify = nn.Identity() if self.published else nn.ReLU()

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
