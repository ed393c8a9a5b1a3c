"""Import dumps of the original tools: a JSON array or one record per line, with float rows, dead agents, no metadata.

Fields that they lack are left unrecorded. Episodes are distinguished by the game's tick, which restarts in each.
"""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from activation_store.layers import ACTION_DECODER
from activation_store.records import RaggedRows, Records
from activation_store.schema import (
    MAY_BE_UNRECORDED,
    METADATA_FILE,
    ROWS_AT_MOST,
    TILE_COLUMNS,
    TILES_IN_VIEW,
    ActionHead,
    DumpMetadata,
    Format,
    Precision,
)
from activation_store.selection import join_rows
from activation_store.writer import DumpWriter
from common.files import open_file, visible
from common.user_error import UserError

_ENTITY = (
    "id npc_type row col damage time_alive freeze item_level attacker_id latest_combat_tick message gold health food "
    "water melee_level melee_exp range_level range_exp mage_level mage_exp fishing_level fishing_exp herbalism_level "
    "herbalism_exp prospecting_level prospecting_exp carving_level carving_exp alchemy_level alchemy_exp"
)
_INVENTORY = (
    "id type_id owner_id level capacity quantity melee_attack range_attack mage_attack melee_defense range_defense "
    "mage_defense health_restore resource_restore equipped listed_price"
)
ENTITY_COLUMNS = tuple(_ENTITY.split())
INVENTORY_COLUMNS = tuple(_INVENTORY.split())
ACTION_HEADS = (
    ActionHead("Attack.Style", 3, None),
    ActionHead("Attack.Target", 101, 100),
    ActionHead("Buy.MarketItem", 385, 384),
    ActionHead("Destroy.InventoryItem", 13, 12),
    ActionHead("Give.InventoryItem", 13, 12),
    ActionHead("Give.Target", 101, 100),
    ActionHead("GiveGold.Price", 99, None),
    ActionHead("GiveGold.Target", 101, 100),
    ActionHead("Move.Direction", 5, 4),
    ActionHead("Sell.InventoryItem", 13, 12),
    ActionHead("Sell.Price", 99, None),
    ActionHead("Use.InventoryItem", 13, 12),
)
COMBAT_STATUS_TICKS = 3
SLOTS_OF_A_PROCESS = 10_000_000
"""Offset added to the slots of each further recording process."""


_BATCH = 16
_BLOCK_BYTES = 1 << 18
_RECORD_BYTES_AT_MOST = 1 << 24
_PIECES_AT_MOST = 64
_BETWEEN = re.compile(rb"\}[ \t\r\n]*,?[ \t\r\n]*\{")


def find_original(source: Path) -> Path | None:
    """Return the file of records of the original tools at a path, or in the folder at that path; None if there is none.

    Raises:
        UserError: the folder holds several.
    """
    if source.is_file():
        return source
    if not source.is_dir() or (source / METADATA_FILE).exists():
        return None
    files = sorted(path for pattern in ("*.json", "*.jsonl") for path in visible(source, pattern) if path.is_file())
    if len(files) > 1:
        names = ", ".join(path.name for path in files)[:200]
        raise UserError(f"{source} holds several files of records ({names}): give the one to import")
    return files[0] if files else None


def import_original(
    source: Path, folder: Path, form: Format, precision: Precision, report: Callable[[float], None]
) -> None:
    """Write the living agents' records of an original file as a dump, in constant memory.

    Raises:
        UserError: the file is truncated, malformed, or holds no record of a living agent.
    """
    batches = _batches(source, report)
    first = next(batches, None)
    if first is None:
        raise UserError(f"{source} holds no record of a living agent: there is nothing to import")
    metadata = _metadata(source, first[0][0], form, precision)
    episodes = _Episodes()
    with DumpWriter(folder, metadata) as writer:
        for records, last in itertools.chain([first], batches):
            with _named_faults(source, last):
                writer.write(_to_records(records, metadata, episodes))
            for episode in episodes.ended:
                writer.finish_episode(episode, {"episode": episode})
            episodes.ended = []
        writer.close([{"episode": episode} for episode in episodes.running()])


class _Episodes:
    """Numbers episodes: a new one starts whenever the tick of a recording process restarts."""

    def __init__(self) -> None:
        self._begun = 0
        self._now: dict[int, tuple[int, int]] = {}  # process -> its episode, its tick
        self.ended: list[int] = []

    def episode_of(self, slot: int, tick: int) -> int:
        """Return the episode of a record; records must be passed in the order of recording."""
        process = slot // SLOTS_OF_A_PROCESS
        episode, clock = self._now.get(process, (-1, tick + 1))
        if tick < clock:
            if episode >= 0:
                self.ended.append(episode)
            episode, self._begun = self._begun, self._begun + 1
        self._now[process] = episode, tick
        return episode

    def running(self) -> list[int]:
        return [episode for episode, _ in self._now.values()]


@contextlib.contextmanager
def _named_faults(source: Path, record: int) -> Iterator[None]:
    """Turn errors about malformed records into messages that say where in the file they are."""
    try:
        yield
    except (AttributeError, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0][:200]
        raise UserError(
            f"{source}, at or up to {_BATCH} living agents before record {record}: {reason}: repair or leave it out"
        ) from None


def _batches(source: Path, report: Callable[[float], None]) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """Yield records of living agents, and the position in the file of the last one, from 1."""
    living: list[dict[str, Any]] = []
    number = 0
    for number, record in enumerate(_objects(source, report), start=1):
        with _named_faults(source, number):
            if _lives(record):
                record["observation"].pop("Market", None)  # half of a record's numbers, and not imported
                living.append(record)
        if len(living) == _BATCH:
            yield living, number
            living = []
    if living:
        yield living, number


def _objects(source: Path, report: Callable[[float], None]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON array or of JSON lines, reading one block at a time."""
    with open_file(source) as file:
        size = source.stat().st_size
        waiting = file.read(_BLOCK_BYTES).lstrip()
        in_array = waiting.startswith(b"[")
        waiting = waiting[1:].lstrip() if in_array else waiting
        if waiting[:1] not in ((b"{", b"]") if in_array else (b"{",)):
            raise UserError(f"{source} is neither a JSON array of records nor one record per line: check the file")
        count = 0
        while block := file.read(_BLOCK_BYTES):
            waiting += block
            objects, waiting = _cut(waiting)
            count += len(objects)
            yield from objects
            if len(waiting) > _RECORD_BYTES_AT_MOST:
                raise UserError(f"{source}: record {count + 1} is not a JSON object, or is too large: check the file")
            report(file.tell() / size)
    objects, rest = _cut(waiting)
    yield from objects
    yield from _last(source, rest.strip(), in_array, count + len(objects) + 1)


def _cut(text: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """Split off all objects in `text` that are followed by another one; return them and the rest.

    The text is split wherever one brace closes and the next opens. A part that is not valid JSON is joined with the
    next one, since such a place may also be inside a record.
    """
    objects, start, pieces = [], 0, 0
    for match in _BETWEEN.finditer(text):
        pieces += 1
        record = _parse(text[start : match.start() + 1])
        if record is not None:
            objects.append(record)
            start, pieces = match.end() - 1, 0
        elif pieces > _PIECES_AT_MOST:
            break
    return objects, text[start:]


def _last(source: Path, rest: bytes, in_array: bool, number: int) -> Iterator[dict[str, Any]]:
    if in_array:
        if not rest.endswith(b"]"):
            raise UserError(f"{source} is truncated: record {number} or what follows it is cut off; copy it again")
        rest = rest[:-1].rstrip()
    if rest:
        record = _parse(rest)
        if record is None:
            raise UserError(f"{source}: record {number} is not a JSON object, or is cut off; copy or repair the file")
        yield record


def _parse(text: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def _lives(record: dict[str, Any]) -> bool:
    """Return whether the record is of a living agent: it has an id, sees itself, and has health left."""
    if not record["agent_id"]:
        return False
    for row in record["observation"]["Entity"]:
        if row[0] == record["agent_id"]:
            return bool(row[ENTITY_COLUMNS.index("health")] > 0)
    return False


def _metadata(source: Path, record: dict[str, Any], form: Format, precision: Precision) -> DumpMetadata:
    """Return the metadata inferred from a dump's first record; the policy is named after the folder."""
    if {"episode", "tick"} <= record.keys():  # only metadata say which of the layers such a record calls `activation`
        raise UserError(
            f"{source} is part of a dump of this toolkit, which lacks its {METADATA_FILE}: copy that too, or extract "
            "it again"
        )
    with _named_faults(source, 1):
        layers = {ACTION_DECODER: len(record["activation"])}
        if further := record.get("activations"):
            layers = {name: len(values) for name, values in further.items()}
    metadata = DumpMetadata(
        policy=str(record.get("policy") or source.resolve().parent.name),
        agent="unknown",
        checkpoint_sha256=None,
        steps_trained=None,
        layers=layers,
        entity_columns=ENTITY_COLUMNS,
        inventory_columns=INVENTORY_COLUMNS,
        action_heads=ACTION_HEADS,
        environment={},
        combat_status_ticks=COMBAT_STATUS_TICKS,
        seed=None,
        format=form,
        precision=precision,
        unrecorded=MAY_BE_UNRECORDED,
    )
    if fault := next(metadata.faults(), None):
        raise UserError(f"{source} cannot be imported: {fault}")
    return metadata


def _to_records(batch: list[dict[str, Any]], metadata: DumpMetadata, episodes: _Episodes) -> Records:
    """Return records as columns.

    Raises:
        ValueError, TypeError, KeyError: a key is missing, or a value has the wrong shape or type.
    """
    count = len(batch)
    seen = [record["observation"] for record in batch]
    step, slot, agent = (
        _array([record[name] for record in batch], (count,)) for name in ("step", "env_id", "agent_id")
    )
    tick = _array([observation["CurrentTick"] for observation in seen], (count, 1))[:, 0]
    action = _array([record["action"] for record in batch], (count, len(ACTION_HEADS)))
    activations = {
        name: _array(
            [record["activations"][name] if record.get("activations") else record["activation"] for record in batch],
            (count, units),
            np.float32,
        )
        for name, units in metadata.layers.items()
    }
    unknown = np.full(count, np.nan, np.float32)
    return Records(
        step=step,
        env_id=slot,
        agent_id=agent,
        episode=np.array(list(map(episodes.episode_of, slot.tolist(), tick.tolist()))),
        tick=tick,
        reward=unknown,
        value=unknown,
        action=action,
        log_probability=np.full(action.shape, np.nan, np.float32),
        activations=activations,
        tile=_array([observation["Tile"] for observation in seen], (count, TILES_IN_VIEW, len(TILE_COLUMNS)), np.int16),
        entity=_used_rows([observation["Entity"] for observation in seen], len(ENTITY_COLUMNS)),
        inventory=_used_rows([observation["Inventory"] for observation in seen], len(INVENTORY_COLUMNS)),
    )


def _array(values: Any, shape: tuple[int, ...], dtype: Any = np.int64) -> np.ndarray:
    """Return numbers as an array with this shape and type.

    Raises:
        ValueError: they have another shape, are not numbers, or do not fit the type.
    """
    try:
        array = np.array(values)
    except ValueError:
        raise ValueError(f"expected numbers of shape {shape[1:]}, found lists of different lengths") from None
    if array.shape != shape or array.dtype.kind not in "iuf":
        raise ValueError(f"expected numbers of shape {shape[1:]}, found {array.dtype} of shape {array.shape[1:]}")
    with np.errstate(over="ignore", invalid="ignore"):
        fitting = array.astype(dtype)
        same = np.isfinite(fitting) if np.dtype(dtype).kind == "f" else fitting == array
    if not same.all():
        raise ValueError(f"a number does not fit {np.dtype(dtype).name}")
    return fitting


def _used_rows(tables: list[Any], width: int) -> RaggedRows:
    pieces = []
    for table in tables:
        rows = _array(table, (len(table), width), np.int16) if table else np.empty((0, width), np.int16)
        used = rows[rows[:, 0] != 0]
        if len(used) > ROWS_AT_MOST:
            raise ValueError(f"a table has {len(used)} rows, more than {ROWS_AT_MOST}")
        pieces.append(RaggedRows(used, np.array([0, len(used)])))
    return join_rows(pieces, width)
