"""How well erased variables could be read before and after, in lines for the terminal and as a table."""

from collections.abc import Sequence
from dataclasses import fields

from activation_store.interventions import Readability


def readability_lines(erased: Sequence[Readability]) -> list[str]:
    """Return a line for each erased variable of each arm, with a heading; empty if nothing was erased."""
    if not erased:
        return []
    return [
        "",
        "Erased variables, by R2 of linear read-outs (1: exact; 0 or less: no better than a constant):",
        *map(_line, erased),
    ]


def erased_table(erased: Sequence[Readability]) -> str:
    """Return a row for each erased variable of each arm, tab-separated; what was not measured stays empty."""
    names = [each.name for each in fields(Readability)]
    rows = [["" if (value := getattr(each, name)) is None else str(value) for name in names] for each in erased]
    return "\n".join("\t".join(row) for row in [names, *rows]) + "\n"


def _line(each: Readability) -> str:
    if each.unedited is None and each.in_play is None:
        play = "not measured in play: it needs more than four episodes"
    else:
        play = f"in other episodes {_number(each.unedited)} unedited, {_number(each.in_play)} edited in play"
    return (
        f"  {each.arm}: {each.variable} in {each.layer}: {_number(each.before)} in {each.states:,} unedited states, "
        f"{_number(each.after)} once they are erased; {play}"
    )


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value + 0.0:.3f}".replace("-0.000", "0.000")
