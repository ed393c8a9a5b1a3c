"""Stream the values of a large JSON file: decompressed piece by piece within bounds, never all in memory."""

import codecs
import json
import lzma
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from common.files import open_file
from common.user_error import UserError

LARGEST_CONTENT_BYTES = 2 << 30
"""Decompressed bytes of a replay at most; 1,024 ticks of 128 agents and 256 NPCs have about 0.2 to 0.5 billion."""
LARGEST_EXPANSION = 300
"""Decompressed bytes for each byte of a file at most, above `ALWAYS_ALLOWED_BYTES`; real replays have about 60."""
ALWAYS_ALLOWED_BYTES = 8 << 20
_LARGEST_VALUE = 1 << 24
_LARGEST_DICTIONARY_BYTES = 256 << 20
_BLOCK_BYTES = 1 << 16
_PIECE_BYTES = 1 << 20
_SPACE = " \t\r\n"
_SPACES = re.compile(f"[{_SPACE}]*")
_UTF8 = codecs.getincrementaldecoder("utf-8")
_WHAT_TO_DO = "copy or record it again"


class JsonStream:
    """Reads values in order from a JSON file, plain or compressed with lzma."""

    def __init__(self, path: Path, report: Callable[[float], None]):
        """Read from `path`; `report` is called with the share of the file's bytes read."""
        self.path = path
        self._pieces = _decoded(path, report)
        self._decoder = json.JSONDecoder(parse_constant=_no_constant)
        self._text = ""
        self._at = 0
        self._over = False
        self._wanted = _BLOCK_BYTES

    def fail(self, fault: str) -> NoReturn:
        """Raise a `UserError` that says what is wrong with the file."""
        raise UserError(f"{self.path} {fault}: {_WHAT_TO_DO}") from None

    def peek(self) -> str:
        """Return the next non-whitespace character without taking it, or "" at the end."""
        while True:
            self._at = _SPACES.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches anything
            if self._at < len(self._text) or self._over:
                return self._text[self._at : self._at + 1]
            self._fill(1)

    def take(self, character: str) -> None:
        """Take the next character, which must be `character`."""
        actual = self.peek() or "the end"
        if actual != character:
            self.fail(f"is not a replay, or damaged: expected {character!r}, found {actual!r}")
        self._at += 1

    def value(self) -> Any:
        """Take the next value with everything inside it."""
        if not self.peek():
            self.fail("is not a replay, or truncated: it ends where a value should be")
        size = self._wanted
        while True:
            self._fill(size)
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except RecursionError:
                self.fail("is not a replay: it nests too deeply")
            except ValueError:
                end = None
            # A number at the end of the buffer may continue in the next piece.
            if end is not None and (end < len(self._text) or self._over):
                self._wanted = max(self._wanted, min(2 * (end - self._at), _LARGEST_VALUE))
                self._at = end
                return value
            if self._over:
                self.fail("is not a replay, or damaged: it is not valid JSON")
            if size >= _LARGEST_VALUE:
                self.fail(f"is not a replay, or damaged: a value in it is longer than {_LARGEST_VALUE:,} characters")
            size *= 4

    def elements(self) -> Iterator[Any]:
        """Yield the values of an array."""
        self.take("[")
        if self.peek() != "]":
            yield self.value()
            while self.peek() == ",":
                self.take(",")
                yield self.value()
        self.take("]")

    def members(self) -> Iterator[str]:
        """Yield the names in an object; each name's value must be taken before the next name."""
        self.take("{")
        while True:
            key = self.value()
            if not isinstance(key, str):
                self.fail("is not a replay, or damaged: a name in an object is not text")
            self.take(":")
            yield key
            if self.peek() != ",":
                break
            self.take(",")
        self.take("}")

    def end(self) -> None:
        """Check that nothing follows."""
        if self.peek():
            self.fail("is not a replay, or damaged: something follows its end")

    def _fill(self, characters: int) -> None:
        """Fill the buffer with at least this many characters, if the file has them."""
        if self._over or len(self._text) - self._at >= characters:
            return
        pieces = [self._text[self._at :]]
        ready = len(pieces[0])
        while ready < characters:
            piece = next(self._pieces, None)
            if piece is None:
                self._over = True
                break
            pieces.append(piece)
            ready += len(piece)
        self._text, self._at = "".join(pieces), 0


def _decoded(path: Path, report: Callable[[float], None]) -> Iterator[str]:
    decoder = _UTF8()
    try:
        for piece in _content(path, report):
            yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a replay, or damaged: it is not text; {_WHAT_TO_DO}") from None


def _content(path: Path, report: Callable[[float], None]) -> Iterator[bytes]:
    """Yield the file's content, decompressed if it does not start as JSON does."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        packed = file.read(1) not in (b"{", b"[", *(space.encode() for space in _SPACE))
        file.seek(0)

        def blocks() -> Iterator[bytes]:
            while block := file.read(_BLOCK_BYTES):
                report(min(1.0, file.tell() / size))
                yield block

        yield from _bounded(path, size, _decompressed(path, blocks()) if packed else blocks())


def _decompressed(path: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
    decompressor = lzma.LZMADecompressor(memlimit=_LARGEST_DICTIONARY_BYTES)
    try:
        for block in blocks:
            if decompressor.eof:
                raise UserError(f"{path} is damaged: something follows its compressed content; {_WHAT_TO_DO}")
            yield decompressor.decompress(block, _PIECE_BYTES)
            while not decompressor.needs_input and not decompressor.eof:
                yield decompressor.decompress(b"", _PIECE_BYTES)
    except (lzma.LZMAError, EOFError):
        raise UserError(f"{path} is not a replay, or damaged: it is not an lzma file; {_WHAT_TO_DO}") from None
    if not decompressor.eof or decompressor.unused_data:
        state = "damaged" if decompressor.eof else "truncated"
        raise UserError(f"{path} is {state}: its compressed content does not end where it should; {_WHAT_TO_DO}")


def _bounded(path: Path, size: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    limit, read = min(LARGEST_CONTENT_BYTES, max(ALWAYS_ALLOWED_BYTES, size * LARGEST_EXPANSION)), 0
    for piece in pieces:
        read += len(piece)
        if read > limit:
            raise UserError(
                f"{path} is not a replay: its {size:,} bytes unpack to more than {limit:,} bytes of content, the most "
                "that a file of this size may hold"
            )
        yield piece


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
