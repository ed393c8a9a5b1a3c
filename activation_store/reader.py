"""Read a dump of activations in either format: verify it, then stream it, so that memory holds only the selection."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np

from activation_store.formats.json_format import read_json_batches, read_json_identity
from activation_store.formats.parquet_format import read_shard_batches, read_shard_identity
from activation_store.records import Records
from activation_store.schema import (
    IDENTITY,
    JOURNAL_FILE,
    METADATA_FILE,
    RECORDS_FILE,
    TILE_COLUMNS,
    TILES_IN_VIEW,
    DumpFile,
    DumpMetadata,
)
from activation_store.selection import ALL_RECORDS, Gathering, Selection, Subsample, select
from common.argument_checks import did_you_mean
from common.checked_json import read_small_json
from common.files import PARTIAL_SUFFIX, sha256, visible
from common.user_error import UserError

Progress = Callable[[float], None]
"""Called with the share of the work done, from 0 to 1."""

State = tuple[int, int, int, int]
"""Of a file: its device, number, bytes and time of the last change."""
_SHARE_OF_VERIFYING = 0.1
_LARGEST_EXPANSION = 1000
"""Real dumps compress to about half their size; a far higher ratio means a file made to exhaust memory."""


def read_metadata(folder: Path) -> DumpMetadata:
    """Read a dump's metadata; this is cheap and does not verify the records.

    Raises:
        UserError: the folder is missing, is not a dump, was left by an interrupted extraction or has no records; its
            metadata is damaged or of an unknown schema version; or a file that it lists is missing or outside.
    """
    if not folder.is_dir():
        state = "is not a folder" if folder.exists() else "does not exist"
        others = [path.parent.name for path in visible(folder.parent, f"*/{METADATA_FILE}")]
        hint = did_you_mean(folder.name, others)
        raise UserError(f"{folder} {state}: give the folder that extract_activations.py wrote{hint}")
    path = folder / METADATA_FILE
    if not path.exists():
        raise UserError(_why_no_metadata(folder))
    _check_inside(path, folder)
    metadata = DumpMetadata.from_json(read_small_json(path), str(path))
    for name, proof in metadata.files.items():
        if not (folder / name).is_file():
            raise UserError(f"{folder} lacks {name}, which its metadata lists: copy or extract it again")
        _check_inside(folder / name, folder)
        _check_plausible(folder / name, metadata, proof)
    if metadata.records == 0:
        raise UserError(f"{folder} is an empty dump (0 records): extract it again with more episodes")
    return metadata


def read_dump(
    folder: Path,
    *,
    subsample: Subsample = ALL_RECORDS,
    layers: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    leave_out: Iterable[str] = (),
    episodes: Iterable[int] | None = None,
    lives: Iterable[Sequence[int]] | None = None,
    progress: Progress | None = None,
) -> Records:
    """Read a dump's records after verifying its files by size and SHA-256.

    In a parquet dump, files of unselected episodes are not opened, and large columns are read only in row groups with
    a selected record.

    Args:
        subsample: which records of each life to keep, such as `Subsample(10)`, one in ten; all by default.
        leave_out: fields not to read: `tile`, `entity`, `inventory` and `tables` are returned without rows; `reward`,
            `value` and `log_probability` as NaN.
        lives: keep only these, each a slot, an agent and an episode; None for all.

    Raises:
        UserError: anything that `read_metadata` raises; the records are truncated, damaged, malformed or out of order;
            `subsample` is invalid; a layer or column is not in the dump; no record is selected.
    """
    metadata = read_metadata(folder)
    selection = select(
        folder, metadata, layers=layers, columns=columns, leave_out=leave_out, subsample=subsample,
        episodes=episodes, lives=lives,
    )  # fmt: skip
    gathering = Gathering(metadata, selection, selection.capacity(metadata))
    for batch in read_batches(folder, metadata, selection, progress):
        gathering.add(batch)
    if not gathering.size:
        raise UserError(f"{folder} holds none of the requested records (episodes, lives, subsample)")
    return gathering.finish()


def read_batches(
    folder: Path, metadata: DumpMetadata, selection: Selection, progress: Progress | None = None
) -> Iterator[Records]:
    """Yield the selected records in batches of at most a few thousand, in the order of writing.

    Raises:
        UserError: as `read_dump`.
    """
    report = progress or _ignore
    if metadata.format == "parquet":
        yield from _read_shards(folder, metadata, selection, report)
    else:
        verified = _verify_file(folder / RECORDS_FILE, metadata, lambda share: report(share * _SHARE_OF_VERIFYING))
        rest = 1 - _SHARE_OF_VERIFYING
        yield from read_json_batches(
            folder, metadata, selection, lambda share: report(_SHARE_OF_VERIFYING + share * rest)
        )
        _check_unchanged(folder / RECORDS_FILE, verified)
    report(1.0)


def read_episodes(
    folder: Path, metadata: DumpMetadata, selection: Selection, progress: Progress | None = None
) -> Iterator[Records]:
    """Yield the selected records of one episode after the other; of a JSON dump, which is small, of all at once.

    Raises:
        UserError: as `read_dump`.
    """
    waiting: list[Records] = []
    for batch in read_batches(folder, metadata, selection, progress):
        apart = metadata.format == "parquet" and waiting and len(batch)
        if apart and batch.episode[0] != waiting[-1].episode[-1]:
            yield Records.concatenate(waiting)
            waiting = []
        waiting += [batch] * (len(batch) > 0)
    if waiting:
        yield Records.concatenate(waiting)


def read_identity(folder: Path) -> dict[str, np.ndarray]:
    """Return the identity of every record: the columns of `IDENTITY`, (B,) int64 each; cheap in a parquet dump.

    Raises:
        UserError: as `read_dump`.
    """
    metadata = read_metadata(folder)
    if metadata.format == "json":
        _verify_file(folder / RECORDS_FILE, metadata, _ignore)
        return read_json_identity(folder, metadata)
    parts = []
    for name, proof in _shards(metadata):
        _verify_file(folder / name, metadata, _ignore)
        parts.append(read_shard_identity(folder / name, metadata, proof))
    return {name: np.concatenate([part[name] for part in parts]) for name in IDENTITY}


def _read_shards(folder: Path, metadata: DumpMetadata, selection: Selection, report: Progress) -> Iterator[Records]:
    """Yield the records of a parquet dump, each shard once it is verified."""
    wanted = {
        name: proof
        for name, proof in _shards(metadata)
        if proof.episode is not None and selection.wants_episode(proof.episode)
    }
    total, before = sum(proof.records for proof in wanted.values()), 0
    for path, verified in _proved([folder / name for name in wanted], metadata):
        proof = wanted[path.name]
        for batch, passed in read_shard_batches(path, metadata, proof, selection):
            yield batch
            report((before + passed) / total)
        _check_unchanged(path, verified)
        before += proof.records


_AHEAD = 2
"""Shards that are verified before they are read."""


def _proved(paths: Sequence[Path], metadata: DumpMetadata) -> Iterator[tuple[Path, State]]:
    """Yield each path once its hash is verified, and its state then.

    While one is in use, two threads verify the next two: reading takes less time than hashing.
    A file verified much earlier would no longer be in the operating system's cache and be read from disk twice.
    """
    left = iter(paths)
    with ThreadPoolExecutor(_AHEAD) as threads:

        def begun(path: Path) -> tuple[Path, Future[State]]:
            return path, threads.submit(_verify_file, path, metadata, _ignore)

        proofs = deque(map(begun, islice(left, _AHEAD)))
        while proofs:
            path, proof = proofs.popleft()
            verified = proof.result()
            proofs.extend(map(begun, islice(left, 1)))
            yield path, verified


def _shards(metadata: DumpMetadata) -> list[tuple[str, DumpFile]]:
    return sorted(metadata.files.items(), key=lambda item: item[1].episode or 0)


def _verify_file(path: Path, metadata: DumpMetadata, report: Progress) -> State:
    """Return the state that a file was in when its size and hash were those of the metadata."""
    proof = metadata.files[path.name]
    try:
        state = _state(path)
        size = state[2]
        if size < proof.bytes:
            raise UserError(f"{path} is truncated: {size} of {proof.bytes} bytes are left; copy or extract it again")
        if size > proof.bytes:
            raise UserError(f"{path} has {size} bytes where {proof.bytes} were written: copy or extract it again")
        digest = sha256(path, lambda done: report(done / size))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if digest != proof.sha256:
        raise UserError(f"{path} does not match its SHA-256: it is damaged or was edited; copy or extract it again")
    return state


def _check_unchanged(path: Path, verified: State) -> None:
    """Refuse a file that something else has replaced or written to since it was verified."""
    if _state(path) != verified:
        raise UserError(f"{path} changed while it was read: wait until it is written, and repeat the command")


def _state(path: Path) -> State:
    result = path.stat()
    return result.st_dev, result.st_ino, result.st_size, result.st_mtime_ns


def _check_plausible(path: Path, metadata: DumpMetadata, proof: DumpFile) -> None:
    """Refuse counts that the file is too small for, since they decide how much memory is reserved."""
    size = path.stat().st_size
    numbers = sum(metadata.layers.values()) + TILES_IN_VIEW * len(TILE_COLUMNS)
    numbers += sum(column.width or 1 for column in metadata.columns.values()) + len(metadata.action_heads)
    # In JSON each number takes two bytes or more.
    fits = proof.records * numbers * 2 <= (size if metadata.format == "json" else size * _LARGEST_EXPANSION)
    if not fits and size >= proof.bytes:
        raise UserError(
            f"{path} is too small for the {proof.records} records that its metadata counts: copy or extract it again"
        )


def _check_inside(path: Path, folder: Path) -> None:
    if path.resolve().parent != folder.resolve():
        raise UserError(f"{path} is a link that leads out of the folder: put the file itself there")


def _why_no_metadata(folder: Path) -> str:
    if (folder / JOURNAL_FILE).exists():
        return f"{folder} is an unfinished dump: its extraction was interrupted; resume it, or delete it, extract again"
    if any(folder.glob(f".*{PARTIAL_SUFFIX}")):
        return f"{folder} lacks {METADATA_FILE}: its extraction was interrupted; delete it, extract again"
    if (folder / RECORDS_FILE).exists() or visible(folder, "*.json*"):
        return (
            f"{folder} lacks {METADATA_FILE}: its extraction was interrupted (delete it, extract again), or the "
            f"original tools made it (import it: python -m activation_store convert {folder} OUT)"
        )
    if inside := [path.parent.name for path in visible(folder, f"*/{METADATA_FILE}")]:
        return f"{folder} holds several dumps, one folder each: give one of them ({', '.join(inside)[:200]})"
    return f"{folder} is not an activation dump: it holds no {METADATA_FILE}"


def _ignore(share: float) -> None:
    """Ignore progress."""
