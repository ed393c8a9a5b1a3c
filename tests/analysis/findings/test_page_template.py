"""The text of pages: what a template may hold, and that it can do nothing but show results."""

import pytest

from analysis.findings.page_template import LONGEST, Number, parse_template
from common.user_error import UserError
from tests.analysis.findings.test_study_file import template
from tests.command import assert_refuses

PARTS = {"primary": "None.", "made": "```bash\npython a.py\npython b.py\n```", "tables": "| a |\n| --- |\n| b |"}


def test_claims_are_texts_and_numbers_with_single_spaces() -> None:
    text = parse_template(
        template(
            ("one", '{{ a.value|f("+.1f") }} of\n  `100`, {{ a.value.mean }}\n({{ b.low }})', "  none\n at all.  "),
            ("two", "Nothing.", '{{ a.value.q|f(".3f") }}'),
            parts=(),
        )
    )
    says, control = text.claims["one"]
    assert says == (
        Number("a", "value", "", "+.1f"), " of `100`, ", Number("a", "value", "mean"), " (", Number("b", "low"), ")",
    )  # fmt: skip
    assert control == ("none at all.",) and list(text.claims) == ["one", "two"]
    assert text.claims["two"] == (("Nothing.",), (Number("a", "value", "q", ".3f"),))


def test_paragraphs_and_lists_may_be_wrapped_but_what_is_shown_stays_as_it_is() -> None:
    source = template(("one", "A.", "B."), parts=("tables",)).replace(
        "- One kind of agent.", "- One kind\n  of agent.\n- Another, `x`\n  (y).\n\n> q"
    )
    page = parse_template(source).render({"one": "- A. *Control:* B.\n"}, PARTS)
    assert page == (
        "# What the memory is for\n\nDoes `start_kit_3M` need it?\n\nNone.\n\n## Findings\n\n- A. *Control:* B.\n\n"
        f"{PARTS['tables']}\n\n## What this does not show\n\n- One kind of agent.\n- Another, `x` (y).\n\n> q\n\n"
        f"{PARTS['made']}\n"
    )


def test_what_results_hold_is_never_a_template() -> None:
    text = parse_template(template(("one", "{{ a.value }}", "none"), parts=()))
    assert "{{ made }} {% raw %} <b>" in text.render({"one": "{{ made }} {% raw %} <b>\n"}, PARTS)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{{ primary }}", "each once"),
        ("{{ results }}", "only primary, made, tables, forests, figures"),
        ("{{ primary.__class__ }}", "only primary"),
        ("{{ primary|upper }}", "only primary"),
        ("{{ ''.__class__.__mro__ }}", "only primary"),
        ("{{ range(9) }}", "only primary"),
        ("{{ 9 ** 9 ** 9 }}", "only primary"),
        ("{% for a in primary %}a{% endfor %}", "only text, claims"),
        ("{% set a = primary %}", "only text, claims"),
        ("{% include 'x' %}", "only text, claims"),
        ("{% extends 'x' %}", "only text, claims"),
        ("{% import 'x' as x %}", "only text, claims"),
        ("{% macro a() %}{% endmacro %}", "only text, claims"),
        ("{% call claim('x') %}{% endcall %}", "write {% claim NAME %}"),
        ("{% call claim() %}{% endcall %}", "write {% claim NAME %}"),
        ("{% call claim('x') %}{% autoescape true %}{% endautoescape %}{% endcall %}", "write {% claim NAME %}"),
        ("{% claim one %}A.{% control %}B.{% endclaim %}", "there twice"),
        ("{% claim 'x' %}A.{% control %}B.{% endclaim %}", "expected token 'name'"),
        ("{% claim x %}A.{% endclaim %}", "endclaim"),
        ("{% claim x %}A.", "Unexpected end"),
        ("{% claim x %}{% claim y %}A.{% control %}B.{% endclaim %}{% control %}B.{% endclaim %}", "a number is"),
        ("{% claim x %}{% if a %}A.{% endif %}{% control %}B.{% endclaim %}", "only text, claims"),
        ("{% claim x %}It takes 58 ticks.{% control %}B.{% endclaim %}", "the number 58"),
        ("{% claim x %}A.{% control %}random: 12.3{% endclaim %}", "the number 12"),
        ("{% claim x %}{{ a }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ("{% claim x %}{{ a.b.c.d }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ("{% claim x %}{{ a.b() }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ("{% claim x %}{{ a.b|upper }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ("{% claim x %}{{ 'a'.b }}{% control %}B.{% endclaim %}", "a number is {{ ROW.COLUMN }}"),
        ('{% claim x %}{{ a.b|f(">40") }}{% control %}B.{% endclaim %}', "is no format"),
        ("{% claim x %}{{ a.b|f(primary) }}{% control %}B.{% endclaim %}", "is no format"),
        ("3 trainings", "the number 3"),
        ("{{ a.b", "expected"),
        ("{{ " + "(" * 5000 + " }}", ""),
        ("{{ " + "9" * 5000 + " }}", ""),
        ("x" * LONGEST, "at most"),
    ],
)
def test_anything_else_is_refused_in_one_line(bad: str, says: str) -> None:
    source = template(("one", "A.", "B."), parts=())
    parse_template(source)
    with pytest.raises(UserError) as error:
        parse_template(source.replace("- One kind of agent.", bad))
    assert says in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("part", ["{{ primary }}", "{{ made }}", "## Findings", "## What this does not show"])
def test_a_page_without_what_all_have_is_refused(part: str) -> None:
    source = template(("one", "A.", "B."), parts=())
    assert_refuses(r"does not show|has no heading", parse_template, source.replace(part, "x"))
