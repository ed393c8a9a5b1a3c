"""How many records of a dump an analysis keeps, so that it fits into memory however large the dump is.

Work that would not fit into the memory that is free is refused before it starts.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from activation_store.schema import DumpMetadata
from common.user_error import UserError

FEWEST_KEPT = 1000
"""The least value of --max-records."""
_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


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


def free_memory(meminfo: Path = _MEMINFO, group: Path = _GROUP) -> int | None:
    """Return the bytes that new work can use: of the machine, or of the container (cgroup v2) if that has less.

    What a container keeps of files can be dropped, and so counts as free.

    Returns:
        None where the system does not say, as on macOS.
    """
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used -= sum(int(kept[name]) for name in ("active_file", "inactive_file", "slab_reclaimable"))
    except (OSError, KeyError, ValueError):  # no container, or one without a limit, which reads "max"
        return free
    return min(free, max(0, limit - used))


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Refuse work that needs more memory than is free.

    Args:
        needed: bytes.
        what: needs them, as the subject of a sentence.
        remedy: what to do instead.

    Raises:
        UserError: the work would not fit; names both numbers.
    """
    free = free_memory()
    if free is not None and needed > free:
        needs, has = f"{needed / 1e9:.1f} GB", f"{free / 1e9:.1f} GB"
        raise UserError(f"{what} needs about {needs} of memory, and {has} are free: {remedy}")
