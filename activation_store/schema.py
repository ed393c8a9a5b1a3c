"""The contents of a dump of activations: the contract between stages that run the game and stages that read dumps."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict

from activation_store.columns import Column, column_faults
from activation_store.layers import ACTION_DECODER
from activation_store.records import RaggedRows, Records
from common.checked_json import in_shape, with_checksum, without_checksum
from common.user_error import UserError

__all__ = ["ActionHead", "DumpFile", "DumpMetadata", "PrecisionError", "RaggedRows", "Records"]

SCHEMA_VERSION = 3
RECORDS_FILE = "activations.json"
METADATA_FILE = "metadata.json"
JOURNAL_FILE = "unfinished.json"

LIFE_KEY = ("env_id", "agent_id", "episode")
"""The columns that together name a life: one agent in one episode, from spawn to death."""

IDENTITY = ("step", *LIFE_KEY, "tick")
"""The columns that identify a record's agent-tick, all int64."""

TILES_IN_VIEW = 225
TILE_COLUMNS = ("row", "col", "material")
ROWS_AT_MOST = 512
"""Maximum number of rows of a record in one table; the game's longest table has 384."""

MAY_BE_UNRECORDED = ("reward", "value", "log_probability")
_RECORD_KEYS = (
    *IDENTITY, *MAY_BE_UNRECORDED, "policy", "action", "activation", "activations", "observation", "tile", "table",
)  # fmt: skip
_TABLES_ALWAYS = ("Tile", "Entity", "Inventory", "CurrentTick")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_UNITS_AT_MOST = 1 << 14

COMMAND = "command"
"""Of a simulated dump: in `environment`, the command that made it."""
SOURCE_DUMP, STARTS = "dump_sha256", "starts"
"""Of a simulated dump: in `environment["simulated"]`, the hash of the metadata of the dump that lives go on from;
in what is said of an episode, the episode, agent and tick that each life goes on from, in the order of their slots."""

Format = Literal["json", "parquet"]
Precision = Literal["float32", "float16"]
Origin = Literal["game", "simulated"]


def shard_name(episode: int) -> str:
    """Return the name of the file that holds one episode of a parquet dump."""
    return f"episode-{episode:06d}.parquet"


_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True)
class ActionHead:
    """One of the policy's action heads: its name (such as `Move.Direction`), size, and no-op index if it has one."""

    __pydantic_config__ = _STRICT

    name: str
    size: int
    noop: int | None


OPTIONS: dict[str, tuple[str, ...]] = {
    "Move.Direction": ("north", "south", "east", "west", "stay"), "Attack.Style": ("melee", "range", "mage"),
}  # fmt: skip
"""Names of the options of some action heads, in the game's order."""


def option_names(head: str, count: int) -> list[str]:
    """Return a name for each option of an action head; numbers where the game has none, or the head another size."""
    names = OPTIONS.get(head, ())
    return list(names) if len(names) == count else [f"option {number}" for number in range(count)]


@dataclass(frozen=True)
class DumpFile:
    """The expected size, hash and counts of one of a dump's files."""

    __pydantic_config__ = _STRICT

    sha256: str  # of its bytes, 64 hexadecimal digits
    bytes: int
    records: int
    lives: int
    episode: int | None = None  # the only one in the file; None if it holds all episodes


@dataclass(frozen=True)
class PrecisionError:
    """The largest errors from rounding a layer: absolute, and relative for values other than 0."""

    __pydantic_config__ = _STRICT

    absolute: float
    relative: float

    def or_larger(self, other: "PrecisionError") -> "PrecisionError":
        """Return the larger absolute and the larger relative error of both."""
        return PrecisionError(max(self.absolute, other.absolute), max(self.relative, other.relative))


@dataclass(frozen=True)
class DumpMetadata:
    """Everything a reader needs to interpret the records and to verify that they are complete."""

    __pydantic_config__ = _STRICT

    policy: str
    agent: str  # folder of `agent_zoo` that it was built from
    checkpoint_sha256: str | None  # of the checkpoint file; None if there is none
    steps_trained: int | None  # agent-steps; None if unknown
    layers: dict[str, int]  # name -> units
    entity_columns: tuple[str, ...]  # of the Entity table, in order
    inventory_columns: tuple[str, ...]  # of the Inventory table, in order
    action_heads: tuple[ActionHead, ...]  # in order
    environment: dict[str, Any]
    combat_status_ticks: int  # ticks for which the game counts an agent as in combat after an attack
    seed: int | None  # of the extraction; None if unknown
    format: Format = "json"
    precision: Precision = "float32"  # that activations are stored in
    columns: dict[str, Column] = field(default_factory=dict)  # optional columns by name
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)  # optional tables, name -> columns in order
    unrecorded: tuple[str, ...] = ()  # fields of `MAY_BE_UNRECORDED` that this dump lacks; readers return NaN
    precision_error: dict[str, PrecisionError] = field(default_factory=dict)
    """By layer, if activations were ever rounded."""
    episodes: list[dict[str, Any]] = field(default_factory=list)  # number, seed and map of each
    records: int = 0
    lives: int = 0
    files: dict[str, DumpFile] = field(default_factory=dict)  # sizes, hashes and counts by file name
    versions: dict[str, str] = field(default_factory=dict)  # of the libraries that made the dump
    origin: Origin = "game"  # whether the lives were played in the game, or simulated by a world model
    world_model_sha256: str | None = None
    """Of the file of the world model that simulated them; None if they were played."""
    schema_version: int = SCHEMA_VERSION

    @property
    def main_layer(self) -> str:
        """The layer that records call `activation`: the action decoder's input, or the first layer without it."""
        return ACTION_DECODER if ACTION_DECODER in self.layers else next(iter(self.layers))

    @property
    def begins_empty(self) -> bool:
        """Whether lives begin with an empty memory; simulated ones go on from a memory that no record holds."""
        return self.origin == "game"

    @property
    def all_tables(self) -> dict[str, tuple[str, ...]]:
        """The columns of every table by the table's name in the game's observation."""
        return {"Entity": self.entity_columns, "Inventory": self.inventory_columns, **self.tables}

    def faults(self) -> Iterator[str]:
        """Yield one phrase per contradiction or impossible value; nothing if the metadata is valid."""
        yield from self._layer_faults()
        for head in self.action_heads:
            if head.size < 1 or (head.noop is not None and not 0 <= head.noop < head.size):
                yield f"action head {head.name!r} has size {head.size} and no-op {head.noop}"
        heads = tuple(head.name for head in self.action_heads)
        for title, names in (*self.all_tables.items(), ("head", heads)):
            if not names or len(set(names)) < len(names):
                yield f"its {title} names are missing or repeated"
        for name in self.tables:
            if not _WORD.fullmatch(name) or name in _TABLES_ALWAYS:
                yield f"it has a further table named {name[:40]!r}"
        yield from column_faults(self.columns, _RECORD_KEYS)
        if not set(self.unrecorded) <= set(MAY_BE_UNRECORDED):
            yield f"it says that {', '.join(self.unrecorded)} are unrecorded"
        if not 0 <= self.lives <= self.records:
            yield f"it counts {self.records} records and {self.lives} lives"
        if (self.origin == "simulated") != (self.world_model_sha256 is not None):
            yield f"its origin is {self.origin} and its world model {self.world_model_sha256}"
        if self.combat_status_ticks < 0:
            yield f"combat_status_ticks is {self.combat_status_ticks}"
        if self.files or self.records:
            yield from self._file_faults()

    def _layer_faults(self) -> Iterator[str]:
        if not self.layers:
            yield "it names no layer"
        for name, units in self.layers.items():
            if not 1 <= units <= _UNITS_AT_MOST:
                yield f"layer {name!r} has {units} units"
            if not _WORD.fullmatch(name):
                yield f"a layer is named {name[:40]!r}"
        if self.format == "json" and self.precision != "float32":
            yield "JSON holds float32 only"

    def _file_faults(self) -> Iterator[str]:
        files = self.files.values()
        if self.format == "json":
            names = {RECORDS_FILE}
        else:
            names = {shard_name(file.episode) for file in files if file.episode is not None and file.episode >= 0}
        if names != set(self.files):
            yield f"it lists {', '.join(sorted(self.files))[:200]} as its files"
        if any(not 0 < file.lives <= file.records for file in files) and self.records:
            yield "it lists a file without records"
        if (sum(file.records for file in files), sum(file.lives for file in files)) != (self.records, self.lives):
            yield f"its files hold another number of records than {self.records}, or of lives than {self.lives}"

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries and lists for JSON, with a checksum over all of them."""
        content = asdict(self)
        if self.origin == "game":  # left out, so that earlier versions can read the dump
            content = {name: item for name, item in content.items() if name not in _OF_SIMULATED}
        return with_checksum(content)

    @staticmethod
    def from_json(content: object, source: str) -> "DumpMetadata":
        """Build the metadata from parsed JSON; `source` names the file in messages.

        Metadata of JSON dumps with an earlier schema version is converted to the current one.

        Raises:
            UserError: the schema version is unknown; a key is missing, unknown or of the wrong type; the checksum does
                not match; or the values contradict each other.
        """
        if not isinstance(content, dict):
            raise UserError(f"{source} does not hold a JSON object: it is not the metadata of an activation dump")
        if "schema_version" not in content:
            raise UserError(f"{source} has no schema version: it is damaged or from another tool")
        version = content["schema_version"]
        if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
            raise UserError(
                f"{source} has schema version {str(version)[:40]!r}; this toolkit reads 1 to {SCHEMA_VERSION}: "
                "read it with the toolkit's version that wrote it, or extract it again"
            )
        if version < SCHEMA_VERSION and content.get("format", "json") != "json":
            raise UserError(
                f"{source} has schema version {version}, whose parquet files this toolkit cannot read: extract it "
                "again, or convert it to JSON with the toolkit's version that wrote it"
            )
        wanted = {column.name for column in fields(DumpMetadata)} - _OF_SIMULATED
        wanted -= _SINCE_VERSION_2 if version == 1 else set()
        if missing := wanted - content.keys():
            raise UserError(f"{source} lacks {', '.join(sorted(missing))}: it is damaged or from another tool")
        content = {**without_checksum(content, source), "schema_version": SCHEMA_VERSION}
        if version == 1 and isinstance(files := content["files"], dict):
            counts = {"records": content["records"], "lives": content["lives"]}
            content["files"] = {
                name: {**proof, **counts} if isinstance(proof, dict) else proof for name, proof in files.items()
            }
        metadata = in_shape(DumpMetadata, content, f"{source} is damaged", "copy or extract it again")
        if fault := next(metadata.faults(), None):
            raise UserError(f"{source} contradicts itself: {fault}; copy or extract it again")
        return metadata


_OF_SIMULATED = {"origin", "world_model_sha256"}
"""Keys that only simulated dumps have."""
_SINCE_VERSION_2 = {"format", "precision", "columns", "tables", "unrecorded", "precision_error"}


def refuse_kept_memory(folder: Path, metadata: DumpMetadata) -> None:
    """Refuse a dump whose lives do not begin with an empty memory, for readers that compute memories again.

    Raises:
        UserError: it was recorded with the original protocol.
    """
    if metadata.environment.get("protocol") == "original":
        raise UserError(
            f"{folder} was recorded with --protocol original, by which memories outlast lives: extract it without"
        )


_FLOAT16_LARGEST = float(np.finfo(np.float16).max)


def check_shapes(records: Records, metadata: DumpMetadata, may_lack: Iterable[str]) -> None:
    """Raise `ValueError` if records do not have the shapes and types that the metadata declares.

    Args:
        may_lack: optional columns that the writer adds itself.
    """
    count, heads = len(records), len(metadata.action_heads)
    shapes = {layer: values.shape for layer, values in records.activations.items()}
    expected: dict[str, tuple[int, ...]] = {layer: (count, units) for layer, units in metadata.layers.items()}
    for name in (*IDENTITY, *MAY_BE_UNRECORDED, "action"):
        shapes[name] = getattr(records, name).shape
        expected[name] = (count, heads) if name in ("action", "log_probability") else (count,)
    shapes["tile"], expected["tile"] = records.tile.shape, (count, TILES_IN_VIEW, len(TILE_COLUMNS))
    for name, rows in records.all_tables.items():
        shapes[name] = (len(rows.offsets) - 1, rows.values.shape[1])
    expected |= {name: (count, len(columns)) for name, columns in metadata.all_tables.items()}
    shapes |= {name: values.shape for name, values in records.columns.items()}
    lacking = set(may_lack) - records.columns.keys()
    expected |= {name: column.shape(count) for name, column in metadata.columns.items() if name not in lacking}
    if shapes != expected:
        wrong = {name for name in shapes.keys() | expected.keys() if shapes.get(name) != expected.get(name)}
        name = sorted(wrong)[0]
        raise ValueError(f"{name} has shape {shapes.get(name)}, the metadata declares {expected.get(name)}")
    _check_types(records, metadata)


def _check_types(records: Records, metadata: DumpMetadata) -> None:
    tables = records.all_tables
    if not all(values.dtype == np.int16 for values in (records.tile, *(rows.values for rows in tables.values()))):
        raise ValueError("tile and tables must be int16")
    for name, values in records.columns.items():
        if values.dtype != metadata.columns[name].dtype:
            raise ValueError(f"{name} is {values.dtype}, the metadata declares {metadata.columns[name].dtype}")
    for name, rows in tables.items():
        if rows.counts.max(initial=0) > ROWS_AT_MOST:
            raise ValueError(f"a record has {rows.counts.max()} rows in {name}, more than {ROWS_AT_MOST}")


def check_values(records: Records, metadata: DumpMetadata) -> None:
    """Refuse values that are not allowed in a dump.

    Raises:
        UserError: NaN, infinity, or an activation too large for float16 in a float16 dump.
        ValueError: an action lies outside its head.
    """
    floats = {name: getattr(records, name) for name in MAY_BE_UNRECORDED if name not in metadata.unrecorded}
    columns = {name: values for name, values in records.columns.items() if values.dtype == np.float32}
    for name, values in {**floats, **records.activations, **columns}.items():
        finite = np.isfinite(values if values.ndim == 2 else values[:, None]).all(axis=1)
        if not finite.all():
            i = int(np.argmin(finite))
            raise UserError(
                f"{name} of agent {records.agent_id[i]} at step {records.step[i]} is NaN or infinite: the policy or "
                "its reward has diverged, so its activations mean nothing; extract from an earlier checkpoint"
            )
    if metadata.precision == "float16":
        for name, values in records.activations.items():
            if np.abs(values).max(initial=0) > _FLOAT16_LARGEST:
                raise UserError(f"{name} holds a number beyond {_FLOAT16_LARGEST:.0f}: float16 cannot; use float32")
    sizes = np.array([head.size for head in metadata.action_heads])
    if ((records.action < 0) | (records.action >= sizes)).any():
        raise ValueError("an action lies outside its head")
