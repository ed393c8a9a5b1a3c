"""Observations as probabilities, and a policy's tick that gradients flow through from actions to observation.

A recorded observation is the special case in which every probability is 0 or 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch.nn import functional

from activation_store.layers import ENCODER_OUTPUT
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.distribution import ILLEGAL
from agent_zoo.network_parts.layers import ActionDecoder, RowFeatures, entity_features, item_features, own_rows
from agent_zoo.observation import CandidateTable, ObservationLayout, PackedObservation, PackedRows, legal_options
from common.user_error import UserError

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


@runtime_checkable
class ReadsProbabilities(Protocol):
    """A policy that can encode observations known in probabilities."""

    def encode_soft(self, observation: SoftObservation) -> tuple[torch.Tensor, SoftCandidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""


@dataclass(frozen=True)
class SoftChoices:
    """What a policy makes of B observations known in probabilities."""

    log_probabilities: Mapping[str, torch.Tensor]  # head -> (B, options); options as in `SoftObservation.legal`
    value: torch.Tensor  # (B,)


def check_reads_probabilities(policy: RecurrentPolicy, agent: str) -> None:
    """Refuse a policy that cannot read observations known in probabilities."""
    if not isinstance(policy.policy, ReadsProbabilities):
        raise UserError(
            f"this network of the agent {agent} has no `encode_soft`, so it cannot read the probabilities that a world "
            "model predicts: give a policy of another agent in agent_zoo/, or add `encode_soft` to the agent's Policy"
        )


def soft_tick(
    policy: RecurrentPolicy, observation: SoftObservation, state: MemoryState
) -> tuple[SoftChoices, MemoryState]:
    """Play one tick of B agents and return their choices and the memory afterwards.

    Hooks see the same layers as in `RecurrentPolicy.forward`. On probabilities of 0 and 1 the results are those of
    `forward` but for rounding.
    """
    assert isinstance(policy.policy, ReadsProbabilities)
    encoded, candidates = policy.policy.encode_soft(observation)
    hidden, after = policy.remember(policy.through(ENCODER_OUTPUT, encoded), state)
    read = policy.read(hidden)
    scores = soft_scores(policy.policy.action_decoder, read, candidates, observation.legal)
    return SoftChoices(scores, policy.policy.critic(read).squeeze(-1)), after


def soft_scores(
    decoder: ActionDecoder, read: torch.Tensor, candidates: SoftCandidates, legal: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the log-probability of every option, head -> (B, options).

    The weight of an option among the others is multiplied by the probability that it is legal.

    Args:
        read: its input, (B, hidden).
    """
    by_head = {}
    for head in decoder.layout.heads:
        if head.candidates:
            rows, noop = decoder.row_scores(head, read, candidates[head.candidates])
            scores = torch.cat([rows, noop.unsqueeze(1)], dim=1)
        else:
            scores = decoder.own_scores(head, read)
        by_head[head.name] = functional.log_softmax(scores + log_legality(legal[head.name]), dim=1)
    return by_head


def straight_through(log_probabilities: torch.Tensor, option: torch.Tensor) -> torch.Tensor:
    """One-hot vectors of chosen options, (B,) int64 to (B, options), with the gradients of the probabilities.

    Bengio, Leonard and Courville 2013, arXiv:1308.3432.
    """
    probabilities = log_probabilities.exp()
    hard = functional.one_hot(option, probabilities.shape[1]).to(probabilities.dtype)
    return hard + probabilities - probabilities.detach()
