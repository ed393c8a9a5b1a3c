"""One self-contained offline page of a run: what it found, in lines and figures, and the command that repeats it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.pages.pages import environment, figures_of, style_of

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        lines: what was found; those that begin with a space are details of the line before, empty ones begin a new
            paragraph.
        figures: file names of figures in the run's folder, and how to read each.
    """

    title: str
    lines: Sequence[str]
    figures: Mapping[str, str]


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
            sections=[_shown(folder, section) for section in sections],
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


def _shown(folder: Path, section: Section) -> dict[str, Any]:
    paragraphs: list[list[str]] = [[]]
    for line in section.lines:
        if line:
            paragraphs[-1].append(line)
        else:
            paragraphs.append([])
    filled = [_paragraph(lines) for lines in paragraphs if lines]
    return {"title": section.title, "paragraphs": filled, "figures": figures_of(folder, section.figures)}


def _paragraph(lines: Sequence[str]) -> dict[str, list[str]]:
    details = [line.strip() for line in lines if line.startswith(" ")]
    return {"lines": [line for line in lines if not line.startswith(" ")], "details": details}
