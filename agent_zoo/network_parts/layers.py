"""Building blocks shared by the agents, all working on packed rows.

A padding row always encodes to the same vector, so encoding only the used rows and adding that constant for the others
gives exactly the same result as encoding every row, at a fraction of the cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.network_parts.distribution import ILLEGAL, ActionDistribution, Choices
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
    """What the action heads choose among: the rows of each table and the keys used to score them."""

    rows: Mapping[CandidateTable, PackedRows]
    keys: Mapping[CandidateTable, torch.Tensor]
    """For each table, (total rows, hidden) float; or (total rows, units) if the table has a layer."""
    layers: Mapping[CandidateTable, nn.Linear] = field(default_factory=dict)
    """For some tables, the linear layer that would turn its keys into (total rows, hidden). Heads apply it to their few
    queries instead of to all rows."""

    def at_least_float32(self) -> "Candidates":
        """Return the same with keys in a precision in which they can be added up."""
        return replace(self, keys={table: at_least_float32(keys) for table, keys in self.keys.items()})


@dataclass(frozen=True)
class Category:
    """A categorical column; values outside its range are clamped to the nearest end."""

    first: int
    count: int  # number of values

    def index(self, values: torch.Tensor) -> torch.Tensor:
        """Values of any shape -> their index in the range, int64."""
        return (values.long() - self.first).clamp(0, self.count - 1)

    def place(self, numbers: torch.Tensor) -> torch.Tensor:
        """Numbers between values of the category -> where they lie in the range, with the gradient of the numbers."""
        place = numbers - self.first
        if self.count == 2:  # no bend where one of two values is certain
            return place
        return place.clamp(0, self.count - 1)


NPC_TYPE = Category(first=-1, count=5)  # -1 immortal, 0 player, 1 passive, 2 neutral, 3 aggressive
ITEM_TYPE = Category(first=0, count=18)  # 0 none, 1 gold, 2 to 17 the game's items
ENTITY_ID = Category(first=-512, count=1024)  # player ids count up from 1, NPC ids down from -1; 0 is nobody
MESSAGE = Category(first=0, count=128)


class RowFeatures(nn.Module):
    """Turns table rows into features: categories as one-hot, then the other columns divided by their scale.

    Columns without a scale of their own are divided by what is typical for experience or for levels.
    """

    other_columns: torch.Tensor
    scale: torch.Tensor

    def __init__(
        self, columns: tuple[str, ...], categories: Mapping[str, Category], scales: Mapping[str, float],
        ignored: tuple[str, ...] = (),
    ):  # fmt: skip
        super().__init__()
        self.columns = columns
        self.categories = [(columns.index(name), category) for name, category in categories.items()]
        others = [index for index, name in enumerate(columns) if name not in (*categories, *ignored)]
        self.register_buffer("other_columns", torch.tensor(others), persistent=False)
        scale = [scales.get(name, _EXPERIENCE_SCALE if name.endswith("_exp") else _LEVEL_SCALE) for name in columns]
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32)[others], persistent=False)
        self.size = len(others) + sum(self._category_size(category) for category in categories.values())

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Rows (R, columns) int16 -> features (R, size) floats."""
        parts = [
            # Not a layer of embeddings: on the CPU torch's threads would sum its gradients in an order that varies.
            self._table(place).index_select(0, category.index(values[:, column]))
            for place, (column, category) in enumerate(self.categories)
        ]
        return torch.cat([*parts, values[:, self.other_columns] / self.scale], dim=1)

    def soft(self, category: torch.Tensor, values: torch.Tensor, known: "RowFeatures") -> torch.Tensor:
        """Return the features, (..., size), of rows known in probabilities.

        Args:
            category: probability of each value of the categorical column of `known`, (..., values).
            values: of its other columns, divided by its scales, (..., columns).
            known: features with one categorical column, in whose terms the rows are known.
        """
        ((kind, kinds),) = known.categories
        expected = category @ torch.arange(kinds.count).add(kinds.first).to(category)  # (...)
        places = {column: place for place, column in enumerate([*known.other_columns.tolist(), kind])}
        numbers = torch.cat([values, expected.unsqueeze(-1)], dim=-1)
        scale = torch.cat([known.scale, known.scale.new_ones(1)])
        parts = []
        for place, (column, own) in enumerate(self.categories):
            if column == kind and own == kinds:
                parts.append(category @ self._table(place))
            else:
                at = places[column]
                parts.append(self._between(place, own.place(numbers[..., at] * scale[at])))
        others = torch.tensor([places[column] for column in self.other_columns.tolist()], dtype=torch.int64)
        return torch.cat([*parts, numbers[..., others] * (scale[others] / self.scale)], dim=-1)

    def _category_size(self, category: Category) -> int:
        return category.count

    def _between(self, place: int, numbers: torch.Tensor) -> torch.Tensor:
        """Features of a category at places between two of its values, (...): those of both, in proportion."""
        table = self._table(place)
        lower = numbers.detach().floor().long().clamp(0, len(table) - 2)
        share = (numbers - lower).unsqueeze(-1)
        below, above = (
            table.index_select(0, value.flatten()).view(*value.shape, table.shape[1]) for value in (lower, lower + 1)
        )  # (..., units) each
        return below + share * (above - below)

    def _table(self, place: int) -> torch.Tensor:
        """Features of each value of a category, (values, units)."""
        return torch.eye(self.categories[place][1].count, dtype=self.scale.dtype, device=self.scale.device)


class EmbeddedRowFeatures(RowFeatures):
    """As `RowFeatures`, with a learnt embedding for each value of a category.

    With `one_table`, the categories, which must then be equally long, share one table of embeddings.
    """

    def __init__(
        self, columns: tuple[str, ...], categories: Mapping[str, Category], scales: Mapping[str, float], units: int,
        ignored: tuple[str, ...] = (), one_table: bool = False,
    ):  # fmt: skip
        self.units = units
        super().__init__(columns, categories, scales, ignored)
        tables = list(categories.values())[: 1 if one_table else None]
        self.embeddings = nn.ModuleList(nn.Embedding(category.count, units) for category in tables)

    def _category_size(self, category: Category) -> int:
        return self.units

    def _table(self, place: int) -> torch.Tensor:
        embedding = self.embeddings[min(place, len(self.embeddings) - 1)]
        assert isinstance(embedding, nn.Embedding)
        return embedding.weight


def entity_features(layout: ObservationLayout) -> RowFeatures:
    """Features of entity rows: the kind of entity as one-hot, 30 scaled columns."""
    return RowFeatures(layout.entity_columns, {"npc_type": NPC_TYPE}, ENTITY_SCALES)


def item_features(layout: ObservationLayout) -> RowFeatures:
    """Features of inventory and market rows: the kind of item as one-hot, 15 scaled columns."""
    return RowFeatures(layout.item_columns, {"type_id": ITEM_TYPE}, _ITEM_SCALES)


def at_least_float32(values: torch.Tensor) -> torch.Tensor:
    """Return values in a precision in which they can be added up: bfloat16 becomes float32."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def padding_row(rows: PackedRows) -> torch.Tensor:
    """Return one padding row of a table, (1, columns)."""
    return rows.values.new_zeros(1, rows.values.shape[1])


def mean_over_table(
    embedded: torch.Tensor, padding: torch.Tensor, rows: PackedRows, table_size: int, layer: nn.Linear | None = None
) -> torch.Tensor:
    """Average a table's embedded rows, including padding rows.

    Args:
        embedded: embeddings of the used rows, (total rows, units).
        padding: embedding of a padding row, (units,).
        rows: the table's packed rows.
        table_size: rows of the table including padding.
        layer: to be applied to each row; since it is linear, it is applied to the mean.

    Returns:
        (B, units).
    """
    embedded = at_least_float32(embedded)
    total = embedded.new_zeros(len(rows.counts), embedded.shape[1]).index_add(0, rows.owner, embedded)
    unused = (table_size - rows.counts).unsqueeze(1).to(embedded.dtype)  # (B, 1)
    mean = (total + unused * padding) / table_size
    return mean if layer is None else layer(mean)


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
    the row's key. The no-op has its own learnt key, and scores are divided by the root of the number of units; in the
    networks as published, the no-op's score is 0, and nothing is divided.

    Attributes:
        published: whether scores are as published.
        rectified: whether the hidden state is rectified first.
    """

    def __init__(
        self, layout: ObservationLayout, hidden_size: int, *, published: bool = False, rectified: bool = False
    ):
        super().__init__()
        self.layout = layout
        self.published = published
        self.rectified = rectified
        self.divisor = 1.0 if published else hidden_size**0.5
        self.heads = nn.ModuleDict()
        self.noop_keys = nn.ParameterDict()
        for head in layout.heads:
            name = _key(head)
            self.heads[name] = nn.Linear(hidden_size, hidden_size if head.candidates else head.size)
            if head.candidates and not published:
                self.noop_keys[name] = nn.Parameter(torch.randn(hidden_size) / hidden_size**0.5)

    def forward(
        self, hidden: torch.Tensor, candidates: Candidates, observation: PackedObservation
    ) -> ActionDistribution:
        """Hidden state (B, hidden) -> distribution over legal options."""
        hidden = self.rectify(hidden)
        heads = self.layout.heads
        masks = legal_options(observation, self.layout).split([head.size for head in heads], dim=1)
        legal = {head.name: mask for head, mask in zip(heads, masks, strict=True)}
        only = torch.zeros((len(hidden), len(heads)), dtype=torch.int64, device=hidden.device)
        choices = self._own_choices(hidden, legal)
        for table, rows in candidates.rows.items():
            places = [place for place, head in enumerate(heads) if head.candidates == table]
            keys, layer = candidates.keys[table], candidates.layers.get(table)
            only[:, places], of_table = self._row_choices(hidden, legal, rows, keys, layer, places)
            choices.append(of_table)
        return ActionDistribution(heads, only, choices)

    def rectify(self, read: torch.Tensor) -> torch.Tensor:
        """Return what the layers of the heads read, (B, hidden), given the decoder's input."""
        return functional.relu(read) if self.rectified else read

    def own_scores(self, head: ActionHead, read: torch.Tensor) -> torch.Tensor:
        """Score all options of a head whose options are not rows: (B, hidden) -> (B, size)."""
        scores: torch.Tensor = self.heads[_key(head)](self.rectify(read))
        return scores

    def row_scores(self, head: ActionHead, read: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Score R rows for each agent, with keys (B, R, hidden), and the no-op: (B, R) and (B,)."""
        query = self.heads[_key(head)](self.rectify(read)) / self.divisor  # (B, hidden)
        return torch.einsum("bh,brh->br", query, keys), self._noop_scores(query, _key(head))

    def _noop_scores(self, query: torch.Tensor, name: str) -> torch.Tensor:
        """Score the no-op of a head: (Q, hidden) -> (Q,)."""
        return query.new_zeros(len(query)) if self.published else query @ self.noop_keys[name]

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

    def _row_choices(
        self, hidden: torch.Tensor, legal: Mapping[str, torch.Tensor], rows: PackedRows, keys: torch.Tensor,
        layer: nn.Linear | None, places: list[int],
    ) -> tuple[torch.Tensor, Choices]:  # fmt: skip
        """Score the legal options of the Q choices with more than one in heads whose options are rows of one table.

        Args:
            legal: head name -> (B, size) bool.
            rows: the table; options beyond an agent's rows are illegal. P of them are legal in a choice.
            keys: of all rows, and the layer that would complete them, as in `Candidates`.
            places: of the H heads among all.

        Returns:
            The only legal option of agents without a choice, (B, H) int64, and the choices: rows first, then the no-op.
        """
        heads, most, device = [self.layout.heads[place] for place in places], rows.most, hidden.device
        noops = torch.tensor([head.size - 1 for head in heads], device=device)  # (H,)
        masks = [torch.cat([legal[head.name][:, :most], legal[head.name][:, -1:]], dim=1) for head in heads]
        allowed = torch.stack(masks)  # (H, B, most + 1)
        first = allowed.to(torch.uint8).argmax(dim=2)
        only = torch.where(first == most, noops.unsqueeze(1), first)
        head, agent = (allowed.sum(dim=2) > 1).nonzero(as_tuple=True)  # of each choice, (Q,), ordered by head
        choice, option = allowed[head, agent, :most].nonzero(as_tuple=True)  # of each legal row, (P,), ascending
        # Not hidden[agent]: torch's threads would sum its gradients in an order that varies from run to run.
        reading = hidden.index_select(0, agent).split(torch.bincount(head, minlength=len(heads)).tolist())
        names = [_key(own) for own in heads]
        queries = [self.heads[name](part) / self.divisor for name, part in zip(names, reading, strict=True)]
        noop = torch.cat([self._noop_scores(query, name) for name, query in zip(names, queries, strict=True)])  # (Q,)
        row = rows.starts[agent[choice]] + option  # of each legal row in the table's values, (P,)
        scores = _dot_products(torch.cat(queries), keys.index_select(0, row), layer, choice)  # (P,)
        counts = torch.bincount(choice, minlength=len(agent))
        place = torch.arange(len(choice), device=device) - (torch.cumsum(counts, 0) - counts)[choice]  # in its choice
        shape = (len(agent), int(place.max()) + 1 if len(place) else 0)  # (Q, most legal rows)
        padded = scores.new_full(shape, ILLEGAL).index_put((choice, place), scores)
        options = option.new_full(shape, -1).index_put((choice, place), option)
        illegal_noop = noop.masked_fill(~allowed[head, agent, most], ILLEGAL).unsqueeze(1)
        chosen = Choices(
            agent, torch.tensor(places, device=device)[head], torch.cat([padded, illegal_noop], dim=1),
            torch.cat([options, noops[head].unsqueeze(1)], dim=1),
        )  # fmt: skip
        return only.T, chosen


def _dot_products(
    queries: torch.Tensor, rows: torch.Tensor, layer: nn.Linear | None, choice: torch.Tensor
) -> torch.Tensor:
    """Multiply rows by the query of the choice that they belong to, (P,).

    Args:
        queries: (Q, hidden).
        rows: (P, hidden), or (P, units) if a layer is to be applied to them.
        layer: the layer, or None. Its transpose is applied to the queries, which are fewer than the rows.
        choice: of each row, (P,) int64.
    """
    if layer is None:
        return (queries.index_select(0, choice) * rows).sum(dim=1)
    taken_back = queries @ layer.weight  # (Q, units)
    return (taken_back.index_select(0, choice) * rows).sum(dim=1) + (queries @ layer.bias).index_select(0, choice)


def _key(head: ActionHead) -> str:
    return head.name.replace(".", "_")
