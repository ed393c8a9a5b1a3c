"""Memory that a process frees and soon needs again, kept in the process."""

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX in glibc's malloc.h
_NEVER = -1  # as a threshold for trimming


def keep_freed_memory() -> bool:
    """Let this process keep memory that it frees instead of returning it to the system, and tell whether it does.

    Each minibatch frees and allocates the same memory. When it goes back to the system in between, the system has to
    clear every page anew, which for large networks can take longer than learning itself (docs/benchmarks.md). By
    default glibc returns blocks of more than 32 MiB as soon as they are freed, and smaller ones once much is free.
    Works with glibc, as most Linux systems have it; without it, nothing changes.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(set_option(_MMAP_MAX, 0)) and bool(set_option(_TRIM_THRESHOLD, _NEVER))
