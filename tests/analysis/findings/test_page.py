"""Pages, and the table of all claims: means that are corrected together, rounded columns, tables on their side."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from analysis.findings.forest import draw_forest
from analysis.findings.page import (
    END,
    START,
    History,
    Named,
    Played,
    claims_of,
    claims_table,
    page_text,
    write_claims,
    write_page,
)
from analysis.findings.page_template import parse_template
from analysis.findings.results import Results, formatted, mean_over_trainings
from analysis.findings.study_file import Claim, Forest, Primary, ResultTable, Stage, Study, TableRow
from analysis.statistics.over_trainings import over_trainings
from tests.analysis.findings.test_study_file import CONTROL, SAYS, STUDY, template, written
from tests.command import assert_refuses

VALUES = {"x_1": (1.0, 5.0), "x_2": (1.4, 5.5), "x_3": (0.8, 5.1), "y": (2.0, -1.0)}
HISTORY = History([])
SCORES = "method\tmeasure\tvalue\tlow\thigh\nA\thalves\t0.5\t0.4\t0.6\nA\tseeds\t0.25\t0.125\t0.5\nB\tseeds\t1\t0\t2\n"


def write_table(folder: Path, stage: str, *rows: str, name: str = "effects.tsv") -> None:
    """Write a table of a stage's results, its heads first."""
    (folder / stage).mkdir(parents=True, exist_ok=True)
    (folder / stage / name).write_text("\n".join(rows) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for place, (stage, (first, second)) in enumerate(VALUES.items()):
        rows = (f"one\t{first}\t", f"two\t{second}\t0.04", f"three\t0.0{place}\t0.9")
        write_table(tmp_path, stage, "outcome\tvalue\tq", *rows)
        write_table(tmp_path, stage, SCORES.rstrip(), name="scores.tsv")
    return tmp_path


def study(
    *claimed: tuple[str, str, dict[str, TableRow]], tables: tuple[ResultTable, ...] = (), **parts: tuple
) -> Study:
    """A study with claims: a sentence, a control, and rows each."""
    claims = [(f"claim_{'abc'[place]}", *claim[:2]) for place, claim in enumerate(claimed)]
    shown = tuple(name for name, item in (("tables", tables), ("forests", parts.get("forests"))) if item)
    text = parse_template(template(*claims, parts=shown))
    rows = [claim[2] for claim in claimed]
    claimed = tuple(Claim(name, *both, own) for (name, both), own in zip(text.claims.items(), rows, strict=True))
    stages = tuple(Stage(name, "explore.py --output {here}", 1.0) for name in VALUES)
    return Study(stages, claimed, text, tables, **parts)


def mean_of(outcome: str) -> TableRow:
    return TableRow("x_*", "effects.tsv", {"outcome": outcome})


STUDY_FILE = {
    "stages": [{"name": name, "run": "explore.py --output {here}", "minutes": 1} for name in VALUES],
    "claims": {"much": {"a": vars(mean_of("one"))}},
}


def p_of(*values: float) -> float:
    return float(stats.ttest_1samp(values, 0).pvalue)


def test_q_covers_every_mean_of_the_page_said_or_not(folder: Path) -> None:
    """Only the first outcome is said, but the stages' tables hold three. The table's own q stays."""
    own = TableRow("y", "effects.tsv", {"outcome": "two"})
    claims = (
        ('A {{ a.value.q|f(".6f") }}, table {{ own.q|f(".2f") }}', 'none {{ control.value.mean|f(".1f") }}',
         {"a": mean_of("one"), "own": own, "control": mean_of("three")}),
        ('B {{ b.value.q|f(".6f") }}', "none", {"b": mean_of("two")}),
    )  # fmt: skip
    for printed, numbers in ((claims, 4), (claims[:1], 3)):
        asked = study(*printed)
        text, count = page_text(asked, Results(asked, folder), HISTORY, "t")
        q = stats.false_discovery_control([p_of(1.0, 1.4, 0.8), p_of(5.0, 5.5, 5.1), p_of(0.00, 0.01, 0.02)])
        assert f"A {q[0]:.6f}, table 0.04" in text and count == numbers
        assert q[0] > p_of(1.0, 1.4, 0.8)
    assert f"B {q[1]:.6f}" not in text


def test_levels_are_no_tests() -> None:
    """That an AUC is not 0 would make everything else look surer."""
    for level in ("score", "accuracy", "twin"):
        says = f'{{{{ a.{level}.mean|f(".1f") }}}} and {{{{ a.value.mean|f(".1f") }}}}'
        (claim,) = study((says, "none", {"a": mean_of("one")})).claims
        assert claim.columns("a") == [level, "value"] and claim.tested("a") == ["value"]
        single = replace(claim, rows={"a": TableRow("x_1", "effects.tsv", {"outcome": "one"})})
        assert single.tested("a") == [level, "value"], "its p is that of the stage's own test"


def test_what_is_above_0_whatever_an_edit_does_is_no_test(folder: Path) -> None:
    """How far edited states lie from recorded ones, how usual a change is, divergences: they correct nothing else."""
    levels = {"kl_total": 0.1, "gain_total/x": 0.0, "off_manifold": 1.0, "within_data": 0.99, "edited_ticks": 40.0}
    for place, stage in enumerate(("x_1", "x_2", "x_3")):
        rows = [f"at once\t{name}\t{value + (0.001, 0.004, 0.002)[place]}" for name, value in levels.items()]
        rows += [f"slope\t{name}\t{place / 1000}" for name in ("kl_total", "off_manifold")]
        write_table(folder, stage, "measure\toutcome\tvalue", *rows, name="levels.tsv")
    gain = TableRow("x_*", "levels.tsv", {"measure": "at once", "outcome": "gain_total/x"})
    kl, far, slope = (
        replace(gain, where={"measure": of, "outcome": outcome})
        for of, outcome in (("at once", "kl_total"), ("at once", "off_manifold"), ("slope", "off_manifold"))
    )
    says = '{{ gain.value.q|f(".6f") }}, {{ kl.value.mean|f(".1f") }}, {{ far.value.mean|f(".1f") }}, '
    rows_said = {"gain": gain, "kl": kl, "far": far, "slope": slope}
    asked = study((says + '{{ slope.value.mean|f(".1f") }}', "none", rows_said))
    assert [asked.claims[0].tested(name) for name in rows_said] == [["value"], [], [], ["value"]]
    p = [p_of(0.001, 0.004, 0.002), *[p_of(0, 0.001, 0.002)] * 2]  # of a gain, and of both slopes
    text, _ = page_text(asked, Results(asked, folder), HISTORY, "t")
    assert f"- {stats.false_discovery_control(p)[0]:.6f}, 0.1, 1.0, 0.0" in text


def test_primary_outcomes_are_corrected_by_themselves_and_the_page_says_since_when(folder: Path) -> None:
    row, two = mean_of("one"), mean_of("two")
    claim = ('A {{ a.value.q_primary|f(".6f") }} and {{ b.value.q|f(".6f") }}', "none", {"a": row, "b": two})
    asked = study(claim, primary=(Primary(row.stage, row.file, row.where),))
    outcome = str(asked.primary[0])
    for named, says in (
        (Named("2026-11-24", 0, [outcome]), "named on 2026-11-24, before any stage was begun"),
        (Named("2026-11-24", 2, [outcome]), "named on 2026-11-24, after 2 of 4 stages had been begun"),
        (Named("2026-11-24", 0, ["another"]), "date not recorded"),
        (None, "date not recorded"),
    ):
        text, _ = page_text(asked, Results(asked, folder), History([], named), "t")
        assert f"Primary outcomes ({says}):\n\n- {outcome}" in text
        assert f"A {p_of(1.0, 1.4, 0.8):.6f} and" in text  # one primary outcome: nothing to correct for
    plain = study(('{{ a.value.mean|f(".1f") }}', "none", {"a": row}))
    assert "No primary outcome was named" in page_text(plain, Results(plain, folder), HISTORY, "t")[0]


def test_page_without_one_of_its_figures_is_refused(folder: Path) -> None:
    """And leaves nothing behind; a table of episodes may be missing, as earlier runs wrote none."""
    figures = [{"stage": "y", "file": "effects.png", "caption": "Effects."}]
    text = template(("much", '{{ a.value.mean|f(".1f") }}', "none"), parts=("figures",))
    path = written(folder, {**STUDY_FILE, "figures": figures}, text)
    write = partial(write_page, path, folder, HISTORY, folder / "pages" / "t.md")
    assert_refuses(r"effects\.png does not exist", write)
    assert not (folder / "pages").exists()
    (folder / "y" / "effects.png").write_bytes(b"")
    write()
    assert (folder / "pages" / "t" / "y" / "effects.png").exists()


@pytest.mark.parametrize("mine", ["t/mine.txt", "t/study.yaml", ".t.new/mine.txt", "t.md"])
def test_what_no_study_wrote_is_not_replaced(folder: Path, mine: str) -> None:
    """Not when the page is written, and what the study wrote itself is."""
    path = written(folder, STUDY_FILE, template(("much", '{{ a.value.mean|f(".1f") }}', "none"), parts=()))
    kept = folder / "pages" / mine
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    assert_refuses("not (of|the page of) a study", write_page, path, folder, HISTORY, folder / "pages" / "t.md")
    assert kept.read_text() == "mine" and [item.name for item in (folder / "pages").iterdir()] == [mine.split("/")[0]]
    kept.unlink()
    for _ in range(2):
        write_page(path, folder, HISTORY, folder / "pages" / "t.md")


def test_a_page_that_was_killed_as_it_replaced_another_is_written_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each renaming and each removal, which takes the mark of a study first."""
    path = written(folder, STUDY_FILE, template(("much", '{{ a.value.mean|f(".1f") }}', "none"), parts=()))
    write = partial(write_page, path, folder, HISTORY, folder / "pages" / "t.md")
    write()
    whole, rename, remove = sorted((folder / "pages").rglob("*")), Path.rename, shutil.rmtree
    left = 0

    def killed(is_removal: bool, here: Path, there: Path | None = None, ignore_errors: bool = False) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            if is_removal and here.exists():
                (here / "stages.json").unlink()
            raise KeyboardInterrupt
        rename(here, there) if there else remove(here, ignore_errors)

    for moment in range(4):
        left = moment
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, "rename", lambda here, there: killed(False, here, there))
            patch.setattr(shutil, "rmtree", partial(killed, True))
            write()
        write()
        assert sorted((folder / "pages").rglob("*")) == whole


def test_columns_are_rounded_what_is_empty_stays_so_and_contents_become_columns(folder: Path) -> None:
    table = ResultTable("T", "y", "effects.tsv", ("outcome", "value:+.2f", "q:.1f"))
    asked = study(tables=(table,))
    text, numbers = page_text(asked, Results(asked, folder), HISTORY, "t")
    assert "| one | +2.00 |  |" in text and "| two | -1.00 | < 0.1 |" in text and numbers == 9
    across = ResultTable("T", "y", "scores.tsv", ("method",), across="measure", digits=1)
    asked = study(tables=(across,))
    text, _ = page_text(asked, Results(asked, folder), HISTORY, "t")
    assert "| method | halves | seeds |" in text
    assert "| A | 0.5 (0.4 to 0.6) | 0.2 (0.1 to 0.5) |" in text and "| B |  | 1.0 (0.0 to 2.0) |" in text
    write_table(folder, "y", "method\tmeasure\tvalue\tlow\thigh", "A\thalves\t1\t\t", name="alike.tsv")  # no interval
    asked = study(tables=(replace(across, file="alike.tsv"),))
    assert "| A | 1.0 |" in page_text(asked, Results(asked, folder), HISTORY, "t")[0]
    write_table(folder, "y", "method\tmeasure\tvalue\tlow\thigh", *["A\thalves\t1\t0\t2"] * 2, name="twice.tsv")
    asked = study(tables=(ResultTable("T", "y", "twice.tsv", ("method",), across="measure", digits=1),))
    assert_refuses("two rows for one cell", page_text, asked, Results(asked, folder), HISTORY, "t")


def test_rows_of_a_pattern_are_ordered_by_a_column(folder: Path) -> None:
    """`*` stands for any text, and nothing else in a pattern does for anything but itself."""
    rows = "edit, e\t\nedit, a\t2\nedit, b\t10\nuntrained, edit\t99\nedit.c\t50\nedit, d\t-1\n"
    (folder / "y" / "arms.tsv").write_text("arm\tvalue\n" + rows)
    table = ResultTable("T", "y", "arms.tsv", ("arm", "value:.0f"), {"arm": "edit, *"}, largest_first="value")
    asked = study(tables=(table, replace(table, where={"arm": "edit.*"})))
    text, numbers = page_text(asked, Results(asked, folder), HISTORY, "t")
    first, second = text.split("**T**")[1:]
    ordered, one = ([line for line in part.splitlines() if "edit" in line] for part in (first, second))
    assert ordered == ["| edit, b | 10 |", "| edit, a | 2 |", "| edit, d | -1 |", "| edit, e |  |"]
    assert one == ["| edit.c | 50 |"] and numbers == 10


def test_trainings_are_drawn_beside_their_mean_and_control(folder: Path) -> None:
    """Three trainings, their mean and the control's; the mean is where the claim says it is."""
    for stage, (first, second) in VALUES.items():
        row = f"one\t{first}\t{first - 1}\t{first + 2}\t{second}"
        write_table(folder, stage, "outcome\tvalue\tlow\thigh\trandom_value", row)
    forest = Forest("Lives", "ticks", "effects.tsv", {"outcome": "one"}, {"kit": "x_*"}, "random_value")
    asked = study(forests=(forest,))
    (axes,) = draw_forest(forest, asked, Results(asked, folder)).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["1", "2", "3", "mean of the trainings", "control: random"]
    drawn = [bars[0].get_xdata()[0] for bars in axes.containers]
    assert drawn == pytest.approx([1.0, 1.4, 0.8, 3.2 / 3, 5.2])
    text, _ = page_text(asked, Results(asked, folder), HISTORY, "t")
    assert "![Lives](t/forest_1.png)" in text and "grey, that of the control" in text
    write_table(folder, "x_2", "outcome\tvalue\tlow\thigh\trandom_value", "one\t1.4\t\t\t5.5")  # all episodes agree
    (axes,) = draw_forest(forest, asked, Results(asked, folder)).axes
    assert [bars[0].get_xdata()[0] for bars in axes.containers] == pytest.approx(drawn)
    have_interval = [len(bars[2][0].get_segments()[0]) > 0 for bars in axes.containers]
    assert have_interval == [True, False, True, True, True]


def test_tests_of_all_pages_are_corrected_together() -> None:
    p = [0.01, 0.02, 0.2]
    of_a, of_b = {"x": p[0], "y": p[2]}, {"z": p[1]}
    claims = [("a", "One | two.", of_a), ("b", "None.", {}), ("b", "B.", of_b)]
    q = [f"{value:.4f}".removeprefix("0") for value in stats.false_discovery_control(p)]
    assert claims_table(claims, "findings").splitlines()[3:-1] == [
        f"| [a](findings/a.md) | One \\| two. | x: .0100, {q[0]}; y: .2000, {q[2]} |",
        "| [b](findings/b.md) | None. | none |",
        f"| [b](findings/b.md) | B. | z: .0200, {q[1]} |",
    ]


def test_claims_are_those_of_the_pages(tmp_path: Path) -> None:
    """A row of one stage has the p of its table; a mean over trainings has its own; controls are no claims."""
    values = {"clear_a": -58.5, "clear_b": -60.25, "page": 0.0}
    for stage, value in values.items():
        write_table(tmp_path / "results", stage, "outcome\tvalue\trandom\tp", f"ticks\t{value}\t12.27\t0.04")
        (tmp_path / "results" / stage / "effects.png").write_bytes(b"")
    (tmp_path / "pages").mkdir()
    shown = {name: part for name, part in STUDY.items() if name != "forests"}
    study = written(tmp_path, shown, template(("much", SAYS, CONTROL), parts=("tables", "figures")))
    played = [Played(name, f"intervene.py --seed {place} -o x/{name}", 6.0, {}) for place, name in enumerate(values)]
    write_page(study, tmp_path / "results", History(played), tmp_path / "pages" / "p.md")
    (claim,) = claims_of([tmp_path / "pages" / "p.md"])
    name, says, p = claim
    assert name == "p" and says.startswith("It takes -58.5 of") and "over 2 trainings" in says
    assert p == pytest.approx({"one": 0.04, "all": stats.ttest_1samp([-58.5, -60.25], 0).pvalue})
    file = tmp_path / "findings.md"
    file.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    assert write_claims(file, tmp_path / "pages") == 1
    assert file.read_text() == f"before\n{claims_table([claim], 'pages')}\nafter\n"
    file.write_text("nothing")
    assert_refuses("has no lines", write_claims, file, tmp_path / "pages")
    assert_refuses("holds no pages of studies", write_claims, file, tmp_path / "page")
    file.write_bytes(b"caf\xe9")
    assert_refuses("is not UTF-8 text", write_claims, file, tmp_path / "pages")


STAGES = tuple(Stage(f"clear_{each}", "x.py {here}", 1.0) for each in ("a", "b", "c"))
OF_THREE = Study(STAGES)


def test_a_row_is_the_one_that_is_meant_and_a_mean_has_students_interval(tmp_path: Path) -> None:
    for stage, value in zip(STAGES, ("-58.3", "-29.5", "-24.2"), strict=True):
        levels = ("level\t0.5\tnot found", "level\t\tnot found")
        write_table(tmp_path, stage.name, "outcome\tvalue\tverdict", f"ticks\t{value}\teffect", *levels)
    results = Results(OF_THREE, tmp_path)
    row = results.values(TableRow("clear_b", "effects.tsv", {"outcome": "ticks"}))
    assert row == {"outcome": "ticks", "value": "-29.5", "verdict": "effect"}
    for where in ({}, {"outcome": "level"}, {"outcome": "meals"}):
        assert_refuses("rows with", results.values, TableRow("clear_b", "effects.tsv", where))
    assert_refuses("does not exist", results.values, TableRow("clear_b", "x.tsv"))
    assert_refuses("no column", results.values, TableRow("clear_b", "effects.tsv", {"x": "y"}))
    values = [-58.3, -29.5, -24.2]
    result = results.values(TableRow("clear_*", "effects.tsv", {"outcome": "ticks"}), ["value"])
    test = stats.ttest_1samp(values, 0)
    wanted = [sum(values) / 3, *test.confidence_interval(0.95), test.pvalue]
    assert [float(result[f"value.{name}"]) for name in ("mean", "low", "high", "p")] == pytest.approx(wanted)
    assert result["value.n"] == "3"
    nothing = mean_over_trainings([[{"a": np.nan, "b": 1.0}, {"a": 2.0, "b": np.nan}]])
    assert nothing == {"mean": "nan", "low": "nan", "high": "nan", "p": "nan", "n": "2"}
    assert_refuses("1 training", mean_over_trainings, [[{"a": 1.0}]])
    assert_refuses("number of all stages", mean_over_trainings, [[{"a": 1.5}, {"b": 1.5}, {"c": 1.5}]])
    assert float(mean_over_trainings([[{"a": 0.0}, {"b": 0.0}]])["mean"]) == 0
    assert_refuses("no number", results.values, TableRow("clear_*", "effects.tsv", {"outcome": "ticks"}), ["verdict"])


def test_trainings_that_played_the_same_worlds_need_the_numbers_of_each(tmp_path: Path) -> None:
    """Played with one seed: refused with nothing but means, and with the episodes, as `over_trainings` has it."""
    seeds = {stage.name: f"intervene.py -p {stage.name} --seed 7 -o {stage.name}" for stage in STAGES}
    values = np.array([[-58.0, -20.0, 3.0], [-30.0, -31.0, 8.0], [-20.0, -28.0, 1.0]])
    heads = "measure\toutcome"
    for stage, row in zip(STAGES, values, strict=True):
        write_table(tmp_path, stage.name, f"{heads}\tvalue", f"effect\tticks\t{row.mean()}")
    row = TableRow("clear_*", "effects.tsv", {"outcome": "ticks"})
    message = r"clear_a and clear_b play the same worlds \(seed 7\), and effects.tsv"
    assert_refuses(message, Results(OF_THREE, tmp_path, seeds).values, row, ["value"])
    for stage, numbers in zip(STAGES, values, strict=True):
        lines = [f"effect\tticks\t7/{place}\t{value}" for place, value in enumerate(numbers)]
        lines = [f"{heads}\tworld\tvalue", *lines, "effect\tlevel\t7/0\t"]
        write_table(tmp_path, stage.name, *lines, name="effects_by_episode.tsv")
    result = Results(OF_THREE, tmp_path, seeds).values(row, ["value"])
    crossed = over_trainings([values], "shared", 0.95)
    assert [float(result[f"value.{name}"]) for name in ("mean", "p")] == pytest.approx([crossed.value, crossed.p])
    assert crossed.p > 2 * stats.ttest_1samp(values.mean(axis=1), 0).pvalue


def test_rows_and_columns_that_no_episode_has_are_those_of_the_stages(tmp_path: Path) -> None:
    """The table of episodes has effects only, and neither q nor spread; two arms have the same outcome."""
    for place, stage in enumerate(STAGES):
        rows = ["measure\tarm\toutcome\tvalue\tspread\tq", f"effect\tedit\tticks\t{place}.5\t{place}\t.0{place}"]
        rows += [f"effect\tedit, b\tticks\t9\t1\t.5{place}", f"bend\tedit\talong\t{place + 2}.5\t1\t.5"]
        write_table(tmp_path, stage.name, *rows)
        episodes = [f"effect\t{arm}\tticks\t{place}/{n}\t{place + n}" for arm in ("edit", "edit, b") for n in (0, 1)]
        heads = "measure\tarm\toutcome\tworld\tvalue"
        write_table(tmp_path, stage.name, heads, *episodes, name="effects_by_episode.tsv")
    result = Results(OF_THREE, tmp_path)
    for where, column, wanted in (
        ({"measure": "bend"}, "value", 3.5),
        ({"outcome": "ticks", "q": ".0*"}, "value", 1.5),
        ({"outcome": "ticks", "arm": "edit"}, "spread", 1.0),
    ):
        assert float(result.values(TableRow("clear_*", "effects.tsv", where), [column])[f"{column}.mean"]) == wanted
    both, bend = (TableRow("clear_*", "effects.tsv", where) for where in ({"outcome": "ticks"}, {"measure": "bend"}))
    assert_refuses("2 rows with outcome 'ticks'", result.values, both, ["value"])  # not the last of both
    seeds = {stage.name: "intervene.py --seed 7" for stage in STAGES}
    assert_refuses(r"same worlds \(seed 7\)", Results(OF_THREE, tmp_path, seeds).values, bend, ["value"])


def test_difference_of_two_kinds_of_trainings_is_welchs(tmp_path: Path) -> None:
    kinds = {"a": [1.0, 2.5, 2.0], "b": [6.0, 9.5, 4.0, 5.5]}
    stages = []
    for kind, values in kinds.items():
        for number, value in enumerate(values):
            stages.append(Stage(f"{kind}_{number}", "x.py {here}", 1.0))
            write_table(tmp_path, f"{kind}_{number}", "value", str(value), name="t.tsv")
    result = Results(Study(tuple(stages)), tmp_path).values(TableRow("a_*", "t.tsv", {}, "b_*"), ["value"])
    test = stats.ttest_ind(kinds["a"], kinds["b"], equal_var=False)
    wanted = [sum(kinds["a"]) / 3 - 6.25, *test.confidence_interval(0.95), test.pvalue]
    assert [float(result[f"value.{name}"]) for name in ("mean", "low", "high", "p")] == pytest.approx(wanted)
    assert result["value.n"] == "7"


def test_numbers_are_written_as_asked_and_a_damaged_table_is_refused(tmp_path: Path) -> None:
    row = {"value": "-58.307292", "q": "0.0238", "n": "12", "word": "effect", "nothing": ""}
    cases = (("value", "+.1f"), ("q", ".3f"), ("q", ".0%"), ("n", "d"), ("word", ""))
    assert [formatted(row, *case) for case in cases] == ["-58.3", "0.024", "2%", "12", "effect"]
    tiny = dict.fromkeys(("p", "value.p", "random_q", "q_primary", "p_of_moves"), "3e-15")
    assert [formatted(tiny, column, ".4f") for column in tiny] == ["< 0.0001"] * 4 + ["0.0000"]
    forms = {".3f": "< 0.001", "+.3f": "< 0.001", ".0%": "< 1%", "+.1%": "< 0.1%", "d": "< 1"}
    assert [formatted({"q": "0.000000"}, "q", form) for form in forms] == list(forms.values())
    for column, form, says in (("x", "", "no column"), ("word", "d", "no number"), ("nothing", ".1f", "no number")):
        assert_refuses(says, formatted, row, column, form)
    for content, says in ((b"", "empty"), (b"a\tb\n1\n", "differ in length"), (b"\xff\xfe", "UTF-8")):
        (tmp_path / "clear_a").mkdir(exist_ok=True)
        (tmp_path / "clear_a" / "effects.tsv").write_bytes(content)
        assert_refuses(says, Results(OF_THREE, tmp_path).rows, "clear_a", "effects.tsv", {})
