"""Checks of records before they are written."""

from collections.abc import Iterable

import numpy as np

from activation_store.records import Records
from activation_store.schema import (
    IDENTITY,
    MAY_BE_UNRECORDED,
    ROWS_AT_MOST,
    TILE_COLUMNS,
    TILES_IN_VIEW,
    DumpMetadata,
)
from common.user_error import UserError

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
