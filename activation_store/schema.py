"""What a dump of activations holds: the contract between the stages that run the game and those that read it."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError

from user_error import UserError

SCHEMA_VERSION = 1
RECORDS_FILE = "activations.json"
METADATA_FILE = "metadata.json"
ACTION_DECODER = "action_decoder"
LAYERS = ("encoder_output", "lstm_hidden", "lstm_cell", ACTION_DECODER)

LIFE_KEY = ("env_id", "agent_id", "episode")
"""The columns that together name a life: one agent in one episode, from spawn to death."""

TILES_IN_VIEW = 225
TILE_COLUMNS = ("row", "col", "material")


def check_layers(names: Iterable[str]) -> None:
    """Raise `UserError` where a layer of that name cannot be recorded."""
    for name in names:
        if name not in LAYERS:
            raise UserError(f"there is no layer {name!r}; there are: {', '.join(LAYERS)}")


@dataclass(frozen=True)
class RaggedRows:
    """Rows of a table that belong to records, without the padding.

    Attributes:
        values: (total rows, columns) int16.
        offsets: (records + 1,) int64; record i owns rows offsets[i] to offsets[i + 1].
    """

    values: np.ndarray
    offsets: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Rows of each record, (records,) int64."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> np.ndarray:
        """The record that each row belongs to, (total rows,) int64."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)

    def take(self, records: np.ndarray) -> "RaggedRows":
        """Return the rows of the given records (integer indices or a boolean mask), in their order."""
        records = np.flatnonzero(records) if records.dtype == bool else records
        counts = self.counts[records]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        positions = np.repeat(self.offsets[:-1][records] - offsets[:-1], counts) + np.arange(offsets[-1])
        return RaggedRows(self.values[positions], offsets)


@dataclass(frozen=True)
class Records:
    """Agent-ticks as columns; every array has one entry a record. B records, H action heads.

    Attributes:
        step: environment steps since the extraction began, (B,) int64.
        env_id: the vectorised slot that the agent's LSTM state lived in, (B,) int64.
        agent_id: the agent's id in the game, from 1, (B,) int64.
        episode: number of the episode over all environments, (B,) int64.
        tick: the game's tick in this episode, (B,) int64.
        reward: what the policy was paid for this record's action, (B,) float32.
        value: the critic's estimate, (B,) float32.
        action: index chosen in each head, (B, H) int64.
        log_probability: of the chosen index in each head, (B, H) float32.
        activations: layer name -> (B, units) float32.
        tile: row, column and material of the 15x15 view, (B, 225, 3) int16.
        entity: visible entities, the agent itself among them; columns named in the metadata.
        inventory: items carried; columns named in the metadata.
    """

    step: np.ndarray
    env_id: np.ndarray
    agent_id: np.ndarray
    episode: np.ndarray
    tick: np.ndarray
    reward: np.ndarray
    value: np.ndarray
    action: np.ndarray
    log_probability: np.ndarray
    activations: dict[str, np.ndarray]
    tile: np.ndarray
    entity: RaggedRows
    inventory: RaggedRows

    def __len__(self) -> int:
        return len(self.step)

    def take(self, records: np.ndarray) -> "Records":
        """Return the given records (integer indices or a boolean mask), in their order."""
        taken: dict[str, Any] = {}
        for column in fields(self):
            value = getattr(self, column.name)
            if isinstance(value, dict):
                taken[column.name] = {layer: array[records] for layer, array in value.items()}
            else:
                taken[column.name] = value.take(records) if isinstance(value, RaggedRows) else value[records]
        return Records(**taken)


_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True)
class ActionHead:
    """One of the policy's action heads: its name (for example `Move.Direction`), size and no-op index if it has one."""

    __pydantic_config__ = _STRICT

    name: str
    size: int
    noop: int | None


@dataclass(frozen=True)
class DumpFile:
    """What a file of the dump must be to be trusted: its SHA-256 (64 hexadecimal digits) and its size in bytes."""

    __pydantic_config__ = _STRICT

    sha256: str
    bytes: int


@dataclass(frozen=True)
class DumpMetadata:
    """All that a reader needs to understand the records, and to know that they are whole."""

    __pydantic_config__ = _STRICT

    policy: str
    agent: str
    checkpoint_sha256: str | None
    steps_trained: int
    layers: dict[str, int]
    entity_columns: tuple[str, ...]
    inventory_columns: tuple[str, ...]
    action_heads: tuple[ActionHead, ...]
    environment: dict[str, Any]
    combat_status_ticks: int
    seed: int
    episodes: list[dict[str, Any]] = field(default_factory=list)
    records: int = 0
    lives: int = 0
    files: dict[str, DumpFile] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def main_layer(self) -> str:
        """The layer that records call `activation`: the action decoder's input, or the first layer without it."""
        return ACTION_DECODER if ACTION_DECODER in self.layers else next(iter(self.layers))

    def faults(self) -> Iterator[str]:
        """Yield what contradicts itself or cannot be, a phrase each; nothing when the metadata makes sense."""
        for name, units in self.layers.items():
            if units < 1:
                yield f"layer {name!r} has {units} units"
        if not self.layers:
            yield "it names no layer"
        for head in self.action_heads:
            if head.size < 1 or (head.noop is not None and not 0 <= head.noop < head.size):
                yield f"action head {head.name!r} has size {head.size} and no-op {head.noop}"
        heads = tuple(head.name for head in self.action_heads)
        for title, names in (("entity", self.entity_columns), ("inventory", self.inventory_columns), ("head", heads)):
            if not names or len(set(names)) < len(names):
                yield f"its {title} names are missing or repeated"
        if not 0 <= self.lives <= self.records:
            yield f"it counts {self.records} records and {self.lives} lives"
        if self.combat_status_ticks < 0:
            yield f"combat_status_ticks is {self.combat_status_ticks}"

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries and lists, ready to be written as JSON, with a checksum over all of them."""
        content = orjson.loads(orjson.dumps(asdict(self), option=orjson.OPT_SERIALIZE_NUMPY))
        return {**content, _CHECKSUM: _checksum(content)}

    @staticmethod
    def from_json(content: object, source: str) -> "DumpMetadata":
        """Build the metadata from parsed JSON; `source` names the file in messages.

        Raises:
            UserError: the schema version is unknown, a key is missing, unknown or of the wrong type, the checksum does
                not fit, or the values contradict each other.
        """
        if not isinstance(content, dict):
            raise UserError(f"{source} does not hold a JSON object: it is not the metadata of an activation dump")
        if "schema_version" not in content:
            raise UserError(f"{source} names no schema version: it is damaged or from another tool")
        version = content["schema_version"]
        if version != SCHEMA_VERSION:
            raise UserError(f"{source} has schema version {str(version)[:40]!r}; this toolkit reads {SCHEMA_VERSION}")
        rest = {key: value for key, value in content.items() if key != _CHECKSUM}
        if missing := {column.name for column in fields(DumpMetadata)} - rest.keys():
            raise UserError(f"{source} lacks {', '.join(sorted(missing))}: it is damaged or from another tool")
        try:
            checksum = _checksum(rest)
        except orjson.JSONEncodeError as error:
            raise UserError(f"{source} is damaged: {error}") from None
        if content.get(_CHECKSUM) != checksum:
            raise UserError(f"{source} does not match its own checksum: damaged or edited; copy or extract it again")
        try:
            metadata = TypeAdapter(DumpMetadata).validate_json(orjson.dumps(rest))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise UserError(f"{source} is damaged: {place!r}: {first['msg']}") from None
        if fault := next(metadata.faults(), None):
            raise UserError(f"{source} contradicts itself: {fault}")
        return metadata


_CHECKSUM = "checksum"


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
