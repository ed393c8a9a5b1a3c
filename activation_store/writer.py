"""Write a dump of activations: one shard per episode, the metadata last."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from activation_store.columns import COLUMNS
from activation_store.formats.json_format import JsonShard, join_shards
from activation_store.formats.parquet_format import ParquetShard
from activation_store.journal import (
    JOURNAL_FILE,
    Journal,
    StoredEpisode,
    remove_leftovers,
    remove_scaffolding,
    resume_journal,
    shard_path,
    shards_in,
)
from activation_store.records import Records
from activation_store.schema import (
    IDENTITY,
    MAY_BE_UNRECORDED,
    METADATA_FILE,
    RECORDS_FILE,
    ROWS_AT_MOST,
    TILE_COLUMNS,
    TILES_IN_VIEW,
    DumpFile,
    DumpMetadata,
    PrecisionError,
    shard_name,
)
from common.files import HashedFile, atomic_file, full_disk_named, locked_folder, make_folder, write_json
from common.user_error import UserError


class ShardWriter:
    """Writes the records of one episode to a file that gets its final name once it is complete.

    Attributes:
        records: number of them so far.
    """

    def __init__(self, path: Path, metadata: DumpMetadata, episode: int) -> None:
        self._path = path
        self._metadata = metadata
        self._episode = episode
        self._lives: dict[tuple[int, int], tuple[int, int]] = {}  # slot and agent -> number of the life, last tick
        self.records = 0
        self._errors: dict[str, PrecisionError] = {}
        self._stack = contextlib.ExitStack()
        self._file = HashedFile(self._stack.enter_context(atomic_file(path)))
        self._format = (ParquetShard if metadata.format == "parquet" else JsonShard)(self._file, metadata)

    def write(self, records: Records) -> None:
        """Append records of this episode (ValueError: the ticks of a life do not increase)."""
        life = self._number_lives(records)
        if "life" not in records.columns:
            records = replace(records, columns={**records.columns, "life": life})
        if self._metadata.precision == "float16":
            self._measure(records)
        with full_disk_named(self._path):
            self._format.write(records)
        self.records += len(records)

    def finish(self) -> tuple[DumpFile, dict[str, PrecisionError]]:
        """Move the file into place; return its size, hash and counts, and the rounding error by layer."""
        with self._stack:
            try:
                self._format.finish()
            except BaseException:
                self._format.give_up()
                raise
        proof = DumpFile(self._file.sha256, self._file.bytes, self.records, len(self._lives), self._episode)
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


State = Literal["absent", "unfinished", "whole"]
DERIVED = ("row", "col", "life")
"""Optional columns that the writer computes if the records lack them."""


def state_of(folder: Path) -> State:
    """Return whether a folder holds no dump, an unfinished one of a killed or failed run, or a complete one."""
    if (folder / METADATA_FILE).exists():
        return "whole"
    return "unfinished" if (folder / JOURNAL_FILE).exists() else "absent"


def refuse_existing_dump(folder: Path, resume: bool = False) -> None:
    """Raise `UserError` if a folder already holds a dump, complete or unfinished; with `resume`, only if complete."""
    if state_of(folder) == "unfinished":
        if resume:
            return
        raise UserError(f"{folder} already holds a dump, an unfinished one: delete it first, or resume its extraction")
    for path in (folder / METADATA_FILE, folder / RECORDS_FILE, *shards_in(folder)):
        if path.exists():
            raise UserError(f"{folder} already holds a dump ({path.name}): choose another or delete it first")


class DumpWriter:
    """Writes one dump, as a context manager: leaving the block finishes it.

    Each episode goes to its own file, which gets its final name once complete and is then recorded in a journal.
    `metadata.json` is written last, so a folder without it is never mistaken for a dump. If a run ends early, the
    recorded episodes are kept, and a writer with `resume` continues with the others; the result is the same as that of
    an uninterrupted run. Memory holds one batch and, for each unfinished episode, one row group of records and the
    last tick of each life, regardless of the number of records.
    """

    def __init__(self, folder: Path, metadata: DumpMetadata, *, resume: bool = False) -> None:
        """Prepare to write into `folder`, which is created if needed.

        Args:
            metadata: without counts, files and episodes; `row`, `col` and `life` are added to its columns.
            resume: continue an unfinished dump, if there is one.

        Raises:
            ValueError: the metadata contradicts itself.
        """
        if fault := next(metadata.faults(), None):
            raise ValueError(f"the dump's metadata makes no sense: {fault}")
        derived = {name: COLUMNS[name] for name in DERIVED}
        self._metadata = replace(metadata, columns={**metadata.columns, **derived})
        self._folder = folder
        self._resume = resume
        self._shards: dict[int, ShardWriter] = {}
        self._stack = contextlib.ExitStack()
        self._open = False

    @property
    def stored(self) -> dict[int, dict[str, Any] | None]:
        """The episodes that are completely stored, and their descriptions."""
        return {stored.episode: stored.description for stored in self._journal.stored}

    @property
    def stored_size(self) -> tuple[int, int]:
        """The number of records in completely stored episodes, and the bytes that they take."""
        shards = [stored.shard for stored in self._journal.stored if stored.shard]
        return sum(shard.records for shard in shards), sum(shard.bytes for shard in shards)

    def __enter__(self) -> Self:
        """Open the dump.

        Raises:
            UserError: the folder already holds a dump that is complete, or unfinished while `resume` is off; it was
                started with other settings; another process is writing to it; it cannot be written to.
        """
        make_folder(self._folder)
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked_folder(self._folder))
            self._journal = self._begin()
            self._stack = stack.pop_all()
        self._open = True
        return self

    def _begin(self) -> Journal:
        state = state_of(self._folder)
        if state == "whole" and (self._folder / JOURNAL_FILE).exists():
            remove_scaffolding(self._folder)
        if not self._resume:
            refuse_existing_dump(self._folder)
        journal = Journal(self._metadata.to_json())
        if state == "unfinished":
            journal = resume_journal(self._folder, self._metadata)
        else:
            refuse_existing_dump(self._folder)
        journal.write(self._folder)
        remove_leftovers(self._folder, self._metadata, journal)
        return journal

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._open:
                self.close()
        finally:
            self._open = False
            self._give_up_shards()
            if not self._journal.stored and state_of(self._folder) == "unfinished":
                (self._folder / JOURNAL_FILE).unlink(missing_ok=True)
            self._stack.close()

    def write(self, records: Records) -> None:
        """Append records of any episodes not stored yet; the ticks of each life must increase across all calls.

        Raises:
            UserError: a value is NaN, infinite or beyond the precision (nothing of this batch is written), or the disk
                is full.
            ValueError: the records do not have the shape that the metadata declares, a life's ticks do not increase, or
                an episode is already stored.
        """
        self._check_open()
        check_shapes(records, self._metadata, may_lack=DERIVED)
        check_values(records, self._metadata)
        episodes = np.unique(records.episode).tolist()
        if again := self.stored.keys() & set(episodes):
            raise ValueError(f"episode {min(again)} is already stored")
        for episode in episodes:
            part = records if len(episodes) == 1 else records.take(records.episode == episode)
            if episode not in self._shards:
                path = shard_path(self._folder, self._metadata, episode)
                self._shards[episode] = ShardWriter(path, self._metadata, episode)
            self._shards[episode].write(_with_place(part))

    def finish_episode(self, episode: int, description: dict[str, Any] | None = None) -> None:
        """Record that an episode is complete; from here on its records survive a crash.

        Args:
            description: its entry in the metadata: number, seed, map and so on.

        Raises:
            UserError: the disk is full.
            ValueError: the episode is already stored.
        """
        self._check_open()
        if episode in self.stored:
            raise ValueError(f"episode {episode} is already stored")
        shard = self._shards.pop(episode, None)
        proof, errors = shard.finish() if shard else (None, {})
        stored = [*self._journal.stored, StoredEpisode(episode, description, proof, errors)]
        self._journal = replace(self._journal, stored=sorted(stored, key=lambda one: one.episode))
        self._journal.write(self._folder)

    def drop_unfinished(self, episodes: Iterable[int]) -> int:
        """Remove what was written of these episodes, except of stored ones; return the number of records removed."""
        self._check_open()
        dropped = [shard for episode in episodes if (shard := self._shards.pop(episode, None))]
        for shard in dropped:
            shard.give_up()
        return sum(shard.records for shard in dropped)

    def close(self, episodes: Sequence[dict[str, Any]] = ()) -> None:
        """Finish the dump and every unfinished episode; `episodes` describes those, identified by their `episode`.

        Raises:
            UserError: a dump has appeared in the folder in the meantime, or the disk is full.
        """
        self._check_open()
        described = {description["episode"]: description for description in episodes}
        for episode in sorted({*self._shards, *described} - self.stored.keys()):
            self.finish_episode(episode, described.get(episode))
        if (self._folder / METADATA_FILE).exists() or (self._folder / RECORDS_FILE).exists():
            raise UserError(f"{self._folder} already holds a dump, created in the meantime: choose another folder")
        self._open = False
        files = self._join()
        metadata = replace(
            self._metadata,
            episodes=[stored.description for stored in self._journal.stored if stored.description is not None],
            records=sum(file.records for file in files.values()),
            lives=sum(file.lives for file in files.values()),
            files=files,
            precision_error=self._precision_error(),
        )
        write_json(self._folder / METADATA_FILE, metadata.to_json())
        remove_scaffolding(self._folder)

    def _join(self) -> dict[str, DumpFile]:
        shards = {stored.episode: stored.shard for stored in self._journal.stored if stored.shard}
        if self._metadata.format == "parquet":
            return {shard_name(episode): proof for episode, proof in shards.items()}
        parts = [(shard_path(self._folder, self._metadata, episode), proof) for episode, proof in shards.items()]
        return {RECORDS_FILE: join_shards(parts, self._folder / RECORDS_FILE)}

    def _precision_error(self) -> dict[str, Any]:
        errors = dict(self._metadata.precision_error)
        for stored in self._journal.stored:
            for layer, error in stored.precision_error.items():
                errors[layer] = error.or_larger(errors.get(layer, error))
        return errors

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the dump is not open for writing")

    def _give_up_shards(self) -> None:
        for shard in self._shards.values():
            shard.give_up()
        self._shards = {}


def _with_place(records: Records) -> Records:
    """Add the agent's row and column, read from the middle of its view, if they are missing."""
    centre = records.tile[:, TILES_IN_VIEW // 2]
    return replace(records, columns={"row": centre[:, 0], "col": centre[:, 1], **records.columns})
