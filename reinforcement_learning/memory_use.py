"""Keep the memory of a process that plays episode after episode from growing."""

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
