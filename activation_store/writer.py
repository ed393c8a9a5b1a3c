"""Write a dump of activations: one shard per episode, a journal of complete episodes, the metadata last.

The journal holds the metadata that the dump was begun with, and which episodes are completely stored. It is written
atomically before the first record and after each episode, and removed once `metadata.json` exists. Anything else in the
folder of an unfinished dump is a leftover.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from pydantic import ConfigDict

from activation_store.columns import COLUMNS
from activation_store.formats.json_format import join_shards, write_lines
from activation_store.formats.parquet_format import parquet_shard
from activation_store.records import Records
from activation_store.schema import (
    JOURNAL_FILE,
    METADATA_FILE,
    RECORDS_FILE,
    TILES_IN_VIEW,
    DumpFile,
    DumpMetadata,
    PrecisionError,
    check_shapes,
    check_values,
    shard_name,
)
from common.checked_json import in_shape, read_small_json, with_checksum, without_checksum
from common.files import (
    PARTIAL_SUFFIX,
    HashedFile,
    atomic_file,
    full_disk_named,
    locked_folder,
    make_folder,
    sha256,
    write_json,
)
from common.user_error import UserError

_JSON_SHARDS, _PARQUET_SHARDS = "episode-*.jsonlines", "episode-*.parquet"
_STRICT = ConfigDict(strict=True, extra="forbid")

State = Literal["absent", "unfinished", "whole"]
DERIVED = ("row", "col", "life")
"""Optional columns that the writer computes if the records lack them."""


@dataclass(frozen=True)
class StoredEpisode:
    """An episode whose records are all on disk."""

    __pydantic_config__ = _STRICT

    episode: int
    description: dict[str, Any] | None  # its entry in the dump's metadata; None for none
    shard: DumpFile | None  # size and hash of its file; None if it has no records and therefore no file
    precision_error: dict[str, PrecisionError]  # error from rounding its activations, by layer

    def is_whole(self, path: Path) -> bool:
        """Return whether a path is its file, unchanged."""
        if self.shard is None:
            return True
        return path.is_file() and path.stat().st_size == self.shard.bytes and sha256(path) == self.shard.sha256


@dataclass(frozen=True)
class Journal:
    """The metadata that the dump was started with, without counts, and the episodes stored so far."""

    __pydantic_config__ = _STRICT

    begun_with: dict[str, Any]
    stored: list[StoredEpisode] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write the journal atomically."""
        write_json(folder / JOURNAL_FILE, with_checksum(asdict(self)))


def read_journal(folder: Path) -> Journal:
    """Read the journal of an unfinished dump (UserError: it is missing or damaged)."""
    path = folder / JOURNAL_FILE
    content = read_small_json(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: delete {folder} and extract it again")
    complaint = f"{path} is damaged or of another version"
    return in_shape(Journal, without_checksum(content, str(path)), complaint, f"delete {folder} and extract it again")


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
    for path in (folder / METADATA_FILE, folder / RECORDS_FILE, *_shards_in(folder)):
        if path.exists():
            raise UserError(f"{folder} already holds a dump ({path.name}): choose another or delete it first")


def _shards_in(folder: Path) -> set[Path]:
    return {path for pattern in (_JSON_SHARDS, _PARQUET_SHARDS) for path in folder.glob(pattern)}


def _temporary_files(folder: Path) -> list[Path]:
    """List the temporary files of this package that `atomic_file` leaves behind when its process is killed."""
    names = (RECORDS_FILE, METADATA_FILE, JOURNAL_FILE, _JSON_SHARDS, _PARQUET_SHARDS)
    return [path for name in names for path in folder.glob(f".{name}.*{PARTIAL_SUFFIX}")]


def _remove_scaffolding(folder: Path) -> None:
    """Remove the files that only an unfinished dump needs, once `metadata.json` exists."""
    for path in (*folder.glob(_JSON_SHARDS), *_temporary_files(folder), folder / JOURNAL_FILE):
        path.unlink(missing_ok=True)


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
        self._append: Callable[[Records], None] = functools.partial(write_lines, self._file, metadata)
        if metadata.format == "parquet":
            self._append = self._stack.enter_context(parquet_shard(self._file, metadata))

    def write(self, records: Records) -> None:
        """Append records of this episode (ValueError: the ticks of a life do not increase)."""
        life = self._number_lives(records)
        if "life" not in records.columns:
            records = replace(records, columns={**records.columns, "life": life})
        if self._metadata.precision == "float16":
            for layer, values in records.activations.items():
                exact = values.astype(np.float64)
                absolute = np.abs(exact - values.astype(np.float16))
                relative = np.divide(absolute, np.abs(exact), out=np.zeros_like(exact), where=exact != 0)
                error = PrecisionError(float(absolute.max(initial=0)), float(relative.max(initial=0)))
                self._errors[layer] = error.or_larger(self._errors.get(layer, error))
        with full_disk_named(self._path):
            self._append(records)
        self.records += len(records)

    def finish(self) -> tuple[DumpFile, dict[str, PrecisionError]]:
        """Move the file into place; return its size, hash and counts, and the rounding error by layer."""
        self._stack.close()
        proof = DumpFile(self._file.sha256, self._file.bytes, self.records, len(self._lives), self._episode)
        return proof, self._errors

    def give_up(self) -> None:
        """Remove everything written so far."""
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


class _GivenUp(Exception):
    """Raised to make `atomic_file` remove what was written."""


class DumpWriter:
    """Writes one dump, as a context manager: leaving the block finishes it.

    Each episode goes to its own file, which gets its final name once complete and is then recorded in the journal.
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
                started with other settings; its journal is damaged; another process is writing to it; it cannot be
                written to.
        """
        make_folder(self._folder)
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked_folder(self._folder))
            self._journal = self._begin()
            self._stack = stack.pop_all()
        self._open = True
        return self

    def _begin(self) -> Journal:
        """Return the journal without episodes whose files have changed, and remove files that are not in it."""
        state, begun_with = state_of(self._folder), self._metadata.to_json()
        if state == "whole" and (self._folder / JOURNAL_FILE).exists():
            _remove_scaffolding(self._folder)
        refuse_existing_dump(self._folder, self._resume)
        journal = read_journal(self._folder) if state == "unfinished" else Journal(begun_with)
        for name, wanted in begun_with.items():
            if name != "checksum" and journal.begun_with.get(name) != wanted:
                raise UserError(
                    f"{self._folder} was started with different settings ({name}) than requested now: use the original "
                    "ones, or delete the folder and extract again"
                )
        kept = [stored for stored in journal.stored if stored.is_whole(self._shard_path(stored.episode))]
        journal = Journal(journal.begun_with, kept)
        journal.write(self._folder)
        known = {self._shard_path(stored.episode) for stored in kept if stored.shard}
        leftovers = {*(_shards_in(self._folder) - known), *_temporary_files(self._folder), self._folder / RECORDS_FILE}
        for path in leftovers:
            path.unlink(missing_ok=True)
        return journal

    def _shard_path(self, episode: int) -> Path:
        """Return the file of an episode's records while the dump is written; a parquet dump keeps it."""
        name = shard_name(episode)
        return self._folder / (name if self._metadata.format == "parquet" else f"{Path(name).stem}.jsonlines")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._open:
                self.close()
        finally:
            self._open = False
            for shard in self._shards.values():
                shard.give_up()
            self._shards = {}
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
                self._shards[episode] = ShardWriter(self._shard_path(episode), self._metadata, episode)
            centre = part.tile[:, TILES_IN_VIEW // 2]  # where the agent is
            columns = {"row": centre[:, 0], "col": centre[:, 1], **part.columns}
            self._shards[episode].write(replace(part, columns=columns))

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
        shards = {self._shard_path(stored.episode): stored.shard for stored in self._journal.stored if stored.shard}
        files = {path.name: proof for path, proof in shards.items()}
        if self._metadata.format == "json":
            files = {RECORDS_FILE: join_shards(shards, self._folder / RECORDS_FILE)}
        errors = dict(self._metadata.precision_error)
        for stored in self._journal.stored:
            for layer, error in stored.precision_error.items():
                errors[layer] = error.or_larger(errors.get(layer, error))
        metadata = replace(
            self._metadata,
            episodes=[stored.description for stored in self._journal.stored if stored.description is not None],
            records=sum(file.records for file in files.values()),
            lives=sum(file.lives for file in files.values()),
            files=files,
            precision_error=errors,
        )
        write_json(self._folder / METADATA_FILE, metadata.to_json())
        _remove_scaffolding(self._folder)

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the dump is not open for writing")
