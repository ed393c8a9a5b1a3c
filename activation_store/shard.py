"""Write one episode in either format: its lives, its size and hash, and the error from rounding."""

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from activation_store.formats.json_format import JsonShard
from activation_store.formats.parquet_format import ParquetShard
from activation_store.records import Records
from activation_store.schema import DumpFile, DumpMetadata, PrecisionError
from common.files import HashedFile, atomic_file, full_disk_named
from common.user_error import UserError


class ShardWriter:
    """Writes the records of one episode to a file that gets its final name once it is complete."""

    def __init__(self, path: Path, metadata: DumpMetadata, episode: int) -> None:
        self._path = path
        self._metadata = metadata
        self._episode = episode
        self._lives: dict[tuple[int, int], tuple[int, int]] = {}  # slot and agent -> number of the life, last tick
        self._records = 0
        self._errors: dict[str, PrecisionError] = {}
        self._stack = contextlib.ExitStack()
        self._file = HashedFile(self._stack.enter_context(atomic_file(path)))
        self._format = (ParquetShard if metadata.format == "parquet" else JsonShard)(self._file, metadata)

    @property
    def records(self) -> int:
        """The number of records written so far."""
        return self._records

    def write(self, records: Records) -> None:
        """Append records of this episode (ValueError: the ticks of a life do not increase)."""
        life = self._number_lives(records)
        if "life" not in records.columns:
            records = replace(records, columns={**records.columns, "life": life})
        if self._metadata.precision == "float16":
            self._measure(records)
        with full_disk_named(self._path):
            self._format.write(records)
        self._records += len(records)

    def finish(self) -> tuple[DumpFile, dict[str, PrecisionError]]:
        """Move the file into place; return its size, hash and counts, and the rounding error by layer."""
        with self._stack:
            try:
                self._format.finish()
            except BaseException:
                self._format.give_up()
                raise
        proof = DumpFile(self._file.sha256, self._file.bytes, self._records, len(self._lives), self._episode)
        return proof, self._errors

    def give_up(self) -> None:
        """Remove everything written so far."""
        self._format.give_up()
        with contextlib.suppress(_GivenUp, UserError), self._stack:
            raise _GivenUp  # closing a file on a full disk may fail again: the first failure has already been reported

    def _number_lives(self, records: Records) -> np.ndarray:
        """Return the number of each record's life in the episode, (B,) int32, in order of first records."""
        numbers = np.empty(len(records), np.int32)
        slots, agents, ticks = (getattr(records, name).tolist() for name in ("env_id", "agent_id", "tick"))
        for i, (slot, agent, tick) in enumerate(zip(slots, agents, ticks, strict=True)):
            number, last = self._lives.get((slot, agent), (len(self._lives), tick - 1))
            if tick <= last:
                raise ValueError(f"tick {tick} of agent {agent} in slot {slot} does not come after tick {last}")
            self._lives[slot, agent] = number, tick
            numbers[i] = number
        return numbers

    def _measure(self, records: Records) -> None:
        for layer, values in records.activations.items():
            exact = values.astype(np.float64)
            absolute = np.abs(exact - values.astype(np.float16))
            relative = np.divide(absolute, np.abs(exact), out=np.zeros_like(exact), where=exact != 0)
            error = PrecisionError(float(absolute.max(initial=0)), float(relative.max(initial=0)))
            self._errors[layer] = error.or_larger(self._errors.get(layer, error))


class _GivenUp(Exception):
    """Raised to make `atomic_file` remove what was written."""
