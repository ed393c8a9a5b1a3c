"""One fuzz test over all readers: each damaged file gives what it tells or one line, in little time and memory."""

import ast
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

from tests import fuzz
from tests.fuzz import READERS, Bench, Reader, TooLong, budget
from tests.house import ROOT, modules
from tests.readers import ELSEWHERE

FAULTS = {"over 5 s or 1 GB": (TooLong, MemoryError), "silent": (AssertionError,)}
KINDS = ("tried", "refused", "tracebacks", *FAULTS)
OPENING = {
    "open_file", "read_bytes", "read_lines", "read_json", "read_json_lines", "read_small_json", "read_tensors",
    "read_yaml", "ParquetFile", "ZipFile", "LZMADecompressor", "read_table",
}  # fmt: skip
"""Functions and classes by which files of others are opened."""


def opening_functions() -> Iterator[str]:
    """Yield all functions of the project that call one of them, as `package.module:function`."""
    for name, path in modules().items():
        if path.relative_to(ROOT).parts[0] in ("common", "tests", "benchmarks", "docs"):
            continue
        text = path.read_text()
        if not any(name in text for name in OPENING):
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef):
                calls = (item.func for item in ast.walk(function) if isinstance(item, ast.Call))
                called = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
                if called & OPENING:
                    yield f"{name}:{function.name}"


def test_every_reader_is_registered() -> None:
    opening = set(opening_functions())
    registered = {name for reader in READERS for name in reader.opens if not name.startswith("common.")}
    assert sorted(opening - registered - ELSEWHERE.keys()) == [], "register them in tests/readers/"
    assert sorted((registered | ELSEWHERE.keys()) - opening) == [], "they open nothing any more"


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_damage_gives_one_line_or_what_the_file_tells(
    reader: Reader, bench: Bench, tmp_path_factory: pytest.TempPathFactory, record_property: Any
) -> None:
    counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    faults: list[str] = []
    fuzz.refused.clear()
    damaged = tmp_path_factory.mktemp("damaged")  # one for all cases: pytest looks at all there are for a free number

    @budget(reader.cases)
    @given(data=st.data())
    def attempt(data: st.DataObject) -> None:
        counts["tried"] += 1
        folder = damaged / f"{counts['tried']:06}"  # as long as any other: files may hold it
        folder.mkdir()
        try:
            reader.attempt(bench, folder, data)
        except HypothesisException:  # of a choice that led nowhere
            raise
        except (Exception, TooLong) as error:
            kind = next((kind for kind, errors in FAULTS.items() if isinstance(error, errors)), "tracebacks")
            counts[kind] += 1
            faults.append(f"{kind}: {traceback.format_exc()}")

    attempt()
    counts["refused"] = len(fuzz.refused)
    record_property("fuzz", dict(counts))
    assert not faults, f"{len(faults)} of {counts['tried']}; the first:\n{faults[0]}"
