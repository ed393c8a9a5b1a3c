"""Standard output and error that never fail: work goes on when nobody reads it, or when it cannot be kept."""

import contextlib
import errno
import io
import os
import select
import sys
from pathlib import Path
from typing import TextIO

_NOBODY_READS = {errno.EPIPE, errno.EIO}
"""The reader of a pipe has ended (`| head`), or the terminal is closed."""


class LastingFile(io.FileIO):
    """A file descriptor for writing. The first error sends it, and all that is written later, to the null device.

    Attributes:
        error: the first error, None if there was none.
    """

    def __init__(self, descriptor: int) -> None:
        """Write to an open descriptor, which stays open."""
        super().__init__(descriptor, "w", closefd=False)
        self.error: OSError | None = None

    def write(self, content: bytes | memoryview, /) -> int:  # type: ignore[override]
        """Write all of it; bytes that cannot be written are dropped."""
        rest = memoryview(content).cast("B")
        size = len(rest)
        while len(rest):
            try:
                written = super().write(rest)
                if written is None:  # a terminal that another program made non-blocking
                    select.select([], [self.fileno()], [])
                rest = rest[written or 0 :]
            except OSError as error:
                self._give_up(error)
                break
        return size

    def _give_up(self, error: OSError) -> None:
        """Point the descriptor at the null device, for whatever else has it open in this process and its children."""
        self.error = self.error or error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)


def make_output_last() -> None:
    """Let no `print`, progress bar or live view of this process fail from now on.

    Characters that the output cannot encode are written as escapes. Streams that something else has replaced, such as
    a test, are left alone.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            _take(descriptor)
            null = Path(os.devnull).open("w", errors="backslashreplace")  # noqa: SIM115 (stays open to the end)
            setattr(sys, name, null)
        elif stream is getattr(sys, f"__{name}__") and _raw(stream) is None:
            setattr(sys, name, _lasting(stream, descriptor))


def lost_output() -> OSError | None:
    """Return why printed text could not be kept, such as a full disk; None if it was, or if nobody reads it."""
    for stream in (sys.stdout, sys.stderr):
        raw = _raw(stream)
        if raw is None:
            continue
        stream.flush()
        if raw.error is not None and raw.error.errno not in _NOBODY_READS:
            return raw.error
    return None


def _take(descriptor: int) -> None:
    """Open the null device as a descriptor that the shell closed (`>&-`), or a file of results might get it."""
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)


def _raw(stream: TextIO) -> LastingFile | None:
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, LastingFile) else None


def _lasting(stream: TextIO, descriptor: int) -> io.TextIOWrapper:
    """Return a stream like another one, with the same encoding and buffering."""
    with contextlib.suppress(OSError):
        stream.flush()
    raw = LastingFile(descriptor)
    unbuffered = isinstance(stream.buffer, io.RawIOBase)  # by `python -u` or PYTHONUNBUFFERED
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),  # type: ignore[type-var]
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=bool(stream.line_buffering),
        write_through=unbuffered,
    )
