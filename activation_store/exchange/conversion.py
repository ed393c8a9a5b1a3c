"""Rewrite dumps: convert them to the other format, or draw a small sample of whole lives to share."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.exchange.original_tools import find_original, import_original
from activation_store.lives import number_lives
from activation_store.reader import read_batches, read_identity, read_metadata
from activation_store.schema import DumpMetadata, Format, Precision
from activation_store.selection import Selection, select
from activation_store.writer import DumpWriter
from common.user_error import UserError


def convert(
    source: Path, folder: Path, form: Format, precision: Precision | None, report: Callable[[float], None]
) -> None:
    """Write a dump of this toolkit or of the original tools as a dump of the given format.

    Args:
        source: folder of a dump; or a file of the original tools, or its folder.
        folder: of the new dump; must not hold one yet.
        precision: of its activations; None keeps the source's, if the format supports it.
        report: called with the share of the work done, from 0 to 1.

    Raises:
        UserError: the source is not a complete dump, or the folder already holds one.
    """
    if original := find_original(source):
        import_original(original, folder, form, precision or "float32", report)
        return
    metadata = read_metadata(source)
    kept = metadata.precision if form == "parquet" else "float32"
    target = replace(metadata, format=form, precision=precision or kept)
    _copy(source, metadata, select(source, metadata), folder, target, report)


def sample(
    source: Path, folder: Path, *, lives: int | None, episodes: int | None, seed: int, report: Callable[[float], None]
) -> None:
    """Write a random sample of whole lives, or of whole episodes, as a dump of the same format.

    Raises:
        UserError: the source is not a complete dump or holds fewer, or the folder already holds a dump.
    """
    metadata = read_metadata(source)
    identity = read_identity(source)
    all_lives, _ = number_lives(identity)
    there, count = (all_lives, lives) if lives is not None else (np.unique(identity["episode"])[:, None], episodes)
    if count is None or not 1 <= count <= len(there):
        raise UserError(f"{source} holds {len(there)} {'lives' if lives is not None else 'episodes'}, not {count}")
    chosen = there[np.sort(np.random.default_rng(seed).choice(len(there), count, replace=False))].tolist()
    selection = select(
        source, metadata, lives=chosen if lives is not None else None, episodes={life[-1] for life in chosen}
    )
    _copy(source, metadata, selection, folder, metadata, report)


def _copy(
    source: Path,
    metadata: DumpMetadata,
    selection: Selection,
    folder: Path,
    target: DumpMetadata,
    report: Callable[[float], None],
) -> None:
    if folder.resolve() == source.resolve():
        raise UserError(f"{folder} is the dump itself: choose another folder")
    blank = replace(target, records=0, lives=0, files={}, episodes=[])
    described = _descriptions(metadata, selection)
    unfinished: set[int] = set()
    with DumpWriter(folder, blank) as writer:
        for batch in read_batches(source, metadata, selection, report):
            here = set(batch.episode.tolist())
            for episode in sorted(unfinished - here):
                writer.finish_episode(episode, described.pop(episode, None))
            if here & writer.stored.keys():
                raise UserError(f"{source} mixes the records of its episodes: extract it again")
            unfinished = here
            writer.write(batch)
        writer.close(list(described.values()))


def _descriptions(metadata: DumpMetadata, selection: Selection) -> dict[int, dict[str, Any]]:
    numbered = {described.get("episode"): described for described in metadata.episodes}
    return {
        episode: described
        for episode, described in numbered.items()
        if type(episode) is int and selection.wants_episode(episode)
    }
