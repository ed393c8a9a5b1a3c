"""How many records of a dump an analysis keeps, so that it fits into memory however large the dump is."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from activation_store.schema import DumpMetadata
from common.memory import check_memory

FEWEST_KEPT = 1000
"""The least value of --max-records."""


class Thinned(Protocol):
    """Settings of an analysis that keeps one in `subsample` records of each life."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def subsample(self) -> int:
        """One in this many records of each life is kept."""

    @property
    def skip_first(self) -> int:
        """Records at the start of each life that are never kept."""

    @property
    def max_records(self) -> int:
        """About how many records are kept at most."""


Settings = TypeVar("Settings", bound=Thinned)


def limited(settings: Settings, dump: Path, metadata: DumpMetadata, bytes_each: float) -> Settings:
    """Return settings that keep about `max_records` of a dump's records at most, and tell the user if they thin more.

    Args:
        bytes_each: memory that the analysis takes for each record that it keeps.

    Raises:
        UserError: what is kept would not fit into the memory that is free.
    """
    there = max(0, metadata.records - settings.skip_first * metadata.lives)
    every = max(settings.subsample, -(-there // settings.max_records))
    if every > settings.subsample:
        kept = f"one record in {every} of each life is kept instead of one in {settings.subsample}"
        note(dump, metadata.records, kept)
    check_fits(dump, there / every, bytes_each)
    return replace(settings, subsample=every)


def note(dump: Path, records: int, what: str) -> None:
    """Tell the user what is kept of a dump that holds too many records."""
    print(f"note: {dump} holds {records:,} records: {what}; a higher --max-records keeps more", file=sys.stderr)


def check_fits(dump: Path, kept: float, bytes_each: float) -> None:
    """Refuse to analyse so many records of a dump if they would not fit into the memory that is free.

    Raises:
        UserError: they would not; names what they need, and what is free.
    """
    what = f"an analysis of {kept:,.0f} records of {dump}"
    check_memory(kept * bytes_each, what, "keep fewer with a lower --max-records")
