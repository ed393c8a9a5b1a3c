"""The table of all claims: one more correction over the tests of all pages."""

from pathlib import Path

import pytest
from scipy import stats

from analysis.findings.all_claims import END, START, Claimed, claims_of, claims_table, write_claims
from analysis.findings.page import History, Played, write_page
from tests.analysis.findings.test_study_file import CONTROL, SAYS, STUDY, template, written
from tests.command import assert_refuses


def test_tests_of_all_pages_are_corrected_together() -> None:
    p = [0.01, 0.02, 0.2]
    claims = [
        Claimed("a", "One | two.", {"x": p[0], "y": p[2]}),
        Claimed("b", "None.", {}),
        Claimed("b", "B.", {"z": p[1]}),
    ]
    q = stats.false_discovery_control(p)
    assert claims_table(claims).splitlines()[3:-1] == [
        f"| [a](findings/a.md) | One \\| two. | x: .0100, {q[0]:.4f}; y: .2000, {q[2]:.4f} |".replace(" 0.", " ."),
        "| [b](findings/b.md) | None. | none |",
        f"| [b](findings/b.md) | B. | z: .0200, {q[1]:.4f} |".replace(" 0.", " ."),
    ]


def test_claims_are_those_of_the_pages(tmp_path: Path) -> None:
    """A row of one stage has the p of its table; a mean over trainings has its own; controls are no claims."""
    values = {"clear_a": -58.5, "clear_b": -60.25, "page": 0.0}
    for stage, value in values.items():
        (tmp_path / "results" / stage).mkdir(parents=True)
        table = f"outcome\tvalue\trandom\tp\nticks\t{value}\t12.27\t0.04\n"
        (tmp_path / "results" / stage / "effects.tsv").write_text(table)
        (tmp_path / "results" / stage / "effects.png").write_bytes(b"")
    (tmp_path / "pages").mkdir()
    shown = {name: part for name, part in STUDY.items() if name != "forests"}
    study = written(tmp_path, shown, template(("much", SAYS, CONTROL), parts=("tables", "figures")))
    played = [Played(name, f"intervene.py --seed {place} -o x/{name}", 6.0, {}) for place, name in enumerate(values)]
    write_page(study, tmp_path / "results", History(played), tmp_path / "pages" / "p.md")
    (claim,) = claims_of([tmp_path / "pages" / "p.md"])
    assert claim.says.startswith("It takes -58.5 of") and "over 2 trainings" in claim.says
    assert claim.p == pytest.approx({"one": 0.04, "all": stats.ttest_1samp([-58.5, -60.25], 0).pvalue})
    file = tmp_path / "findings.md"
    file.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    assert write_claims(file, tmp_path / "pages") == 1
    assert file.read_text() == f"before\n{claims_table([claim])}\nafter\n"
    file.write_text("nothing")
    assert_refuses("has no lines", write_claims, file, tmp_path / "pages")
