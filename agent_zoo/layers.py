"""Building blocks shared by the agents, all working on packed rows.

A padding row always encodes to the same vector, so encoding only the used rows and adding that constant for the others
gives exactly the same result as encoding every row, at a fraction of the cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.distribution import ILLEGAL, ActionDistribution, Choices
from agent_zoo.legal_rows import LegalRows, legal_rows
from agent_zoo.observation import (
    ActionHead,
    CandidateTable,
    ObservationLayout,
    PackedObservation,
    PackedRows,
    legal_options,
)

# Typical magnitudes, so that all inputs of a linear layer have a similar scale; columns not listed are levels or small
# counts.
ENTITY_SCALES = {
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
    """What the action heads choose among: the rows of each table and the keys used to score them.

    Attributes:
        rows: the tables.
        keys: for each table, (total rows, hidden) float.
    """

    rows: Mapping[CandidateTable, PackedRows]
    keys: Mapping[CandidateTable, torch.Tensor]


@dataclass(frozen=True)
class Category:
    """A categorical column; values outside its range are clamped to the nearest end.

    Attributes:
        first: the smallest value.
        count: number of values.
    """

    first: int
    count: int

    def index(self, values: torch.Tensor) -> torch.Tensor:
        """Values of any shape -> their index in the range, int64."""
        return (values.long() - self.first).clamp(0, self.count - 1)


NPC_TYPE = Category(first=-1, count=5)  # -1 immortal, 0 player, 1 passive, 2 neutral, 3 aggressive
ITEM_TYPE = Category(first=0, count=18)  # 0 none, 1 gold, 2 to 17 the game's items
ENTITY_ID = Category(first=-512, count=1024)  # player ids count up from 1, NPC ids down from -1; 0 is nobody
MESSAGE = Category(first=0, count=128)


class RowFeatures(nn.Module):
    """Turns table rows into features of similar scale: categories as one-hot, other columns divided by their scale."""

    other_columns: torch.Tensor
    scale: torch.Tensor

    def __init__(self, columns: tuple[str, ...], categories: Mapping[str, Category], scales: Mapping[str, int]):
        super().__init__()
        self.categories = [(columns.index(name), category) for name, category in categories.items()]
        others = [index for index, name in enumerate(columns) if name not in categories]
        self.register_buffer("other_columns", torch.tensor(others), persistent=False)
        scale = [scales.get(name, _EXPERIENCE_SCALE if name.endswith("_exp") else _LEVEL_SCALE) for name in columns]
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32)[others], persistent=False)
        self.size = len(others) + sum(self._category_size(category) for category in categories.values())

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Rows (R, columns) int16 -> features (R, size) floats."""
        parts = [
            self._category(place, category.index(values[:, column]))
            for place, (column, category) in enumerate(self.categories)
        ]
        return torch.cat([*parts, values[:, self.other_columns] / self.scale], dim=1)

    def soft(self, category: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return the features, (..., size), of rows known in probabilities; for tables with one categorical column.

        Args:
            category: probability of each value of the categorical column, (..., values).
            values: of the other columns, divided by their scales, (..., columns).
        """
        return torch.cat([category, values], dim=-1)

    def _category_size(self, category: Category) -> int:
        return category.count

    def _category(self, place: int, index: torch.Tensor) -> torch.Tensor:
        return functional.one_hot(index, self.categories[place][1].count).to(self.scale.dtype)


class EmbeddedRowFeatures(RowFeatures):
    """As `RowFeatures`, with a learnt embedding for each value of a category."""

    def __init__(
        self, columns: tuple[str, ...], categories: Mapping[str, Category], scales: Mapping[str, int], units: int
    ):
        self.units = units
        super().__init__(columns, categories, scales)
        self.embeddings = nn.ModuleList(nn.Embedding(category.count, units) for category in categories.values())

    def _category_size(self, category: Category) -> int:
        return self.units

    def _category(self, place: int, index: torch.Tensor) -> torch.Tensor:
        # Not embedding(index): on the CPU torch's threads would sum its gradients in an order that varies.
        embedding = self.embeddings[place]
        assert isinstance(embedding, nn.Embedding)
        return embedding.weight.index_select(0, index)


def entity_features(layout: ObservationLayout) -> RowFeatures:
    """Features of entity rows: the kind of entity as one-hot, 30 scaled columns."""
    return RowFeatures(layout.entity_columns, {"npc_type": NPC_TYPE}, ENTITY_SCALES)


def item_features(layout: ObservationLayout) -> RowFeatures:
    """Features of inventory and market rows: the kind of item as one-hot, 15 scaled columns."""
    return RowFeatures(layout.item_columns, {"type_id": ITEM_TYPE}, _ITEM_SCALES)


def padding_row(rows: PackedRows) -> torch.Tensor:
    """Return one padding row of a table, (1, columns)."""
    return rows.values.new_zeros(1, rows.values.shape[1])


def mean_over_table(embedded: torch.Tensor, padding: torch.Tensor, rows: PackedRows, table_size: int) -> torch.Tensor:
    """Average a table's embedded rows, including padding rows.

    Args:
        embedded: embeddings of the used rows, (total rows, units).
        padding: embedding of a padding row, (units,).
        rows: the table's packed rows.
        table_size: rows of the table including padding.

    Returns:
        (B, units).
    """
    total = embedded.new_zeros(len(rows.counts), embedded.shape[1]).index_add(0, rows.owner, embedded)
    unused = (table_size - rows.counts).unsqueeze(1).to(embedded.dtype)  # (B, 1)
    return (total + unused * padding) / table_size


def own_rows(observation: PackedObservation) -> torch.Tensor:
    """Return each agent's own entity row, the one with the agent's id: (B, columns) int16.

    Raises:
        ValueError: an agent does not see itself, which happens only to dead agents.
    """
    entity = observation.entity
    is_own = entity.values[:, 0] == observation.agent_id[entity.owner]
    own = entity.values[is_own]
    if len(own) != len(observation):
        raise ValueError(f"{len(observation)} agents, but {len(own)} rows of their own: dead agents cannot be encoded")
    return own


def initialize_orthogonally(module: nn.Module, gain: float = 2**0.5) -> None:
    """Initialise every linear layer and convolution in a module with orthogonal weights and zero bias."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(part.weight, gain)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


class ActionDecoder(nn.Module):
    """Scores every option of every head from the hidden state.

    Heads whose options are table rows score a row by the dot product of a query, projected from the hidden state, and
    the row's key; the no-op has its own learnt key.
    """

    def __init__(self, layout: ObservationLayout, hidden_size: int):
        super().__init__()
        self.layout = layout
        self.heads = nn.ModuleDict()
        self.noop_keys = nn.ParameterDict()
        for head in layout.heads:
            name = _key(head)
            self.heads[name] = nn.Linear(hidden_size, hidden_size if head.candidates else head.size)
            if head.candidates:
                self.noop_keys[name] = nn.Parameter(torch.randn(hidden_size) / hidden_size**0.5)

    def forward(
        self, hidden: torch.Tensor, candidates: Candidates, observation: PackedObservation
    ) -> ActionDistribution:
        """Hidden state (B, hidden) -> distribution over legal options."""
        heads = self.layout.heads
        masks = legal_options(observation, self.layout).split([head.size for head in heads], dim=1)
        legal = {head.name: mask for head, mask in zip(heads, masks, strict=True)}
        only = torch.zeros((len(hidden), len(heads)), dtype=torch.int64, device=hidden.device)
        choices = self._own_choices(hidden, legal)
        for table, rows in candidates.rows.items():
            places = [place for place, head in enumerate(heads) if head.candidates == table]
            found = legal_rows([heads[place] for place in places], legal, rows)
            only[:, places] = torch.stack(found.only, dim=1)
            choices.append(self._row_choices(hidden, candidates.keys[table], places, found))
        return ActionDistribution(heads, only, choices)

    def own_scores(self, head: ActionHead, read: torch.Tensor) -> torch.Tensor:
        """Score all options of a head whose options are not rows: (B, hidden) -> (B, size)."""
        scores: torch.Tensor = self.heads[_key(head)](read)
        return scores

    def row_scores(self, head: ActionHead, read: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Score R rows for each agent, with keys (B, R, hidden), and the no-op: (B, R) and (B,)."""
        query = self.heads[_key(head)](read) / read.shape[1] ** 0.5  # (B, hidden)
        return torch.einsum("bh,brh->br", query, keys), query @ self.noop_keys[_key(head)]

    def _own_choices(self, hidden: torch.Tensor, legal: Mapping[str, torch.Tensor]) -> list[Choices]:
        """Score all options of the heads whose options are not rows, with one matrix multiplication."""
        own = [(place, head) for place, head in enumerate(self.layout.heads) if head.candidates is None]
        layers = [self.heads[_key(head)] for _, head in own]
        weight, bias = (torch.cat([getattr(layer, kind) for layer in layers]) for kind in ("weight", "bias"))
        scores = functional.linear(hidden, weight, bias).split([head.size for _, head in own], dim=1)
        everyone = torch.arange(len(hidden), device=hidden.device)
        return [
            Choices(everyone, torch.full_like(everyone, place), score.masked_fill(~legal[head.name], ILLEGAL))
            for (place, head), score in zip(own, scores, strict=True)
        ]

    def _row_choices(self, hidden: torch.Tensor, keys: torch.Tensor, places: list[int], found: LegalRows) -> Choices:
        """Score the legal options of the choices among a table's rows: rows first, then the no-op."""
        # Not hidden[agent]: torch's threads would sum its gradients in an order that varies from run to run.
        reading = hidden.index_select(0, found.agent).split(found.counts)
        names = [_key(self.layout.heads[place]) for place in places]
        queries = [self.heads[name](part) / hidden.shape[1] ** 0.5 for name, part in zip(names, reading, strict=True)]
        noop = torch.cat([query @ self.noop_keys[name] for name, query in zip(names, queries, strict=True)])  # (Q,)
        row_query = torch.cat(queries).index_select(0, found.choice)  # (P, hidden)
        scores = (row_query * keys.index_select(0, found.row)).sum(dim=1)  # (P,)
        place = found.place
        shape = (len(found.agent), int(place.max()) + 1 if len(place) else 0)  # (Q, most legal rows)
        padded = scores.new_full(shape, ILLEGAL).index_put((found.choice, place), scores)
        option = found.option.new_full(shape, -1).index_put((found.choice, place), found.option)
        counts = torch.tensor(found.counts, device=hidden.device)
        return Choices(
            found.agent,
            torch.repeat_interleave(torch.tensor(places, device=hidden.device), counts),
            torch.cat([padded, noop.masked_fill(~found.noop_legal, ILLEGAL).unsqueeze(1)], dim=1),
            torch.cat([option, found.noop.unsqueeze(1)], dim=1),
        )


def _key(head: ActionHead) -> str:
    """The name of a head's parameters."""
    return head.name.replace(".", "_")
