"""What --help shows: a script's description and its options without ragged lines, however wide the terminal is."""

import functools
import re
import shutil
import textwrap
from collections.abc import Sequence

HELP = ("-h", "--help", "-H", "--help-verbose")
_WIDEST = 120
_INDENT = 4
_OPTION_COLUMN = 34
_OPTION = re.compile(r"(?<= )(--?[\w.-]+) (?=[^- ])")


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for help."""
    return any(argument in HELP for argument in arguments)


def print_description(description: str) -> None:
    """Print a script's docstring: paragraphs are filled, and comments that do not fit stand above their example."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    print("\n".join(_shown(description.strip(), width)) + "\n")


def join_lines_of_options() -> None:
    """Let tyro fill the descriptions of options.

    It does so on its own, but keeps the line ends before lines that are indented, as those of docstrings of fields are.
    """
    from tyro import _docstrings

    read = _docstrings.parse_docstring_from_object

    @functools.cache
    def joined(obj: object) -> dict[str, str]:
        return {name: " ".join(text.split()) for name, text in read(obj).items()}

    _docstrings.parse_docstring_from_object = joined


def _shown(description: str, width: int) -> list[str]:
    lines: list[str] = []
    for block in description.split("\n\n"):
        if block.startswith(" "):
            examples = block.splitlines()
            if examples[0].lstrip().startswith("-"):
                lines += [line for example in examples for line in _option(example, width)]
                examples = []
            apart = any(len(line) > width for line in examples)
            for line in examples:
                lines += _example(line, width) if apart else [line]
        else:
            lines += textwrap.wrap(" ".join(block.split()), width, break_on_hyphens=False, break_long_words=False)
        lines.append("")
    return lines[:-1]


def _option(line: str, width: int) -> list[str]:
    name, _, meaning = line.strip().partition("  # ")
    column = " " * (_INDENT + _OPTION_COLUMN)
    return textwrap.wrap(
        meaning, width, initial_indent=f"{' ' * _INDENT}{name:<{_OPTION_COLUMN}}", subsequent_indent=column
    )


def _example(line: str, width: int) -> list[str]:
    command, _, comment = line.partition("  # ")
    indent = " " * _INDENT
    above = textwrap.wrap(comment.strip(), width - _INDENT, initial_indent="# ", subsequent_indent="# ")
    kept = _OPTION.sub(r"\1\0", command.strip())  # an option and its value stay on one line
    words = textwrap.wrap(
        kept, width - _INDENT - 2, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    parts = [part.replace("\0", " ") for part in words]
    return [indent + text for text in (*above, *(f"{part} \\" for part in parts[:-1]), *parts[-1:])]
