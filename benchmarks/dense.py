"""The agents' networks with every padding row encoded: the reference for the results and speed of the packed ones.

A direct implementation with the agents' own weights: all tables in full, every tile embedded before the convolution,
every head at full width.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from agent_zoo import neurips23_start_kit as start_kit
from agent_zoo import takeru, yaofeng
from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.distribution import ILLEGAL
from agent_zoo.observation import ActionHead, ObservationLayout, PackedObservation, PackedRows, legal_options

TABLES = {"entity": "Entity", "inventory": "Inventory", "market": "Market"}


@dataclass(frozen=True)
class DenseObservation:
    """The game's padded tables of B agents."""

    # tables: `Tile` (B, tiles, 3), `Entity`, `Inventory`, `Market` (B, rows, columns), `Task` (B, size), `AgentId`
    # (B,), and `ActionTargets` with the legality of all options of all heads, (B, mask size) bool
    tables: Mapping[str, torch.Tensor]

    def __len__(self) -> int:
        return len(self.tables["AgentId"])

    def __getitem__(self, table: str) -> torch.Tensor:
        return self.tables[table]

    def take(self, agents: torch.Tensor) -> "DenseObservation":
        """Return the observations of the given agents, in their order."""
        return DenseObservation({name: table[agents] for name, table in self.tables.items()})

    def to(self, device: torch.device) -> "DenseObservation":
        """Return the same observations on another device."""
        return DenseObservation({name: table.to(device) for name, table in self.tables.items()})

    @staticmethod
    def of_game(observations: np.ndarray, layout: ObservationLayout) -> "DenseObservation":
        """Read the game's observations, (B,) structured."""
        tables = {name: torch.from_numpy(observations[name].copy()) for name in ("Tile", *TABLES.values(), "Task")}
        heads = [head.name.split(".") for head in layout.heads]
        legal = [observations["ActionTargets"][action][argument] for action, argument in heads]
        return DenseObservation({
            **tables,
            "AgentId": torch.from_numpy(observations["AgentId"].astype(np.int16).ravel()),
            "ActionTargets": torch.from_numpy(np.concatenate(legal, axis=1)).bool(),
        })  # fmt: skip

    @staticmethod
    def of_packed(packed: PackedObservation, layout: ObservationLayout) -> "DenseObservation":
        """Put the padding back."""
        sizes = {"entity": layout.entities, "inventory": layout.inventory, "market": layout.market}
        side = torch.arange(layout.view_side) - layout.view_side // 2
        relative = torch.cartesian_prod(side, side)  # (tiles, 2)
        places = packed.centre.unsqueeze(1) + relative.to(packed.centre.dtype)
        return DenseObservation({
            **{name: _padded(getattr(packed, table), sizes[table]) for table, name in TABLES.items()},
            "Tile": torch.cat([places, packed.material.unsqueeze(2).to(places.dtype)], dim=2),
            "Task": packed.task,
            "AgentId": packed.agent_id,
            "ActionTargets": legal_options(packed, layout),
        })  # fmt: skip


def _padded(rows: PackedRows, size: int) -> torch.Tensor:
    table = rows.values.new_zeros(len(rows.counts), size, rows.values.shape[1])
    table[torch.arange(size) < rows.counts.unsqueeze(1)] = rows.values
    return table


@dataclass(frozen=True)
class DenseDistribution:
    """One full-width categorical distribution per head."""

    log_probabilities: Sequence[torch.Tensor]  # for each head (B, size)

    def sample(self, uniforms: torch.Tensor) -> torch.Tensor:
        """Draw an option in each head using numbers in [0, 1): (B, heads) float64 -> (B, heads) int64."""
        columns = zip(self.log_probabilities, uniforms.split(1, dim=1), strict=True)
        drawn = [
            torch.searchsorted(_cumulative(scores), uniform.contiguous(), right=True) for scores, uniform in columns
        ]
        return torch.cat(drawn, dim=1)

    def log_probability(self, actions: torch.Tensor) -> torch.Tensor:
        """Log-probability of the options taken, (B, heads)."""
        columns = zip(self.log_probabilities, actions.split(1, dim=1), strict=True)
        return torch.cat([scores.gather(1, taken) for scores, taken in columns], dim=1)

    def entropy(self) -> torch.Tensor:
        """Entropy of each head in nats, (B, heads)."""
        return torch.stack([-(head.exp() * head).sum(dim=1) for head in self.log_probabilities], dim=1)


def _cumulative(log_probability: torch.Tensor) -> torch.Tensor:
    """Cumulative distribution over a head's options, (B, size) float64; the last one's is exactly 1."""
    sums = log_probability.double().exp().cumsum(dim=1)
    return sums / sums[:, -1:]


Tables = Mapping[str, torch.Tensor]
Activation = Callable[[torch.Tensor], torch.Tensor]
PartOfPolicy = Callable[[Any, torch.Tensor], torch.Tensor]
_AS_IT_IS = nn.Identity()


def _means(policy: Any, rows: Tables) -> list[torch.Tensor]:
    return [table.mean(dim=1) for table in rows.values()]


@dataclass(frozen=True)
class Plain:
    """The parts in which the agents' networks differ."""

    describe: PartOfPolicy  # embeds tiles, (B, tiles, 3) -> (B, tiles, units)
    # convolve: the first layers over embedded tiles, (B, units, side, side) -> (B, channels, rows, columns)
    convolve: PartOfPolicy = lambda policy, planes: policy.tile_convolution.convolution(planes)
    # entities: what the encoders of entities and of the agent's own row read, (R, columns) -> (R, units)
    entities: PartOfPolicy = lambda policy, rows: policy.entity_features(rows)
    rows: Activation = functional.relu  # applied after the encoders of rows
    own: Activation = functional.relu  # applied after the encoder of the agent's own row
    # pooled: makes parts of the projection's input, (B, hidden) each, of all tables' encoded rows, (B, rows, hidden)
    # each
    pooled: Callable[[Any, Tables], list[torch.Tensor]] = _means
    task: Activation = functional.relu  # applied after the encoder of the task
    projected: Activation = _AS_IT_IS  # applied after the projection


class DensePolicy(nn.Module):
    """A direct implementation of a policy's encoder and decoder that shares the policy's parameters."""

    policy: Any  # the agents' policies have the same parts under the same names

    def __init__(self, policy: nn.Module):
        super().__init__()
        self.policy = policy
        self.hidden_size = self.policy.hidden_size
        self.plain = _PLAIN[type(policy)]

    def encode_observations(self, seen: DenseObservation) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the encoder's output, (B, hidden), and every row's embedding for each table, (B, rows, hidden)."""
        policy = self.policy
        entities = self._embed(seen["Entity"], functools.partial(self.plain.entities, policy), policy.entity_encoder)
        inventory = self._embed(seen["Inventory"], policy.item_features, policy.item_encoder)
        market = self._embed(seen["Market"], policy.item_features, policy.item_encoder)
        own = seen["Entity"][seen["Entity"][:, :, 0] == seen["AgentId"].unsqueeze(1)]  # (B, columns)
        keys = {"entity": entities, "inventory": inventory, "market": market}
        parts = [
            self._encode_tiles(seen["Tile"]),
            self.plain.own(policy.self_encoder(self.plain.entities(policy, own))),
            *self.plain.pooled(policy, keys),
            self.plain.task(policy.task_encoder(seen["Task"].to(policy.projection.weight.dtype))),
        ]
        return self.plain.projected(policy.projection(torch.cat(parts, dim=1))), keys

    def decoder_input(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the input of the heads and the critic, (B, hidden): the hidden state itself."""
        return hidden

    def decode_actions(
        self, hidden: torch.Tensor, keys: dict[str, torch.Tensor], seen: DenseObservation
    ) -> tuple[DenseDistribution, torch.Tensor]:
        """Return the distribution over actions and the value, (B,), given the output of `decoder_input`."""
        heads = self.policy.layout.heads
        legal = seen["ActionTargets"].split([head.size for head in heads], dim=1)
        scores = [
            self._score(head, hidden, keys).masked_fill(~mask, ILLEGAL) for head, mask in zip(heads, legal, strict=True)
        ]
        distribution = DenseDistribution([torch.log_softmax(head, dim=1) for head in scores])
        return distribution, self.policy.critic(hidden).squeeze(1)

    def _score(self, head: ActionHead, hidden: torch.Tensor, keys: dict[str, torch.Tensor]) -> torch.Tensor:
        name = head.name.replace(".", "_")
        decoder = self.policy.action_decoder
        projected = decoder.heads[name](decoder.rectify(hidden))
        if head.candidates is None:
            return projected
        query = projected if decoder.published else projected / projected.shape[1] ** 0.5
        rows = (keys[head.candidates] @ query.unsqueeze(2)).squeeze(2)  # (B, rows)
        noop = torch.zeros_like(query[:, 0]) if decoder.published else query @ decoder.noop_keys[name]
        return torch.cat([rows, noop.unsqueeze(1)], dim=1)

    def _encode_tiles(self, tile: torch.Tensor) -> torch.Tensor:
        side = self.policy.layout.view_side
        described = self.plain.describe(self.policy, tile.long())
        planes = described.transpose(1, 2).reshape(len(tile), -1, side, side)
        return self.policy.tile_encoder(self.plain.convolve(self.policy, planes))

    def _embed(
        self, table: torch.Tensor, features: Callable[[torch.Tensor], torch.Tensor], encoder: nn.Module
    ) -> torch.Tensor:
        rows = self.plain.rows(encoder(features(table.flatten(0, 1))))
        return rows.view(*table.shape[:2], -1)


def dense_recurrent(packed: RecurrentPolicy) -> RecurrentPolicy:
    """Return the direct implementation of the same network: equal outputs and gradients, on dense observations."""
    network: Any = DensePolicy(packed.policy)
    dense = RecurrentPolicy(network, layers=0)
    dense.cell, dense.layers = packed.cell, packed.layers
    if packed.memory:
        dense.add_module(packed.cell, packed.memory)
    return dense


def _in_view(tile: torch.Tensor, side: int) -> Sequence[torch.Tensor]:
    """Row and column of each tile in the view, (B, tiles) each."""
    middle = tile[:, [tile.shape[1] // 2], :2]
    return (tile[:, :, :2] - middle + side // 2).unbind(2)


def _materials(policy: Any, tile: torch.Tensor) -> torch.Tensor:
    described: torch.Tensor = policy.material.weight[tile[:, :, 2]]
    return described


def _start_kit_tiles(policy: Any, tile: torch.Tensor) -> torch.Tensor:
    row, column = _in_view(tile, policy.layout.view_side)
    return torch.cat([policy.row.weight[row], policy.column.weight[column], _materials(policy, tile)], dim=2)


def _residual_block(policy: Any, planes: torch.Tensor) -> torch.Tensor:
    block = policy.tile_convolution
    inner = functional.conv2d(planes, block.convolution.weight, block.convolution.bias, padding=1)
    inner = block.second_norm(block.second_convolution(functional.relu(block.norm(inner))))
    return functional.relu(planes + inner)


def _yaofeng_items(policy: Any, rows: Tables) -> list[torch.Tensor]:
    linear, norm, _ = policy.market_encoder
    places = _all_places(policy, rows["inventory"])
    pooled = [policy.inventory_norm(places), norm(linear(rows["market"]).mean(dim=1))]
    return [functional.relu(table) for table in pooled]


def _all_places(policy: Any, inventory: torch.Tensor) -> torch.Tensor:
    layer = policy.inventory_encoder
    return functional.linear(inventory.flatten(1), layer.weight, layer.bias)


_PLAIN: dict[type[nn.Module], Plain] = {
    start_kit.Policy: Plain(
        _start_kit_tiles, rows=_AS_IT_IS, task=_AS_IT_IS,
        pooled=lambda policy, rows: _means(policy, {**rows, "market": policy.market_encoder(rows["market"])}),
    ),
    start_kit.EarlierPolicy: Plain(_start_kit_tiles),
    takeru.Policy: Plain(
        _materials, rows=_AS_IT_IS, task=_AS_IT_IS,
        pooled=lambda policy, rows: [
            _all_places(policy, rows["inventory"]), policy.market_encoder(rows["market"]).mean(dim=1)
        ],
    ),
    takeru.EarlierPolicy: Plain(
        _materials, pooled=lambda policy, rows: [rows[name].mean(dim=1) for name in ("inventory", "market")]
    ),
    yaofeng.Policy: Plain(
        lambda policy, tile: torch.cat([tile[:, :, :2] / 128 - 0.5, _materials(policy, tile)], dim=2),
        _residual_block, lambda policy, rows: policy.entity_perceptron(policy.entity_features(rows)),
        rows=_AS_IT_IS, own=_AS_IT_IS, pooled=_yaofeng_items, task=_AS_IT_IS, projected=functional.relu,
    ),
}  # fmt: skip
