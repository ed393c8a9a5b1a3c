"""What has to be known of a Parquet file before any of it is unpacked, and what Arrow's errors about it mean.

The numbers that decide how much memory a column takes are in the footer and, once more, before each page. Arrow
unpacks what the pages say, so a footer alone, which is easily forged, proves nothing: both must agree.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from common.user_error import TOO_LITTLE_MEMORY, UserError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

LARGEST_EXPANSION = 250
"""Real dumps take up to 20 times their files' bytes; far more means a file made to exhaust memory."""
_ALWAYS_ALLOWED = 1 << 26
_OF_LISTS = ".list.element"
_HEADER_BYTES_AT_MOST = 1 << 14
_DEEPEST = 8
_BOOLEANS, _BYTE, _INTEGERS, _BINARY, _STRUCT = {1, 2}, 3, {4, 5, 6}, 8, 12  # kinds of fields in compact Thrift
_DATA_PAGES, _DICTIONARY_PAGE = {0: 5, 3: 8}, {2: 7}  # kinds of pages -> structure that begins with their values


class AbsurdSize(ValueError):
    """A file says that it stands for far more than it holds, or says two things of its size."""


@contextlib.contextmanager
def arrow_faults(path: Path, advice: str = "copy or extract it again") -> Iterator[None]:
    """Turn what goes wrong while a file is read into one line that names it, and says whether the file is to blame."""
    import pyarrow as pa

    try:
        yield
    except MemoryError:  # Arrow's own is one, too
        raise UserError(f"{path} cannot be read: {TOO_LITTLE_MEMORY}") from None
    except OSError as error:
        if error.errno is not None:  # of the system; Arrow's about the content have none
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        raise UserError(_damaged(path, error, advice)) from None
    except (pa.ArrowException, ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise UserError(_damaged(path, error, advice)) from None


def _damaged(path: Path, error: Exception, advice: str) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return f"{path} is damaged ({reason}): {advice}"


def check_expansion(file: "pq.ParquetFile", size: int) -> None:
    """Refuse a file whose footer claims far more memory than its bytes are worth."""
    footer, widths = file.metadata, _widths(file.schema_arrow)
    claimed = 0
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            in_memory = chunk.num_values * widths.get(_column(chunk), 0)
            claimed += max(chunk.total_uncompressed_size, in_memory)
    most = max(_ALWAYS_ALLOWED, LARGEST_EXPANSION * size)
    if claimed > most:
        raise AbsurdSize(f"it claims {claimed:,} bytes of memory for {size:,} of its own")


def check_pages(raw: BinaryIO, group: "pq.RowGroupMetaData", columns: Iterable[str]) -> None:
    """Refuse columns of a row group whose pages hold anything else than the footer says.

    Args:
        columns: names of whole columns, without those of their elements.
    """
    wanted = set(columns)
    for chunk in map(group.column, range(group.num_columns)):
        if _column(chunk) in wanted:
            unpacked = values = 0
            for header, header_bytes in _pages(raw, chunk):
                unpacked += header_bytes + header[2]
                values += _values(header)
            if unpacked != chunk.total_uncompressed_size or values != chunk.num_values:
                raise AbsurdSize(f"the pages of {chunk.path_in_schema} hold {unpacked:,} bytes, {values:,} values")


def _column(chunk: "pq.ColumnChunkMetaData") -> str:
    return chunk.path_in_schema.removesuffix(_OF_LISTS)


def _widths(schema: "pa.Schema") -> dict[str, int]:
    """Return the bytes of a value of each column, of a list of its elements; 0 where it varies."""
    import pyarrow.types as types

    widths = {}
    for field in schema:
        kind = field.type.value_type if types.is_list(field.type) else field.type
        is_fixed = types.is_primitive(kind) or types.is_fixed_size_binary(kind)
        widths[field.name] = 1 if types.is_boolean(kind) else getattr(kind, "byte_width", 0) if is_fixed else 0
    return widths


def _pages(raw: BinaryIO, chunk: "pq.ColumnChunkMetaData") -> Iterator[tuple[dict[int, int], int]]:
    """Yield the header of each page of a column, as field -> number, and its bytes."""
    offsets = [chunk.data_page_offset, *([chunk.dictionary_page_offset] if chunk.has_dictionary_page else [])]
    start = min(offsets)
    end = start + chunk.total_compressed_size
    while start < end:
        raw.seek(start)
        try:
            header, length = _struct(raw.read(_HEADER_BYTES_AT_MOST), 0, 0)
        except IndexError:
            raise AbsurdSize(f"a page of {chunk.path_in_schema} has no whole header") from None
        if header.get(2, -1) < 0 or header.get(3, -1) < 0:
            raise AbsurdSize(f"a page of {chunk.path_in_schema} has no size")
        yield header, length
        start += length + header[3]


def _values(header: dict[int, int]) -> int:
    """Return the number of values in a data page; those of a dictionary are not counted, but take bytes of its own."""
    kind = header.get(1, -1)
    if kind in _DICTIONARY_PAGE:
        if header.get(_DICTIONARY_PAGE[kind], -1) > header[2]:
            raise AbsurdSize("a dictionary has more values than bytes")
        return 0
    if kind not in _DATA_PAGES:
        raise AbsurdSize(f"a page is of the unknown kind {kind}")
    return header.get(_DATA_PAGES[kind], -1)


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, int], int]:
    """Read a structure in Thrift's compact form: the numbers in it, and where it ends.

    Of a structure inside only the first number is kept, which in headers of pages is the number of values.

    Raises:
        AbsurdSize: it holds what no header of a page does.
        IndexError: it does not end.
    """
    numbers: dict[int, int] = {}
    field = 0
    while (head := data[at]) != 0:
        at += 1
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            field, at = _number(data, at)
        if kind in _INTEGERS:
            numbers[field], at = _number(data, at)
        elif kind == _STRUCT and depth < _DEEPEST:
            inside, at = _struct(data, at, depth + 1)
            numbers[field] = inside.get(1, -1)
        elif kind == _BINARY:
            length, at = _varint(data, at)
            at += length
        elif kind == _BYTE:
            at += 1
        elif kind not in _BOOLEANS:
            raise AbsurdSize("the header of a page holds what none does")
    return numbers, at + 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 128:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
