"""Agents' observations without padding.

The game provides tables of fixed size: 100 entity rows, 12 inventory rows, 384 market rows, almost all zeros. Here only
the used rows are kept, grouped by agent, with offsets that mark each agent's rows. Every encoder, the rollout storage
and the dumps use this form.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import ConfigDict, Field
from torch.nn import functional

_STRICT = ConfigDict(strict=True, extra="forbid")

_Size = Annotated[int, Field(ge=0, le=1 << 16)]

CandidateTable = Literal["entity", "inventory", "market"]


@dataclass(frozen=True)
class ActionHead:
    """One discrete choice of the policy."""

    __pydantic_config__ = _STRICT

    name: str  # action and argument, for example `Attack.Target`
    size: _Size  # number of options
    noop: int | None  # the option that does nothing, always the last; None if there is none
    candidates: CandidateTable | None
    """The table whose rows are the options before the no-op; None if the options are not rows."""


@dataclass(frozen=True)
class ObservationLayout:
    """Tables, columns, sizes and action heads of an environment: everything needed to build a policy."""

    __pydantic_config__ = _STRICT

    tile_columns: tuple[str, ...]
    entity_columns: tuple[str, ...]
    item_columns: tuple[str, ...]
    tiles: _Size
    entities: _Size
    inventory: _Size
    market: _Size
    materials: _Size
    map_side: _Size
    task_size: _Size
    heads: tuple[ActionHead, ...]

    @property
    def view_side(self) -> int:
        """Side of the square view, in tiles."""
        return round(self.tiles**0.5)

    @property
    def mask_size(self) -> int:
        """Total number of options of all heads."""
        return sum(head.size for head in self.heads)

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries and lists."""
        return asdict(self)


@dataclass(frozen=True)
class PackedRows:
    """Used rows of a table for a batch of B agents."""

    values: torch.Tensor  # (total rows, columns) int16
    counts: torch.Tensor  # rows of each agent, (B,) int64

    @cached_property
    def most(self) -> int:
        """The largest number of rows of any agent; 0 without agents."""
        return int(self.counts.max()) if len(self.counts) else 0

    @cached_property
    def starts(self) -> torch.Tensor:
        """Position of each agent's first row, (B,) int64."""
        return torch.cumsum(self.counts, 0) - self.counts

    @cached_property
    def owner(self) -> torch.Tensor:
        """The agent that each row belongs to, (total rows,) int64."""
        return torch.repeat_interleave(torch.arange(len(self.counts), device=self.counts.device), self.counts)

    @cached_property
    def place(self) -> torch.Tensor:
        """Position of each row among its agent's rows, (total rows,) int64."""
        return torch.arange(len(self.values), device=self.values.device) - self.starts[self.owner]

    def to(self, device: torch.device) -> "PackedRows":
        """Return the same rows on another device."""
        return PackedRows(self.values.to(device), self.counts.to(device))

    def take(self, agents: torch.Tensor) -> "PackedRows":
        """Return the rows of the given agents, (agents,) int64, in their order."""
        counts = self.counts[agents]
        first = torch.cumsum(counts, 0) - counts
        shift = torch.repeat_interleave(self.starts[agents] - first, counts)
        return PackedRows(self.values[torch.arange(len(shift), device=shift.device) + shift], counts)

    def take_rows(self, kept: torch.Tensor) -> "PackedRows":
        """Return some rows of each agent, (total rows,) bool."""
        return PackedRows(self.values[kept], torch.bincount(self.owner[kept], minlength=len(self.counts)))


@dataclass(frozen=True)
class PackedObservation:
    """The observations of B agents."""

    material: torch.Tensor  # of each tile in view, (B, tiles) uint8
    centre: torch.Tensor  # row and column of the agent's own tile, (B, 2) int16
    agent_id: torch.Tensor  # (B,) int16
    tick: torch.Tensor  # (B,) int16
    entity: PackedRows  # visible entities, including the agent itself
    inventory: PackedRows  # items carried
    market: PackedRows  # items for sale
    task: torch.Tensor  # embedding of the agent's task, (B, task size) float16
    legal: torch.Tensor  # legality of every option of every head, as bits, (B, ceil(mask size / 8)) uint8

    def __len__(self) -> int:
        return len(self.agent_id)

    def take(self, agents: torch.Tensor) -> "PackedObservation":
        """Return the observations of the given agents, (agents,) int64, in their order."""
        return self._changed(lambda part: part.take(agents) if isinstance(part, PackedRows) else part[agents])

    def to(self, device: torch.device) -> "PackedObservation":
        """Return the same observations on another device."""
        return self._changed(lambda part: part.to(device))

    def _changed(self, change: Callable[[Any], Any]) -> "PackedObservation":
        return PackedObservation(**{column.name: change(getattr(self, column.name)) for column in fields(self)})

    @staticmethod
    def concatenate(parts: "Sequence[PackedObservation]") -> "PackedObservation":
        """Join batches of agents."""
        columns = {column.name: [getattr(part, column.name) for part in parts] for column in fields(PackedObservation)}
        return PackedObservation(**{name: _joined(values) for name, values in columns.items()})


def _joined(values: Sequence[Any]) -> Any:
    if isinstance(values[0], PackedRows):
        return PackedRows(_joined([rows.values for rows in values]), _joined([rows.counts for rows in values]))
    return torch.cat(list(values))


def pack(observations: np.ndarray, layout: ObservationLayout) -> PackedObservation:
    """Keep the used rows of a batch of observations.

    Args:
        observations: (B,) structured array with the fields of Neural MMO's observation; no dead agents.
    """
    tile, targets = observations["Tile"], observations["ActionTargets"]
    middle = layout.tiles // 2
    parts = (head.name.split(".") for head in layout.heads)
    legal = np.concatenate([targets[action][argument] for action, argument in parts], axis=1)  # (B, mask size)
    return PackedObservation(
        material=torch.from_numpy(tile[:, :, 2].astype(np.uint8)),
        centre=torch.from_numpy(tile[:, middle, :2].copy()),
        agent_id=torch.from_numpy(observations["AgentId"].astype(np.int16).ravel()),
        tick=torch.from_numpy(observations["CurrentTick"].astype(np.int16).ravel()),
        entity=_used_rows(observations["Entity"]),
        inventory=_used_rows(observations["Inventory"]),
        market=_used_rows(observations["Market"]),
        task=torch.from_numpy(observations["Task"].copy()),
        legal=torch.from_numpy(np.packbits(legal, axis=1)),
    )


def legal_options(observation: PackedObservation, layout: ObservationLayout) -> torch.Tensor:
    """Unpack the legality of every option, (B, mask size) bool, with the heads concatenated."""
    if observation.legal.device.type == "cpu":
        bits = np.unpackbits(observation.legal.numpy(), axis=1, count=layout.mask_size)
        return torch.from_numpy(bits).view(torch.bool)
    bit = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=observation.legal.device)
    flags = (observation.legal.unsqueeze(-1) & bit) != 0  # (B, bytes, 8)
    return flags.flatten(1)[:, : layout.mask_size]


def packed_options(legal: torch.Tensor) -> torch.Tensor:
    """Pack the legality of every option as `PackedObservation.legal` holds it: (B, mask size) bool -> (B, bytes)."""
    bit = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=legal.device)
    whole = functional.pad(legal, (0, -legal.shape[1] % 8))  # (B, bytes * 8)
    return (whole.unflatten(1, (-1, 8)) * bit).sum(dim=2, dtype=torch.uint8)


def _used_rows(table: np.ndarray) -> PackedRows:
    """Keep the rows whose id, column 0, is not zero: (B, rows, columns) -> packed."""
    used = table[:, :, 0] != 0
    return PackedRows(torch.from_numpy(table[used]), torch.from_numpy(used.sum(axis=1)))
