"""Write a dump of activations: records streamed to disk as they come, metadata last."""

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import orjson

from activation_store.files import atomic_file, write_json
from activation_store.schema import (
    METADATA_FILE,
    RECORDS_FILE,
    TILE_COLUMNS,
    TILES_IN_VIEW,
    DumpFile,
    DumpMetadata,
    RaggedRows,
    Records,
)
from user_error import UserError

_JSON_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


class DumpWriter:
    """Writes one dump, as a context manager: leaving the block finishes it, an exception leaves nothing behind.

    Records go to a temporary file beside `activations.json`, one a line inside a JSON array; memory holds one batch
    and the last tick of each life, whatever the number of records. `metadata.json` comes last, so a folder without it
    never passes for a whole dump.
    """

    def __init__(self, folder: Path, metadata: DumpMetadata) -> None:
        """Prepare to write into `folder`, which is made if needed.

        Raises:
            ValueError: the metadata contradicts itself.
        """
        if fault := next(metadata.faults(), None):
            raise ValueError(f"the dump's metadata makes no sense: {fault}")
        self._folder = folder
        self._metadata = metadata
        self._last_tick: dict[tuple[int, int, int], int] = {}
        self._records = 0
        self._bytes = 0
        self._digest = hashlib.sha256()
        self._stack = contextlib.ExitStack()
        self._open = False

    def __enter__(self) -> Self:
        """Open the dump.

        Raises:
            UserError: the folder already holds a dump, whole or interrupted, or cannot be written to.
        """
        refuse_existing_dump(self._folder)
        self._file = self._stack.enter_context(atomic_file(self._folder / RECORDS_FILE))
        self._open = True
        self._append(b"[")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._open = False
            self._stack.__exit__(kind, error, traceback)
        elif self._open:
            # The stack removes the temporary file should closing fail.
            with self._stack:
                self.close([])

    def write(self, records: Records) -> None:
        """Append records; the ticks of each life must rise from one record to the next, over all calls.

        Raises:
            UserError: a value is NaN or infinite (nothing of this batch is written), or the disk is full.
            ValueError: the records do not have the shape that the metadata declares, or a life's ticks do not rise.
        """
        if not self._open:
            raise ValueError("the dump is not open for writing")
        _check_shapes(records, self._metadata)
        _check_values(records, self._metadata)
        self._count(records)
        for line in _lines(records, self._metadata):
            self._append((b",\n" if self._records else b"\n") + line)
            self._records += 1

    def close(self, episodes: Sequence[dict[str, Any]]) -> None:
        """Finish the dump; `episodes` tells each episode's number, seed and map, known only once all were played.

        Raises:
            UserError: a dump has appeared in the folder meanwhile, or the disk is full.
        """
        if not self._open:
            raise ValueError("the dump is not open for writing")
        self._append(b"\n]\n")
        refuse_existing_dump(self._folder)
        self._open = False
        self._stack.close()
        proof = DumpFile(self._digest.hexdigest(), self._bytes)
        metadata = replace(
            self._metadata,
            episodes=list(episodes),
            records=self._records,
            lives=len(self._last_tick),
            files={RECORDS_FILE: proof},
        )
        write_json(self._folder / METADATA_FILE, metadata.to_json())

    def _append(self, content: bytes) -> None:
        self._file.write(content)
        self._digest.update(content)
        self._bytes += len(content)

    def _count(self, records: Records) -> None:
        lives = zip(records.env_id.tolist(), records.agent_id.tolist(), records.episode.tolist(), strict=True)
        for life, tick in zip(lives, records.tick.tolist(), strict=True):
            if tick <= self._last_tick.get(life, tick - 1):
                raise ValueError(f"tick {tick} of life {life} does not come after tick {self._last_tick[life]}")
            self._last_tick[life] = tick


def refuse_existing_dump(folder: Path) -> None:
    """Raise `UserError` where a folder already holds a dump, whole or interrupted."""
    for name in (METADATA_FILE, RECORDS_FILE):
        if (folder / name).exists():
            raise UserError(f"{folder} already holds a dump ({name}): choose another or delete it first")


def _check_shapes(records: Records, metadata: DumpMetadata) -> None:
    count, heads = len(records), len(metadata.action_heads)
    found = {layer: values.shape for layer, values in records.activations.items()}
    expected: dict[str, tuple[int, ...]] = {layer: (count, units) for layer, units in metadata.layers.items()}
    for name in ("step", "env_id", "agent_id", "episode", "tick", "reward", "value"):
        found[name], expected[name] = getattr(records, name).shape, (count,)
    for name in ("action", "log_probability"):
        found[name], expected[name] = getattr(records, name).shape, (count, heads)
    found["tile"], expected["tile"] = records.tile.shape, (count, TILES_IN_VIEW, len(TILE_COLUMNS))
    for name, columns in (("entity", metadata.entity_columns), ("inventory", metadata.inventory_columns)):
        rows: RaggedRows = getattr(records, name)
        found[name], expected[name] = (len(rows.offsets) - 1, rows.values.shape[1]), (count, len(columns))
    if found != expected:
        wrong = {name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)}
        name = sorted(wrong)[0]
        raise ValueError(f"{name} has shape {found.get(name)}, the metadata declares {expected.get(name)}")
    if not records.tile.dtype == records.entity.values.dtype == records.inventory.values.dtype == np.int16:
        raise ValueError("tile, entity and inventory must be int16")


def _check_values(records: Records, metadata: DumpMetadata) -> None:
    columns = {name: getattr(records, name)[:, None] for name in ("reward", "value")}
    columns |= {"log_probability": records.log_probability, **records.activations}
    for name, values in columns.items():
        if not (finite := np.isfinite(values).all(axis=1)).all():
            i = int(np.argmin(finite))
            raise UserError(
                f"{name} of agent {records.agent_id[i]} at step {records.step[i]} is NaN or infinite: the policy or "
                "its reward has diverged, so its activations mean nothing; extract from an earlier checkpoint"
            )
    sizes = np.array([head.size for head in metadata.action_heads])
    if ((records.action < 0) | (records.action >= sizes)).any():
        raise ValueError("an action lies outside its head")


def _lines(records: Records, metadata: DumpMetadata) -> list[bytes]:
    """Return the JSON of each record, (B,) of bytes without line ends."""
    main = metadata.main_layer
    names = ("step", "env_id", "agent_id", "episode", "tick")
    numbers = np.stack([getattr(records, name) for name in names], axis=1).tolist()
    # orjson reads the memory of C-contiguous arrays only, and a record's rows are contiguous once the batch is.
    floats = {layer: np.ascontiguousarray(values, np.float32) for layer, values in records.activations.items()}
    further = [layer for layer in floats if layer != main]
    reward, value = records.reward.astype(np.float32), records.value.astype(np.float32)
    action = np.ascontiguousarray(records.action, np.int64)
    log_probability = np.ascontiguousarray(records.log_probability, np.float32)
    tile = np.ascontiguousarray(records.tile, np.int16)
    rows = {"Entity": records.entity, "Inventory": records.inventory}
    values = {name: np.ascontiguousarray(table.values, np.int16) for name, table in rows.items()}
    offsets = {name: table.offsets.tolist() for name, table in rows.items()}
    lines = []
    for i, row in enumerate(numbers):
        record: dict[str, Any] = {
            **dict(zip(names, row, strict=True)),
            "policy": metadata.policy,
            "reward": reward[i],
            "value": value[i],
            "action": action[i],
            "log_probability": log_probability[i],
            "activation": floats[main][i],
        }
        if further:
            record["activations"] = {layer: floats[layer][i] for layer in further}
        used = {name: values[name][offsets[name][i] : offsets[name][i + 1]] for name in rows}
        record["observation"] = {"Tile": tile[i], **used, "CurrentTick": [row[-1]]}
        lines.append(orjson.dumps(record, option=_JSON_OPTIONS))
    return lines
