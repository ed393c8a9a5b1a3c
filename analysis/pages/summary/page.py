"""One self-contained offline page of a run: what it found, in lines and figures, and the command that repeats it."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.pages.pages import environment, figures_of, style_of

_HERE = Path(__file__).parent


Section = tuple[str, Sequence[str], Mapping[str, str]]
"""A part of a page: its title; what was found, where lines that begin with a space are details of the line before, and
empty ones begin a new paragraph; and how to read each figure, by its file's name in the run's folder."""


def summary_page(folder: Path, heading: str, sections: Sequence[Section], command: Sequence[str]) -> str:
    """Return the page as HTML.

    Args:
        sections: in order; figures that were not drawn are left out.
    """
    return (
        environment(_HERE, trim=True)
        .get_template("template.html")
        .render(
            name=folder.resolve().name,
            heading=heading,
            sections=[_shown(folder, *section) for section in sections],
            command=shlex.join(command),
            style=style_of("document"),
        )
    )


def command_of(script: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Return the command line of a run: the dump, and every option that differs from its default."""
    words = ["python", script, str(arguments["dump"])]
    for name, value in arguments.items():
        if name == "dump" or value == defaults.get(name):
            continue
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


def _shown(folder: Path, title: str, lines: Sequence[str], figures: Mapping[str, str]) -> dict[str, Any]:
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line:
            paragraphs[-1].append(line)
        else:
            paragraphs.append([])
    filled = [_paragraph(part) for part in paragraphs if part]
    return {"title": title, "paragraphs": filled, "figures": figures_of(folder, figures)}


def _paragraph(lines: Sequence[str]) -> dict[str, list[str]]:
    details = [line.strip() for line in lines if line.startswith(" ")]
    return {"lines": [line for line in lines if not line.startswith(" ")], "details": details}
