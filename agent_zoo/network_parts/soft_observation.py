"""Observations as probabilities, which a policy can be differentiated through.

A recorded observation is the special case in which every probability is 0 or 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from agent_zoo.network_parts.distribution import ILLEGAL
from agent_zoo.network_parts.layers import RowFeatures, entity_features, item_features, own_rows
from agent_zoo.observation import CandidateTable, ObservationLayout, PackedObservation, PackedRows, legal_options

_TINY = 1e-30


@dataclass(frozen=True)
class SoftRows:
    """R rows of a table for each of B agents."""

    category: torch.Tensor  # probability of each kind of entity or item, (B, R, kinds)
    values: torch.Tensor  # expected values of the other columns, divided by their scales, (B, R, columns)
    presence: torch.Tensor  # probability that there is such a row, (B, R)


@dataclass(frozen=True)
class SoftObservation:
    """The observations of B agents, in probabilities."""

    material: torch.Tensor  # probability of each material of each tile in view, (B, tiles, materials)
    own: SoftRows  # the agent's own row, as an entity, (B, 1 row)
    entity: SoftRows  # visible entities, including the agent itself
    inventory: SoftRows  # items carried
    market: PackedRows  # items for sale, exact
    task: torch.Tensor  # embedding of the agent's task, (B, task size)
    legal: Mapping[str, torch.Tensor]
    """Head -> probability that each option is legal, (B, options). The options of a head that chooses among rows are
    those of the rows above, R of them, and the no-op."""


SoftCandidates = Mapping[CandidateTable, torch.Tensor]
"""What heads choose among: for each table, the keys of each agent's rows, (B, R, hidden)."""


def softened(observation: PackedObservation, layout: ObservationLayout) -> SoftObservation:
    """Write exact observations as probabilities of 0 and 1.

    Rows keep their order; agents with fewer rows than others get rows of probability 0.
    """
    items = item_features(layout)
    tables = {"entity": observation.entity, "inventory": observation.inventory, "market": observation.market}
    own = PackedRows(own_rows(observation), torch.ones_like(observation.entity.counts))
    flags = legal_options(observation, layout).float().split([head.size for head in layout.heads], dim=1)
    legal = {}
    for head, flag in zip(layout.heads, flags, strict=True):
        if head.candidates:
            flag = torch.cat([flag[:, : tables[head.candidates].most], flag[:, -1:]], dim=1)
        legal[head.name] = flag
    return SoftObservation(
        material=functional.one_hot(observation.material.long(), layout.materials).float(),
        own=_soft_rows(own, entity_features(layout)),
        entity=_soft_rows(observation.entity, entity_features(layout)),
        inventory=_soft_rows(observation.inventory, items),
        market=observation.market,
        task=observation.task.float(),
        legal=legal,
    )


def soft_mean_over_table(
    embedded: torch.Tensor, padding: torch.Tensor, presence: torch.Tensor, table_size: int
) -> torch.Tensor:
    """Average a table's embedded rows, including padding rows; see `agent_zoo.network_parts.layers.mean_over_table`.

    Args:
        embedded: embeddings of the rows, (B, R, units).
        padding: embedding of a padding row, (units,).
        presence: probability of each row, (B, R).
        table_size: rows of the table including padding.

    Returns:
        (B, units).
    """
    total = torch.einsum("bru,br->bu", embedded, presence)
    return (total + (table_size - presence.sum(dim=1, keepdim=True)) * padding) / table_size


def grid_of_rows(values: torch.Tensor, rows: PackedRows) -> torch.Tensor:
    """Arrange a value of each packed row by agent and place, with zeros after the last: (rows, ...) -> (B, R, ...)."""
    grid = values.new_zeros(len(rows.counts) * rows.most, *values.shape[1:])
    return grid.index_copy(0, rows.owner * rows.most + rows.place, values).unflatten(0, (len(rows.counts), rows.most))


def log_legality(legal: torch.Tensor) -> torch.Tensor:
    """Log-probability that options are legal, `ILLEGAL` where it is 0: what to add to their scores."""
    return torch.where(legal > 0, legal.clamp_min(_TINY).log(), ILLEGAL)


def _soft_rows(rows: PackedRows, features: RowFeatures) -> SoftRows:
    ((column, category),) = features.categories
    kind = functional.one_hot(category.index(rows.values[:, column]), category.count).float()
    values = rows.values[:, features.other_columns] / features.scale
    presence = torch.ones(len(rows.values))
    return SoftRows(*(grid_of_rows(tensor, rows) for tensor in (kind, values, presence)))
