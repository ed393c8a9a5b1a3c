"""Names of codes are read quickly, or refused in one line."""

from pathlib import Path
from time import perf_counter

import pytest

from analysis.runs.names import LABELS_FILE, keep_names, read_names
from tests.command import assert_refuses

SECONDS = 10


def merges(depth: int) -> str:
    """Return text in which each line merges the line before it ten times."""
    lines = ["0: &a0 {" + ", ".join(f"k{i}: 1" for i in range(10)) + "}"]
    lines += [f"{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, depth)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (merges(6), "nothing is merged"),
        ("0: {<<: {a: b}}", "nothing is merged"),
        ("!!int '': a", "not a valid int"),
        ("2001-99-99: a", "not a valid timestamp"),
        ("2001-01-01: a", "neither text nor a number"),
        ("0: 2001-01-01", "NUMBER: name"),
        ('0: "\\ud800"', "is no character"),
        ('0: "\\U00110000"', "too large"),
        ("!!binary eA==: a", "neither text nor a number"),
        ("[" * 2000, "nested deeper"),
    ],
)
def test_what_is_no_name_is_refused_at_once(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / LABELS_FILE).write_text(text)
    start = perf_counter()
    assert_refuses([LABELS_FILE, part, "NUMBER: name"], read_names, tmp_path)
    assert perf_counter() - start < SECONDS


def test_names_are_kept(tmp_path: Path) -> None:
    (tmp_path / LABELS_FILE).write_text("0: eats\n2: 'isst <<'\n")
    keep_names(tmp_path, [0, 1, 2])
    assert read_names(tmp_path) == {0: "eats", 2: "isst <<"}
