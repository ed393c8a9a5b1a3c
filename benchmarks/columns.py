"""Bytes and speed of the dump's columns beside Arrow's own way to store vectors, on the records of a dump.

    python -m benchmarks.columns activation_data/start_kit_10M

A dump keeps a vector as one column for each byte of its numbers. Arrow's own way is a list of fixed size with the
encoding BYTE_STREAM_SPLIT, which any reader of Parquet understands. Both are written with the same compression, one row
group of records at a time, and read back, alternately, in processor time on one thread. Hashing the file, which every
reading begins with, is measured beside them.
"""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tyro

from activation_store.formats.parquet_format import fixed_size, join_planes, plane_bytes, split_planes
from activation_store.reader import read_batches, read_metadata
from activation_store.selection import select
from benchmarks.measure import seconds_of, spread
from common import command_line
from common.user_error import UserError

_LEVEL = 1
"""Of zstd, as for the floats of a dump."""


@dataclass(frozen=True)
class Arguments:
    """Arguments of benchmarks/columns.py."""

    dump: tyro.conf.Positional[Path]
    """Dump whose first records are written again."""
    repetitions: int = 7
    """How often each way writes and reads every layer, at least 1."""


@dataclass(frozen=True)
class Way:
    """A way to store vectors, (B, width)."""

    to_table: Callable[[np.ndarray], pa.Table]
    from_table: Callable[[pa.Table, np.dtype], np.ndarray]
    split: bool  # whether BYTE_STREAM_SPLIT is used

    def write(self, vectors: np.ndarray) -> bytes:
        """Return the bytes of a Parquet file."""
        file = io.BytesIO()
        pq.write_table(
            self.to_table(vectors), file, compression="zstd", compression_level=_LEVEL, use_dictionary=False,
            use_byte_stream_split=self.split, write_statistics=False,
        )  # fmt: skip
        return file.getvalue()

    def read(self, written: bytes, dtype: np.dtype) -> np.ndarray:
        """Return the vectors of a file."""
        return self.from_table(pq.ParquetFile(io.BytesIO(written)).read(use_threads=False), dtype)


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    if arguments.repetitions < 1:
        raise UserError("--repetitions must be at least 1")
    metadata = read_metadata(arguments.dump)
    batch = next(read_batches(arguments.dump, metadata, select(arguments.dump, metadata, columns=[])))
    for dtype in (np.dtype(np.float32), np.dtype(np.float16)):
        measured = [ratios(layer.astype(dtype), arguments.repetitions) for layer in batch.activations.values()]
        for name in measured[0]:
            print(f"{dtype}, lists / planes, {name:17} {spread([ratio[name] for ratio in measured], '.2f')}")


def ratios(vectors: np.ndarray, repetitions: int) -> dict[str, float]:
    """Return bytes and processor seconds of lists divided by those of planes."""
    costs: list[dict[str, float]] = []
    for way in (PLANES, LISTS):
        written = way.write(vectors)
        if not np.array_equal(way.read(written, vectors.dtype), vectors):
            raise RuntimeError("what was read is not what was written")
        costs.append({"bytes": len(written)})
    for name, work in (("writing", _write), ("reading", _read), ("reading and hash", _read_and_hash)):
        times = [[seconds_of(work(way, vectors)) for way in (PLANES, LISTS)] for _ in range(repetitions)]
        for cost, seconds in zip(costs, zip(*times, strict=True), strict=True):
            cost[name] = median(seconds)
    return {name: costs[1][name] / costs[0][name] for name in costs[0]}


def _write(way: Way, vectors: np.ndarray) -> Callable[[], object]:
    return lambda: way.write(vectors)


def _read(way: Way, vectors: np.ndarray) -> Callable[[], object]:
    written = way.write(vectors)
    return lambda: way.read(written, vectors.dtype)


def _read_and_hash(way: Way, vectors: np.ndarray) -> Callable[[], object]:
    written = way.write(vectors)
    return lambda: (hashlib.sha256(written).digest(), way.read(written, vectors.dtype))


def _planes(vectors: np.ndarray) -> pa.Table:
    return pa.table({f"vector#{i}": fixed_size(plane) for i, plane in enumerate(split_planes(vectors))})


def _of_planes(table: pa.Table, dtype: np.dtype) -> np.ndarray:
    return join_planes([plane_bytes(column.combine_chunks()) for column in table.columns], dtype)


def _lists(vectors: np.ndarray) -> pa.Table:
    element = pa.field("element", pa.from_numpy_dtype(vectors.dtype), nullable=False)
    kind = pa.list_(element, vectors.shape[1])
    array = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=kind)
    return pa.Table.from_arrays([array], schema=pa.schema([pa.field("vector", kind, nullable=False)]))


def _of_lists(table: pa.Table, _: np.dtype) -> np.ndarray:
    column = table.column("vector").combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


PLANES, LISTS = Way(_planes, _of_planes, False), Way(_lists, _of_lists, True)

if __name__ == "__main__":
    command_line.run(main)
