"""The journal of an unfinished dump: its metadata, and which episodes are completely stored.

The journal is written atomically before the first record and after each episode, and removed once `metadata.json`
exists. Anything else in the folder is a leftover.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from activation_store.schema import METADATA_FILE, RECORDS_FILE, DumpFile, DumpMetadata, PrecisionError, shard_name
from common.checked_json import in_shape, read_small_json, with_checksum, without_checksum
from common.files import PARTIAL_SUFFIX, sha256, write_json
from common.user_error import UserError

JOURNAL_FILE = "unfinished.json"
_JSON_SHARDS = "episode-*.jsonlines"
_PARQUET_SHARDS = "episode-*.parquet"
_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True)
class StoredEpisode:
    """An episode whose records are all on disk."""

    __pydantic_config__ = _STRICT

    episode: int
    description: dict[str, Any] | None  # its entry in the dump's metadata; None for none
    shard: DumpFile | None  # size and hash of its file; None if it has no records and therefore no file
    precision_error: dict[str, PrecisionError]  # error from rounding its activations, by layer


@dataclass(frozen=True)
class Journal:
    """The metadata that the dump was started with, without counts, and the episodes stored so far."""

    __pydantic_config__ = _STRICT

    begun_with: dict[str, Any]
    stored: list[StoredEpisode] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write the journal atomically."""
        write_json(folder / JOURNAL_FILE, with_checksum(asdict(self)))


def shard_path(folder: Path, metadata: DumpMetadata, episode: int) -> Path:
    """Return the file of an episode's records while a dump is written; a parquet dump keeps it."""
    return folder / (shard_name(episode) if metadata.format == "parquet" else f"episode-{episode:06d}.jsonlines")


def shards_in(folder: Path) -> set[Path]:
    """Return every file in a folder that is named like a shard."""
    return {path for pattern in (_JSON_SHARDS, _PARQUET_SHARDS) for path in folder.glob(pattern)}


def read_journal(folder: Path) -> Journal:
    """Read the journal of an unfinished dump (UserError: it is missing or damaged)."""
    path = folder / JOURNAL_FILE
    content = read_small_json(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: delete {folder} and extract it again")
    complaint = f"{path} is damaged or of another version"
    return in_shape(Journal, without_checksum(content, str(path)), complaint, f"delete {folder} and extract it again")


def resume_journal(folder: Path, metadata: DumpMetadata) -> Journal:
    """Read the journal and keep the episodes whose files are unchanged.

    Raises:
        UserError: the journal is damaged, or the dump was started with settings other than `metadata`.
    """
    journal = read_journal(folder)
    wanted = metadata.to_json()
    for name in wanted:
        if name != "checksum" and journal.begun_with.get(name) != wanted[name]:
            raise UserError(
                f"{folder} was started with different settings ({name}) than requested now: use the original ones, or "
                "delete the folder and extract again"
            )
    kept = [stored for stored in journal.stored if _is_whole(shard_path(folder, metadata, stored.episode), stored)]
    return Journal(journal.begun_with, kept)


def remove_leftovers(folder: Path, metadata: DumpMetadata, journal: Journal) -> None:
    """Remove temporary files of killed runs, and shards that are not in the journal."""
    known = {shard_path(folder, metadata, stored.episode) for stored in journal.stored if stored.shard}
    for path in {*(shards_in(folder) - known), *temporary_files(folder), folder / RECORDS_FILE}:
        path.unlink(missing_ok=True)


def remove_scaffolding(folder: Path) -> None:
    """Remove the files that only an unfinished dump needs, once `metadata.json` exists."""
    for path in (*folder.glob(_JSON_SHARDS), *temporary_files(folder), folder / JOURNAL_FILE):
        path.unlink(missing_ok=True)


def temporary_files(folder: Path) -> list[Path]:
    """List the temporary files of this package that `atomic_file` leaves behind when its process is killed."""
    names = (RECORDS_FILE, METADATA_FILE, JOURNAL_FILE, _JSON_SHARDS, _PARQUET_SHARDS)
    return [path for name in names for path in folder.glob(f".{name}.*{PARTIAL_SUFFIX}")]


def _is_whole(path: Path, stored: StoredEpisode) -> bool:
    if stored.shard is None:
        return True
    return path.is_file() and path.stat().st_size == stored.shard.bytes and sha256(path) == stored.shard.sha256
