"""Building blocks that the agents share, all working on packed rows.

A padding row always encodes to the same vector, so encoding the used rows and adding that constant for the others is
exactly the function that encoding every row computes, at a fraction of the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.distribution import ActionDistribution
from agent_zoo.observation import (
    CandidateTable,
    ObservationLayout,
    PackedObservation,
    PackedRows,
    legal_options,
)

NPC_TYPES = 5  # -1 immortal, 0 player, 1 passive, 2 neutral, 3 aggressive
ITEM_TYPES = 18  # 0 none, 1 gold, 2 to 17 the game's items
# Typical magnitudes, so that a linear layer sees columns of about the same size; what is not named is a level or a
# small count.
_ENTITY_SCALES = {
    "id": 128, "row": 160, "col": 160, "damage": 100, "time_alive": 1024, "item_level": 50, "attacker_id": 128,
    "latest_combat_tick": 1024, "gold": 100, "health": 100, "food": 100, "water": 100,
}  # fmt: skip
_ITEM_SCALES = {
    "id": 1024, "owner_id": 128, "capacity": 64, "quantity": 64, "melee_attack": 100, "range_attack": 100,
    "mage_attack": 100, "melee_defense": 100, "range_defense": 100, "mage_defense": 100, "health_restore": 100,
    "resource_restore": 100, "equipped": 1, "listed_price": 100,
}  # fmt: skip
_LEVEL_SCALE = 10
_EXPERIENCE_SCALE = 1000


@dataclass(frozen=True)
class Candidates:
    """What the action heads choose among: the rows of each table and the vectors that they are scored by.

    Attributes:
        rows: the tables.
        keys: for each table (total rows, hidden) float.
    """

    rows: Mapping[CandidateTable, PackedRows]
    keys: Mapping[CandidateTable, torch.Tensor]


class RowFeatures(nn.Module):
    """Turns table rows into numbers of about equal size: one column as one-hot, the others divided by their scale."""

    other_columns: torch.Tensor
    scale: torch.Tensor

    def __init__(self, columns: tuple[str, ...], category: str, categories: int, first: int, scales: Mapping[str, int]):
        super().__init__()
        self.category_column = columns.index(category)
        self.categories = categories
        self.first_category = first
        others = [index for index, name in enumerate(columns) if name != category]
        self.register_buffer("other_columns", torch.tensor(others), persistent=False)
        scale = [scales.get(name, _EXPERIENCE_SCALE if name.endswith("_exp") else _LEVEL_SCALE) for name in columns]
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32)[others], persistent=False)
        self.size = categories + len(others)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Rows (R, columns) int16 -> features (R, size) floats."""
        category = (values[:, self.category_column].long() - self.first_category).clamp(0, self.categories - 1)
        one_hot = functional.one_hot(category, self.categories).to(self.scale.dtype)
        return torch.cat([one_hot, values[:, self.other_columns] / self.scale], dim=1)


def entity_features(layout: ObservationLayout) -> RowFeatures:
    """Features of entity rows: the kind of entity as one-hot, 30 scaled columns."""
    return RowFeatures(layout.entity_columns, "npc_type", NPC_TYPES, -1, _ENTITY_SCALES)


def item_features(layout: ObservationLayout) -> RowFeatures:
    """Features of inventory and market rows: the kind of item as one-hot, 15 scaled columns."""
    return RowFeatures(layout.item_columns, "type_id", ITEM_TYPES, 0, _ITEM_SCALES)


def mean_over_table(embedded: torch.Tensor, padding: torch.Tensor, rows: PackedRows, table_size: int) -> torch.Tensor:
    """Average a table's embedded rows, padding rows included.

    Args:
        embedded: embeddings of the used rows, (total rows, units).
        padding: embedding of a padding row, (units,).
        rows: whose rows they are.
        table_size: rows of the table with its padding.

    Returns:
        (B, units).
    """
    total = embedded.new_zeros(len(rows.counts), embedded.shape[1]).index_add(0, rows.owner, embedded)
    unused = (table_size - rows.counts).unsqueeze(1).to(embedded.dtype)  # (B, 1)
    return (total + unused * padding) / table_size


def own_rows(observation: PackedObservation) -> torch.Tensor:
    """Return each agent's own entity row, the one whose id is the agent's: (B, columns) int16.

    Raises:
        ValueError: an agent does not see itself, as only the dead do not.
    """
    entity = observation.entity
    is_own = entity.values[:, 0] == observation.agent_id[entity.owner]
    own = entity.values[is_own]
    if len(own) != len(observation):
        raise ValueError(f"{len(observation)} agents, but {len(own)} rows of their own: dead agents cannot be encoded")
    return own


class TileConvolution(nn.Module):
    """First convolution over embedded tiles, without embedding each tile.

    Every tile is the concatenation of the embeddings of its row and column relative to the agent, which are the same
    for every agent, and of its material. A convolution is linear, so the positions add a constant map, and the
    materials can be convolved as one-hot planes with kernel and embedding multiplied beforehand: the same function
    with a sixth of the multiplications.
    """

    def __init__(self, layout: ObservationLayout, embedding_size: int, channels: int, kernel_size: int = 3):
        super().__init__()
        self.side = layout.view_side
        self.materials = layout.materials
        self.material = nn.Embedding(layout.materials, embedding_size)
        self.row = nn.Embedding(self.side, embedding_size)
        self.column = nn.Embedding(self.side, embedding_size)
        self.convolution = nn.Conv2d(3 * embedding_size, channels, kernel_size)

    def forward(self, material: torch.Tensor) -> torch.Tensor:
        """Materials in view (B, tiles) uint8 -> (B, channels, side - 2, side - 2), as the plain convolution gives."""
        row_kernel, column_kernel, material_kernel = self.convolution.weight.chunk(3, dim=1)
        planes = functional.one_hot(material.long(), self.materials).to(self.convolution.weight.dtype)
        planes = planes.view(-1, self.side, self.side, self.materials).permute(0, 3, 1, 2)  # (B, materials, 15, 15)
        kernel = torch.einsum("oekl,me->omkl", material_kernel, self.material.weight)
        rows = self.row.weight.T.unsqueeze(2).expand(-1, -1, self.side)  # (embedding, 15, 15)
        columns = self.column.weight.T.unsqueeze(1).expand(-1, self.side, -1)
        position_kernel = torch.cat([row_kernel, column_kernel], dim=1)
        position = functional.conv2d(torch.cat([rows, columns]).unsqueeze(0), position_kernel, self.convolution.bias)
        return functional.conv2d(planes, kernel) + position


class ActionDecoder(nn.Module):
    """Reads the hidden state and scores every option of every head.

    Heads that point at table rows score a row by the dot product of a query, projected from the hidden state, with
    the row's key; the no-op has a learnt key of its own.
    """

    def __init__(self, layout: ObservationLayout, hidden_size: int):
        super().__init__()
        self.layout = layout
        self.heads = nn.ModuleDict()
        self.noop_keys = nn.ParameterDict()
        for head in layout.heads:
            name = head.name.replace(".", "_")
            self.heads[name] = nn.Linear(hidden_size, hidden_size if head.candidates else head.size)
            if head.candidates:
                self.noop_keys[name] = nn.Parameter(torch.randn(hidden_size) / hidden_size**0.5)

    def forward(
        self, hidden: torch.Tensor, candidates: Candidates, observation: PackedObservation
    ) -> ActionDistribution:
        """Hidden state (B, hidden) -> distribution over legal options."""
        legal = legal_options(observation, self.layout).split([head.size for head in self.layout.heads], dim=1)
        widths = {table: rows.most for table, rows in candidates.rows.items()}
        owners = {table: rows.owner for table, rows in candidates.rows.items()}
        positions = {table: rows.position for table, rows in candidates.rows.items()}
        logits, options = [], []
        for head, allowed in zip(self.layout.heads, legal, strict=True):
            name = head.name.replace(".", "_")
            projected = self.heads[name](hidden)
            if head.candidates is None:
                logits.append(projected)
                options.append(allowed)
                continue
            width, owner = widths[head.candidates], owners[head.candidates]
            query = projected / projected.shape[1] ** 0.5
            # Not query[owner]: torch's threads would add up its gradients in an order that differs from run to run.
            row_query = query.index_select(0, owner)  # (total rows, hidden)
            row_scores = (row_query * candidates.keys[head.candidates]).sum(dim=1)  # (total rows,)
            scores = row_scores.new_zeros(len(hidden), width)
            scores = scores.index_put((owner, positions[head.candidates]), row_scores)  # (B, width)
            logits.append(torch.cat([scores, (query @ self.noop_keys[name]).unsqueeze(1)], dim=1))
            options.append(torch.cat([allowed[:, :width], allowed[:, -1:]], dim=1))
        return ActionDistribution(self.layout.heads, logits, options)
