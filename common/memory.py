"""How much memory is free, so that work that would not fit is refused before it starts."""

from pathlib import Path

from common.user_error import UserError

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


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
