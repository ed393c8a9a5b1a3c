"""Memory that a process frees and soon needs again, kept in the process."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in glibc's malloc.h
_LARGEST_KEPT = 32 * 1024**2  # bytes; the most that glibc takes for M_MMAP_THRESHOLD
_MOST = 2**31 - 1  # bytes; the most that fits the parameter


def keep_freed_memory() -> bool:
    """Let this process keep memory that it frees instead of returning it to the system, and tell whether it does.

    Each minibatch frees and allocates the same hundred megabytes. When they go back to the system in between, it has to
    clear every page anew, which can take a fifth of the time of learning (docs/benchmarks.md). Blocks of more than
    32 MiB still go back. Works with glibc, as most Linux systems have it; without it, nothing changes.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(set_option(_MMAP_THRESHOLD, _LARGEST_KEPT)) and bool(set_option(_TRIM_THRESHOLD, _MOST))
