"""What is wrong with a command line is said in one line, and --help of every script has no ragged lines."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
from rich.console import Console

from common.command_line import in_one_line, print_description, terminal_table
from common.number_text import plural
from tests.command import ROOT, assert_refused, run_here

LISTS = "--help lists all arguments"
HEADS = ("target", "score", "best baseline", "advantage", "increment", "its q")
ROWS = (
    ("rows_in_10_ticks", "0.873 R2", "observation (mlp)", "0.132 (0.101 to 0.150)", "0.031 (-0.010 to 0.050)", "0.012"),
    ("[nearest]_distance", "0.9 AUC", "encoder_output (linear)", "-0.132 (-0.1 to 0.1)", "0.03 (-0.01 to 0.05)", "n/a"),
)


@pytest.mark.parametrize("columns", [40, 200])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "error: missing: PATH; "),
        (("dump", "--lagz", 3), "error: unrecognized options: --lagz, 3; did you mean --lags? "),
        (("dump", "--lags", "abc"), "error: error parsing --lags: invalid literal for int() with base 10: 'abc'; "),
        (("dump", "--method", "guess"), "error: invalid choice 'guess' for argument '--method'. Expected one of ("),
        (("dump", "--lags"), "error: missing value for argument '--lags'"),
        (("dump", "other"), "error: unrecognized options: other; "),
    ],
)
def test_a_bad_command_line_is_one_line(
    arguments: tuple[object, ...], message: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However narrow the terminal for which the parser would wrap it."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback=None: os.terminal_size((columns, 24)))
    refused = run_here("saliency.py", *arguments)
    assert_refused(refused, LISTS)
    assert refused.stderr.startswith(message), refused.stderr


def test_all_that_is_missing_is_named_and_what_is_in_no_box_is_kept() -> None:
    refused = run_here("activation_store/__main__.py", "convert")
    assert_refused(refused, "missing: PATH, PATH; ", LISTS)
    assert in_one_line("Something else\nis wrong.\n") == f"something else is wrong; {LISTS}"


def shown(width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    table = terminal_table(HEADS, ROWS, left=("target", "best baseline"), title="[a] title", caption="[b]")
    Console(file=out, width=width).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_every_word_is_whole_and_every_line_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(width, monkeypatch)
    assert all(len(line) <= width for line in text.splitlines())
    for word in " ".join((*HEADS, *(cell for row in ROWS for cell in row), "[a]", "[b]")).split():
        assert word in text


def test_a_narrow_terminal_breaks_words_and_a_wide_one_has_a_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(len(line) <= 40 for line in shown(40, monkeypatch).splitlines())
    assert ROWS[0][3] in shown(200, monkeypatch) and len(shown(200, monkeypatch).splitlines()) == 2 + len(ROWS) + 2


def test_one_is_not_many() -> None:
    assert plural(1, "life", "lives") == "1 life" and plural(0, "life", "lives") == "0 lives"
    assert plural(1, "seed") == "1 seed" and plural(2048, "seed") == "2,048 seeds"


SCRIPTS = sorted(path.name for path in ROOT.glob("*.py"))


def paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line of an option's description with the one after it, without the box."""
    lines = [line.strip("│").rstrip() for line in text.splitlines() if line.startswith("│")]
    for line, following in pairwise(lines):
        if line.startswith("       ") and following.startswith("       "):
            yield line, following


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("script", SCRIPTS)
def test_lines_are_full_and_fit(script: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.command.environment", lambda: {**os.environ, "COLUMNS": str(width)})
    shown = run_here(script, "--help-verbose" if script == "train.py" else "--help").stdout
    too_long = [line for line in shown.splitlines() if len(line) > width and not line.startswith("usage:")]
    assert not too_long
    for line, following in paragraphs(shown):
        assert len(line) + 1 + len(following.split()[0]) > width - 4, f"{line!r} had place for more of {following!r}"


def test_the_ten_options_come_first_and_the_others_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.command.environment", lambda: {**os.environ, "COLUMNS": "80"})
    shown = run_here("train.py", "--help").stdout
    assert len(shown.splitlines()) < 230
    places = [
        shown.index(part) for part in ("    -a NAME", "--train.total-agent-steps NUMBER", "usage:", " env options ")
    ]
    assert places == sorted(places)
    verbose = run_here("train.py", "--help-verbose").stdout
    assert list(paragraphs(verbose)), "what the test above looks at"
    assert (
        "Number of agents that spawn in each world, 1 to 1024." in verbose
        and "Number of agents that spawn" not in shown
    )


def test_comments_stand_above_examples_that_do_not_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_description(
        "Do it.\n\n    python do.py folder/NAME -o there   # as well as it can be done\n    python do.py\n"
    )
    assert capsys.readouterr().out.splitlines() == [
        "Do it.", "", "    # as well as it can be done", "    python do.py folder/NAME -o there",
        "    python do.py", "",
    ]  # fmt: skip


TWICE_AT_ONCE = """
import signal
from common import command_line

real, interrupts = signal.signal, [None]

def interrupted_again(number, handler):
    if handler is signal.SIG_IGN and interrupts:
        interrupts.pop()
        signal.raise_signal(number)
    return real(number, handler)

def main():
    real(signal.SIGINT, signal.default_int_handler)  # a shell's jobs in the background ignore it
    signal.signal = interrupted_again
    signal.raise_signal(signal.SIGINT)

command_line.run(main)
"""


def test_a_second_ctrl_c_in_the_same_moment_changes_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE_AT_ONCE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
