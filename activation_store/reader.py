"""Read a dump of activations: proved whole first, then streamed, so that memory holds only the records kept."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson

from activation_store.files import PARTIAL_SUFFIX, read_json
from activation_store.record_columns import RecordColumns, RecordError
from activation_store.schema import (
    LIFE_KEY,
    METADATA_FILE,
    RECORDS_FILE,
    TILE_COLUMNS,
    TILES_IN_VIEW,
    DumpMetadata,
    Records,
)
from user_error import UserError

Progress = Callable[[float], None]
"""Called with the share of the work done, from 0 to 1."""

_BLOCK_BYTES = 1 << 20
_LINE_BYTES_AT_MOST = 1 << 24
_PROGRESS_EVERY = 1024
_SHARE_OF_VERIFYING = 0.1
_IDENTITY = (*LIFE_KEY, "tick")
# What the writer puts first in a line: enough to skip a record without parsing its hundreds of numbers.
_LINE_START = re.compile(
    rb'\{"step":\d+,"env_id":(\d{1,18}),"agent_id":(\d{1,18}),"episode":(\d{1,18}),"tick":(\d{1,18}),"'
)


def read_metadata(folder: Path) -> DumpMetadata:
    """Read what a dump says about itself; cheap, and it does not prove that the records are whole.

    Raises:
        UserError: the folder is missing, is no dump, was left by an interrupted extraction or holds no record, or its
            metadata is damaged or of an unknown schema version.
    """
    if not folder.is_dir():
        state = "is not a folder" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {state}: give the folder that extract_activations.py wrote")
    if not (folder / METADATA_FILE).exists():
        if (folder / RECORDS_FILE).exists() or any(folder.glob(f".*{PARTIAL_SUFFIX}")):
            raise UserError(f"{folder} lacks {METADATA_FILE}: its extraction was interrupted; delete it, extract again")
        raise UserError(f"{folder} is not an activation dump: it holds no {METADATA_FILE}")
    metadata = DumpMetadata.from_json(read_json(folder / METADATA_FILE), str(folder / METADATA_FILE))
    if set(metadata.files) != {RECORDS_FILE}:
        raise UserError(f"{folder / METADATA_FILE} lists {sorted(metadata.files)} where {RECORDS_FILE!r} should be")
    if not (folder / RECORDS_FILE).is_file():
        raise UserError(f"{folder} lacks {RECORDS_FILE}, which its metadata lists: copy or extract it again")
    if metadata.records == 0:
        raise UserError(f"{folder} is an empty dump (0 records): extract it again with more episodes")
    return metadata


def read_dump(
    folder: Path, *, subsample: int = 1, layers: Sequence[str] | None = None, progress: Progress | None = None
) -> Records:
    """Read a dump's records, after proving by size and SHA-256 that they are what was written.

    Args:
        subsample: keep the first record of each life and every so many-th after it, in order of ticks.
        layers: the layers to keep; all of them where None.
        progress: told the share of the work done.

    Raises:
        UserError: anything that `read_metadata` raises; the records are truncated, damaged, malformed or out of order;
            `subsample` is below 1; a layer is not in the dump.
    """
    report = progress or _ignore
    metadata = read_metadata(folder)
    if subsample < 1:
        raise UserError(f"subsample is {subsample}: it must be 1 (keep every record) or more")
    chosen = tuple(metadata.layers if layers is None else layers)
    for layer in chosen:
        if layer not in metadata.layers:
            raise UserError(f"{folder} holds no layer {layer!r}, only: {', '.join(metadata.layers)}")
    path = folder / RECORDS_FILE
    try:
        _verify(path, metadata, lambda share: report(share * _SHARE_OF_VERIFYING))
        return _read_records(
            path,
            metadata,
            subsample,
            chosen,
            lambda share: report(_SHARE_OF_VERIFYING + share * (1 - _SHARE_OF_VERIFYING)),
        )
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _verify(path: Path, metadata: DumpMetadata, report: Progress) -> None:
    proof = metadata.files[RECORDS_FILE]
    size = path.stat().st_size
    if size < proof.bytes:
        raise UserError(f"{path} is truncated: {size} of {proof.bytes} bytes are left; copy or extract it again")
    if size > proof.bytes:
        raise UserError(f"{path} has {size} bytes where {proof.bytes} were written: copy or extract it again")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            report(file.tell() / size)
    if digest.hexdigest() != proof.sha256:
        raise UserError(f"{path} does not match its SHA-256: it is damaged or was edited; copy or extract it again")
    # Each number of a record takes two bytes or more: counts that could not fit must not decide how much to allocate.
    record_bytes = 2 * (sum(metadata.layers.values()) + TILES_IN_VIEW * len(TILE_COLUMNS))
    if metadata.records * record_bytes > size:
        raise UserError(f"{path} is too small for the {metadata.records} records that its metadata counts")


def _read_records(
    path: Path, metadata: DumpMetadata, subsample: int, layers: tuple[str, ...], report: Progress
) -> Records:
    capacity = min(metadata.records, metadata.records // subsample + metadata.lives)
    columns = RecordColumns(metadata, layers, capacity)
    lives: dict[tuple[int, ...], tuple[int, int]] = {}
    count = 0
    for count, line in enumerate(_record_lines(path), start=1):
        try:
            record, (*life, tick) = _identify(line)
            seen, last_tick = lives.get(tuple(life), (0, tick - 1))
            if tick <= last_tick:
                raise RecordError(f"tick {tick} of a life does not come after tick {last_tick}")
            lives[tuple(life)] = seen + 1, tick
            if seen % subsample == 0:
                columns.append(_parse(line) if record is None else record)
        except RecordError as fault:
            raise UserError(f"{path}, line {count + 1}: {fault}: extract it again") from None
        if count % _PROGRESS_EVERY == 0:
            report(min(1.0, count / metadata.records))
    if (count, len(lives)) != (metadata.records, metadata.lives):
        raise UserError(
            f"{path} holds {count} records of {len(lives)} lives, its metadata counts {metadata.records} of "
            f"{metadata.lives}: extract it again"
        )
    report(1.0)
    return columns.finish()


def _record_lines(path: Path) -> Iterator[bytes]:
    """Yield the JSON of each record of an array that is written one record a line."""
    layout = UserError(f"{path} is not a JSON array with one record a line: extract it again")
    with path.open("rb") as file:
        if file.readline(_LINE_BYTES_AT_MOST) != b"[\n":
            raise layout
        while (line := file.readline(_LINE_BYTES_AT_MOST)).endswith(b",\n"):
            yield line[:-2]
        if not line.endswith(b"}\n") or file.read(len(b"]\n") + 1) != b"]\n":
            raise layout
        yield line[:-1]


def _identify(line: bytes) -> tuple[dict[str, object] | None, tuple[int, ...]]:
    """Return the line's life and tick, and the whole record only if it had to be parsed to learn them."""
    if match := _LINE_START.match(line):
        return None, tuple(int(group) for group in match.groups())
    record = _parse(line)
    identity = []
    for name in _IDENTITY:
        value = record.get(name)
        if type(value) is not int:
            raise RecordError(f"{name} is missing or is not an integer")
        identity.append(value)
    return record, tuple(identity)


def _parse(line: bytes) -> dict[str, object]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RecordError(f"it is not valid JSON ({error})") from None
    if not isinstance(record, dict):
        raise RecordError("it is not a JSON object")
    return record


def _ignore(share: float) -> None:
    """Report to nobody."""
