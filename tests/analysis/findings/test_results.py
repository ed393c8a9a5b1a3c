"""Numbers of claims: the row that is meant, means over trainings, and how they are written."""

from pathlib import Path

import pytest
from scipy import stats

from analysis.findings.results import Results, formatted, mean_over_trainings
from analysis.findings.study_file import Row, Stage, Study
from user_error import UserError

STAGES = tuple(Stage(f"clear_{each}", "x.py {here}", 1.0) for each in ("a", "b", "c"))
STUDY = Study("t", "q", STAGES, (), ())


@pytest.fixture
def results(tmp_path: Path) -> Results:
    for stage, value in zip(STAGES, ("-58.3", "-29.5", "-24.2"), strict=True):
        (tmp_path / stage.name).mkdir()
        table = f"outcome\tvalue\tverdict\nticks\t{value}\teffect\nlevel\t0.5\tnot found\nlevel\t\tnot found\n"
        (tmp_path / stage.name / "effects.tsv").write_text(table)
    return Results(STUDY, tmp_path)


def test_row_is_the_one_that_is_meant(results: Results) -> None:
    row = results.values(Row("clear_b", "effects.tsv", {"outcome": "ticks"}))
    assert row == {"outcome": "ticks", "value": "-29.5", "verdict": "effect"}
    for where in ({}, {"outcome": "level"}, {"outcome": "meals"}):
        with pytest.raises(UserError, match="rows with"):
            results.values(Row("clear_b", "effects.tsv", where))
    for row, says in (
        (Row("clear_b", "x.tsv"), "does not exist"),
        (Row("clear_b", "effects.tsv", {"x": "y"}), "no column"),
    ):
        with pytest.raises(UserError, match=says):
            results.values(row)


def test_mean_over_trainings_has_students_interval(results: Results) -> None:
    values = [-58.3, -29.5, -24.2]
    found = results.values(Row("clear_*", "effects.tsv", {"outcome": "ticks"}, "value"))
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert [float(found[name]) for name in ("mean", "low", "high")] == pytest.approx([sum(values) / 3, low, high])
    assert found["n"] == "3"
    with pytest.raises(UserError, match="1 training"):
        mean_over_trainings([1.0])
    with pytest.raises(UserError, match="no number"):
        results.values(Row("clear_*", "effects.tsv", {"outcome": "ticks"}, "verdict"))


def test_numbers_are_written_as_asked() -> None:
    row = {"value": "-58.307292", "q": "0.0238", "n": "12", "word": "effect", "nothing": ""}
    written = [
        formatted(row, *each) for each in (("value", "+.1f"), ("q", ".3f"), ("q", ".0%"), ("n", "d"), ("word", ""))
    ]
    assert written == ["-58.3", "0.024", "2%", "12", "effect"]
    for column, form, says in (("x", "", "no column"), ("word", "d", "no number"), ("nothing", ".1f", "no number")):
        with pytest.raises(UserError, match=says):
            formatted(row, column, form)


def test_damaged_table_is_refused(tmp_path: Path) -> None:
    for content, says in ((b"", "empty"), (b"a\tb\n1\n", "differ in length"), (b"\xff\xfe", "UTF-8")):
        (tmp_path / "clear_a").mkdir(exist_ok=True)
        (tmp_path / "clear_a" / "effects.tsv").write_bytes(content)
        with pytest.raises(UserError, match=says):
            Results(STUDY, tmp_path).rows("clear_a", "effects.tsv", {})
