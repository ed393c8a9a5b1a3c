"""Numbers of claims: the row that is meant, means over trainings, and how they are written."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from analysis.findings.results import Results, formatted, mean_over_trainings
from analysis.findings.study_file import Stage, Study, TableRow
from analysis.statistics.over_trainings import over_trainings
from tests.command import assert_refuses

STAGES = tuple(Stage(f"clear_{each}", "x.py {here}", 1.0) for each in ("a", "b", "c"))
STUDY = Study(STAGES)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    for stage, value in zip(STAGES, ("-58.3", "-29.5", "-24.2"), strict=True):
        (tmp_path / stage.name).mkdir()
        table = f"outcome\tvalue\tverdict\nticks\t{value}\teffect\nlevel\t0.5\tnot found\nlevel\t\tnot found\n"
        (tmp_path / stage.name / "effects.tsv").write_text(table)
    return Results(STUDY, tmp_path)


def test_row_is_the_one_that_is_meant(results: Results) -> None:
    row = results.values(TableRow("clear_b", "effects.tsv", {"outcome": "ticks"}))
    assert row == {"outcome": "ticks", "value": "-29.5", "verdict": "effect"}
    for where in ({}, {"outcome": "level"}, {"outcome": "meals"}):
        assert_refuses("rows with", results.values, TableRow("clear_b", "effects.tsv", where))
    assert_refuses("does not exist", results.values, TableRow("clear_b", "x.tsv"))
    assert_refuses("no column", results.values, TableRow("clear_b", "effects.tsv", {"x": "y"}))


def test_mean_over_trainings_has_students_interval(results: Results) -> None:
    values = [-58.3, -29.5, -24.2]
    result = results.values(TableRow("clear_*", "effects.tsv", {"outcome": "ticks"}), ["value"])
    test = stats.ttest_1samp(values, 0)
    wanted = [sum(values) / 3, *test.confidence_interval(0.95), test.pvalue]
    assert [float(result[f"value.{name}"]) for name in ("mean", "low", "high", "p")] == pytest.approx(wanted)
    assert result["value.n"] == "3"
    assert_refuses("1 training", mean_over_trainings, [[{"a": 1.0}]])
    assert_refuses("not separate trainings", mean_over_trainings, [[{"a": 1.5}, {"b": 1.5}, {"c": 1.5}]])
    assert float(mean_over_trainings([[{"a": 0.0}, {"b": 0.0}]])["mean"]) == 0
    assert_refuses("no number", results.values, TableRow("clear_*", "effects.tsv", {"outcome": "ticks"}), ["verdict"])


def test_trainings_that_played_the_same_worlds_need_the_numbers_of_each(tmp_path: Path) -> None:
    """Played with one seed: refused with nothing but means, and with the episodes, as `over_trainings` has it."""
    seeds = {stage.name: f"intervene.py -p {stage.name} --seed 7 -o {stage.name}" for stage in STAGES}
    values = np.array([[-58.0, -20.0, 3.0], [-30.0, -31.0, 8.0], [-20.0, -28.0, 1.0]])
    heads = "measure\toutcome"
    for stage, row in zip(STAGES, values, strict=True):
        (tmp_path / stage.name).mkdir()
        (tmp_path / stage.name / "effects.tsv").write_text(f"{heads}\tvalue\neffect\tticks\t{row.mean()}\n")
    row = TableRow("clear_*", "effects.tsv", {"outcome": "ticks"})
    message = r"clear_a and clear_b play the same worlds \(seed 7\), and effects.tsv"
    assert_refuses(message, Results(STUDY, tmp_path, seeds).values, row, ["value"])
    for stage, numbers in zip(STAGES, values, strict=True):
        lines = [f"effect\tticks\t7/{place}\t{value}" for place, value in enumerate(numbers)]
        table = "\n".join([f"{heads}\tworld\tvalue", *lines, "effect\tlevel\t7/0\t"])
        (tmp_path / stage.name / "effects_by_episode.tsv").write_text(table)
    result = Results(STUDY, tmp_path, seeds).values(row, ["value"])
    crossed = over_trainings([values], "shared", 0.95)
    assert [float(result[f"value.{name}"]) for name in ("mean", "p")] == pytest.approx([crossed.value, crossed.p])
    assert crossed.p > 2 * stats.ttest_1samp(values.mean(axis=1), 0).pvalue


def test_rows_and_columns_that_no_episode_has_are_those_of_the_stages(tmp_path: Path) -> None:
    """The table of episodes has effects only, and neither q nor spread; two arms have the same outcome."""
    for place, stage in enumerate(STAGES):
        (tmp_path / stage.name).mkdir()
        rows = ["measure\tarm\toutcome\tvalue\tspread\tq", f"effect\tedit\tticks\t{place}.5\t{place}\t.0{place}"]
        rows += [f"effect\tedit, b\tticks\t9\t1\t.5{place}", f"bend\tedit\talong\t{place + 2}.5\t1\t.5"]
        (tmp_path / stage.name / "effects.tsv").write_text("\n".join(rows))
        episodes = [f"effect\t{arm}\tticks\t{place}/{n}\t{place + n}" for arm in ("edit", "edit, b") for n in (0, 1)]
        table = "\n".join(["measure\tarm\toutcome\tworld\tvalue", *episodes])
        (tmp_path / stage.name / "effects_by_episode.tsv").write_text(table)
    result = Results(STUDY, tmp_path)
    for where, column, wanted in (
        ({"measure": "bend"}, "value", 3.5),
        ({"outcome": "ticks", "q": ".0*"}, "value", 1.5),
        ({"outcome": "ticks", "arm": "edit"}, "spread", 1.0),
    ):
        assert float(result.values(TableRow("clear_*", "effects.tsv", where), [column])[f"{column}.mean"]) == wanted
    both, bend = (TableRow("clear_*", "effects.tsv", where) for where in ({"outcome": "ticks"}, {"measure": "bend"}))
    assert_refuses("2 rows with outcome 'ticks'", result.values, both, ["value"])  # not the last of both
    seeds = {stage.name: "intervene.py --seed 7" for stage in STAGES}
    assert_refuses(r"same worlds \(seed 7\)", Results(STUDY, tmp_path, seeds).values, bend, ["value"])


def test_difference_of_two_kinds_of_trainings_is_welchs(tmp_path: Path) -> None:
    kinds = {"a": [1.0, 2.5, 2.0], "b": [6.0, 9.5, 4.0, 5.5]}
    stages = []
    for kind, values in kinds.items():
        for number, value in enumerate(values):
            stages.append(Stage(f"{kind}_{number}", "x.py {here}", 1.0))
            (tmp_path / f"{kind}_{number}").mkdir()
            (tmp_path / f"{kind}_{number}" / "t.tsv").write_text(f"value\n{value}\n")
    result = Results(Study(tuple(stages)), tmp_path).values(TableRow("a_*", "t.tsv", {}, "b_*"), ["value"])
    test = stats.ttest_ind(kinds["a"], kinds["b"], equal_var=False)
    low, high = test.confidence_interval(0.95)
    wanted = [sum(kinds["a"]) / 3 - 6.25, low, high, test.pvalue]
    assert [float(result[f"value.{name}"]) for name in ("mean", "low", "high", "p")] == pytest.approx(wanted)
    assert result["value.n"] == "7"


def test_numbers_are_written_as_asked() -> None:
    row = {"value": "-58.307292", "q": "0.0238", "n": "12", "word": "effect", "nothing": ""}
    cases = (("value", "+.1f"), ("q", ".3f"), ("q", ".0%"), ("n", "d"), ("word", ""))
    assert [formatted(row, *case) for case in cases] == ["-58.3", "0.024", "2%", "12", "effect"]
    for column, form, says in (("x", "", "no column"), ("word", "d", "no number"), ("nothing", ".1f", "no number")):
        assert_refuses(says, formatted, row, column, form)


def test_damaged_table_is_refused(tmp_path: Path) -> None:
    for content, says in ((b"", "empty"), (b"a\tb\n1\n", "differ in length"), (b"\xff\xfe", "UTF-8")):
        (tmp_path / "clear_a").mkdir(exist_ok=True)
        (tmp_path / "clear_a" / "effects.tsv").write_bytes(content)
        assert_refuses(says, Results(STUDY, tmp_path).rows, "clear_a", "effects.tsv", {})
