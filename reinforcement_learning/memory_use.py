"""Keep the memory of a process that plays from growing, and what training frees and soon needs again in the process."""

import ctypes
import gc
import time

_EVERY_SECONDS = 30.0
_tidied = time.monotonic()


def tidy_memory() -> None:
    """Free what earlier episodes have left, and give it back to the system; do nothing if that was done just before.

    A world is a web of hundreds of thousands of objects that refer to each other. Python looks for such webs the more
    rarely the more objects there are, and the next world is then built around the last one. Looking takes about a
    third of a second.
    """
    global _tidied
    if time.monotonic() - _tidied < _EVERY_SECONDS:
        return
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)
    _tidied = time.monotonic()


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
