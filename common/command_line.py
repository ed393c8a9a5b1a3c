"""Shared by all stage scripts: parse the command line, and report bad input in one line.

Exit codes: 0 done, 1 what was printed is lost and nothing else was made, 2 bad input (one line on standard error), 130
interrupted by Ctrl-C. Losing the output never ends the work.
"""

import atexit
import contextlib
import errno
import functools
import inspect
import io
import operator
import os
import re
import select
import shlex
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TextIO, TypeVar, cast

from common.argument_checks import did_you_mean
from common.figure_settings import draw_without_screen
from common.user_error import UserError, fault_of, printable

_NOBODY_READS = {errno.EPIPE, errno.EIO}
"""The reader of a pipe has ended (`| head`), or the terminal is closed."""


class LastingFile(io.FileIO):
    """A file descriptor for writing. The first error sends it, and all that is written later, to the null device.

    Attributes:
        error: the first error, None if there was none.
    """

    def __init__(self, descriptor: int) -> None:
        """Write to an open descriptor, which stays open."""
        super().__init__(descriptor, "w", closefd=False)
        self.error: OSError | None = None

    def write(self, content: bytes | memoryview, /) -> int:  # type: ignore[override]
        """Write all of it; bytes that cannot be written are dropped."""
        rest = memoryview(content).cast("B")
        size = len(rest)
        while len(rest):
            try:
                written = super().write(rest)
                if written is None:  # a terminal that another program made non-blocking
                    select.select([], [self.fileno()], [])
                rest = rest[written or 0 :]
            except OSError as error:
                self.error = self.error or error
                _point_at_null(self.fileno())  # for whatever else has it open in this process and its children
                break
        return size


def _point_at_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)


def make_output_last() -> None:
    """Let no `print`, progress bar or live view of this process fail from now on.

    Characters that the output cannot encode are written as escapes. Streams that something else has replaced, such as
    a test, are left alone.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            try:
                os.fstat(descriptor)
            except OSError:  # closed by the shell (`>&-`): a file of results might get it
                _point_at_null(descriptor)
            null = Path(os.devnull).open("w", errors="backslashreplace")  # noqa: SIM115 (stays open to the end)
            setattr(sys, name, null)
        elif stream is getattr(sys, f"__{name}__") and _raw(stream) is None:
            setattr(sys, name, _lasting(stream, descriptor))


def lost_output() -> OSError | None:
    """Return why printed text could not be kept, such as a full disk; None if it was, or if nobody reads it."""
    for stream in (sys.stdout, sys.stderr):
        raw = _raw(stream)
        if raw is None:
            continue
        stream.flush()
        if raw.error is not None and raw.error.errno not in _NOBODY_READS:
            return raw.error
    return None


def _raw(stream: TextIO) -> LastingFile | None:
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, LastingFile) else None


def _lasting(stream: TextIO, descriptor: int) -> io.TextIOWrapper:
    """Return a stream like another one, with the same encoding and buffering."""
    with contextlib.suppress(OSError):
        stream.flush()
    raw = LastingFile(descriptor)
    unbuffered = isinstance(stream.buffer, io.RawIOBase)  # by `python -u` or PYTHONUNBUFFERED
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),  # type: ignore[type-var]
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=bool(stream.line_buffering),
        write_through=unbuffered,
    )


HELP = ("-h", "--help", "-H", "--help-verbose")
_WIDEST = 120
_INDENT = 4
_OPTION_COLUMN = 34
_OPTION = re.compile(r"(?<= )(--?[\w.-]+) (?=[^- ])")


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


Arguments = TypeVar("Arguments")

EXIT_OUTPUT_LOST = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

_NARROWEST_COLUMN = 8


def parse(
    arguments_type: type[Arguments], description: str, *, flag_pairs: bool = False, brief: bool = False, **options: Any
) -> Arguments:
    """Read the command line into a data class; `--cluster-dir` and `--cluster_dir` mean the same.

    Args:
        flag_pairs: show both --flag and --no-flag in --help, needed if a flag can be on by default.
        brief: show options alone in --help, and what they mean with --help-verbose.
    """
    import tyro

    markers: tuple[Any, ...] = (tyro.conf.DisallowNone,)
    if not flag_pairs:
        markers += (tyro.conf.FlagCreatePairsOff,)
    arguments = options.get("args", sys.argv[1:])
    if any(argument in HELP for argument in arguments):
        join_lines_of_options()
        if arguments[0] in HELP or isinstance(arguments_type, type):  # commands of a script have their own descriptions
            print_description(description)
    return cli(arguments_type, description="", config=markers, compact_help=brief, **options)


def cli(arguments_type: Any, **options: Any) -> Any:
    """Call `tyro.cli`.

    Raises:
        UserError: something is wrong with the command line, which tyro would show in a box of several lines.
    """
    import tyro

    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            parsed = tyro.cli(arguments_type, **options)
    except SystemExit as ended:
        if ended.code != EXIT_BAD_INPUT:
            raise
        raise UserError(in_one_line(written.getvalue())) from None
    sys.stderr.write(written.getvalue())  # warnings
    return parsed


_INSIDE_BOX = re.compile(r"(?:│ |  )(.*?) *│?$")  # without lines where the output cannot have them
_NAME = re.compile(r" {4}(\S.*)")


def in_one_line(box: str) -> str:
    """Return what tyro finds wrong with a command line, which it draws as a box of paragraphs between rules.

    The first says what is wrong, or names arguments that are missing; another may name similar options. Names stand on
    lines of their own, indented by four. What is not in a box is returned as it is, on one line.
    """
    inside = "\n".join(line[1] for line in map(_INSIDE_BOX.match, box.splitlines()) if line)
    wrong, *others = [paragraph.splitlines() for paragraph in re.split(r"^[─-]+$", inside or box, flags=re.MULTILINE)]
    missing = _names(wrong) if wrong and wrong[0].startswith("Missing from") else []
    similar = [name for lines in others if any("Perhaps you meant" in line for line in lines) for name in _names(lines)]
    text = f"missing: {', '.join(missing)}" if missing else " ".join(" ".join(wrong).split()).rstrip(".")
    typed = re.findall(r"--[\w.-]+", text)  # as one that another subcommand has
    meant = [option for name in similar if (option := name.split()[0].rstrip(",")) not in typed]
    hint = f"did you mean {meant[0]}? " if meant else ""
    return f"{text[:1].lower()}{text[1:]}; {hint}--help lists all arguments"


def _names(lines: Sequence[str]) -> list[str]:
    return [name[1] for name in map(_NAME.match, lines) if name]


def parse_command(
    commands: Mapping[str, Callable[..., None]], arguments_type: Any, description: str, arguments: Sequence[str],
    usual: str | None = None,
) -> tuple[str, Any]:  # fmt: skip
    """Read the command line of a script with commands.

    Args:
        commands: by the names of the subcommands that `arguments_type` is a union of.
        arguments: the command line without the script's name.
        usual: the command that is meant where none is named; None if one must be.

    Returns:
        The name of the command, and its options.

    Raises:
        UserError: there is no such command.
    """
    first = next(iter(arguments), HELP[0])
    if first not in commands and first not in HELP:
        hint = did_you_mean(first, commands) if first.isalpha() else ""
        if usual is None or (hint and not Path(first).exists()):
            raise UserError(f"there is no command {first!r}; there are: {', '.join(commands)}{hint}")
        first, arguments = usual, [usual, *arguments]
    script = Path(sys.argv[0]).name
    return first, parse(arguments_type, description, args=arguments or [first], prog=script)


def chosen_command(functions: Sequence[Callable[..., None]], description: str, **options: Any) -> Callable[[], None]:
    """Read the command line of a script whose commands are functions, and return the one that is named, to be called.

    Their parameters are options, described in their docstrings.
    """
    import tyro

    def awaiting(function: Callable[..., None]) -> Callable[..., Callable[[], None]]:
        @functools.wraps(function)
        def with_arguments(*arguments: Any, **named: Any) -> Callable[[], None]:
            return functools.partial(function, *arguments, **named)

        del with_arguments.__wrapped__  # tyro would read its docstring, and keep the line ends of descriptions
        with_arguments.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        with_arguments.__doc__ = re.sub(r"\n {8,}", " ", inspect.getdoc(function) or "")
        return with_arguments

    commands = [
        Annotated[Any, tyro.conf.subcommand(function.__name__, constructor=awaiting(function))]
        for function in functions
    ]
    return parse(functools.reduce(operator.or_, cast(Any, commands)), description, **options)


def this_command() -> str | None:
    """Return the command line of the script that runs, for records of what made results; None for other programs."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    root = Path(__file__).resolve().parents[1]
    if script.suffix != ".py" or root not in script.resolve().parents:
        return None
    return shlex.join(["python", str(script.resolve().relative_to(root)), *sys.argv[1:]])


def with_value(arguments: Sequence[str], option: str, value: str) -> list[str]:
    """Insert a default value after an option given without one; tyro requires options always or never to take one."""
    joined: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        joined += (
            [argument, value] if argument.replace("_", "-") == option and following.startswith("-") else [argument]
        )
    return joined


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to a terminal, or tab-separated lines to a pipe or file.

    The first column, of names, is never broken or cut: a terminal that is too narrow for it wraps whole lines. Cells
    may quote files: their line ends and escape codes are shown, not obeyed.
    """
    from rich.console import Console

    rows = [tuple(map(printable, row)) for row in rows]
    console = Console()
    if not console.is_terminal:
        print("\n".join("\t".join(row) for row in (heads, *rows)))
        return
    table = terminal_table(heads, rows, left=heads)
    names = max(len(row[0]) for row in (heads, *rows))
    table.columns[0].min_width = names
    Console(width=max(console.width, names + _NARROWEST_COLUMN * len(heads))).print(table)


def run(main: Callable[[], None]) -> NoReturn:
    """Run a stage's `main` and end the process with the exit code of its outcome."""
    make_output_last()
    draw_without_screen()
    code = 0
    try:
        main()
    except (UserError, OSError, MemoryError, RuntimeError) as error:
        if (fault := fault_of(error)) is None:
            raise
        print(f"error: {fault}", file=sys.stderr)
        _end(EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        try:  # the end takes a moment, which a second Ctrl-C must not disturb
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:  # it came before that
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("interrupted", file=sys.stderr)
        _end(EXIT_INTERRUPTED)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        code = ended.code or 0
    if code == 0 and (lost := lost_output()):
        print(f"error: what was printed could not be written: {lost.strerror}", file=sys.stderr)
        from common.files import has_written

        code = 0 if has_written() else EXIT_OUTPUT_LOST  # a command that only prints has made nothing
    _end(code)


def _end(code: int) -> NoReturn:
    """End the process, one of several of a training run without unloading Python.

    Threads of torch that connect the processes may still run then, and would abort the process ("terminate called
    without an active exception"), which hides its exit code.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if TYPE_CHECKING:
    from rich.table import Table


def terminal_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str], title: str = "", caption: str = ""
) -> "Table":
    """Return a table whose cells wrap between words, as long as all words fit beside each other.

    Args:
        left: heads of columns of words; the others hold numbers, and are aligned right.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=escape(title) or None, title_justify="left", caption=escape(caption) or None, caption_justify="left",
        box=SIMPLE_HEAD, padding=0, show_edge=False,
    )  # fmt: skip
    columns = [(head, *(row[place] for row in rows)) for place, head in enumerate(heads)]
    widths = _widths(columns, Console().width - len(heads) + 1)
    for head, width in zip(heads, widths, strict=True):
        justify: Literal["left", "right"] = "left" if head in left else "right"
        table.add_column(head, justify=justify, width=width, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _widths(columns: Sequence[tuple[str, ...]], room: int) -> Sequence[int | None]:
    """Return the width of each column, such that no word is broken; None for all where there is no room for that."""
    widths = [max((len(word) for text in column for word in text.split()), default=1) for column in columns]
    whole = [max(map(len, column)) for column in columns]
    left = room - sum(widths)
    if left < 0:
        return [None] * len(columns)
    while left and (short := max(full - width for full, width in zip(whole, widths, strict=True))) > 0:
        place = next(place for place, width in enumerate(widths) if whole[place] - width == short)
        widths[place] += 1
        left -= 1
    return widths
