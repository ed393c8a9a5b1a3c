"""Ways to damage dumps, and checks of how reading them fails."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import orjson

from activation_store.reader import read_dump
from activation_store.schema import METADATA_FILE, DumpFile, DumpMetadata
from common.files import write_json
from tests.command import assert_refuses


def one_line(folder: Path, **options: Any) -> str:
    """Return the message with which reading fails."""
    return assert_refuses((), read_dump, folder, **options)


def sign(folder: Path, name: str, *, records: int | None = None, lives: int | None = None, **changes: Any) -> None:
    """Update the metadata to match the current content of a file.

    Args:
        folder: of the dump.
        name: of the file.
        records: number that the metadata claims; None leaves it unchanged.
        lives: likewise.
        changes: to the rest of the metadata.
    """
    metadata = DumpMetadata.from_json(orjson.loads((folder / METADATA_FILE).read_bytes()), "metadata")
    content, before = (folder / name).read_bytes(), metadata.files[name]
    proof = DumpFile(
        hashlib.sha256(content).hexdigest(),
        len(content),
        before.records if records is None else records,
        before.lives if lives is None else lives,
        before.episode,
    )
    files = {**metadata.files, name: proof}
    counts = {count: sum(getattr(file, count) for file in files.values()) for count in ("records", "lives")}
    write_json(folder / METADATA_FILE, dataclasses.replace(metadata, files=files, **counts, **changes).to_json())


def sign_metadata(folder: Path, content: dict[str, Any]) -> None:
    """Write metadata with a matching checksum, whatever its content."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    checksum = hashlib.sha256(orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)).hexdigest()
    write_json(folder / METADATA_FILE, {**rest, "checksum": checksum})
