"""What is wrong with a command line is said in one line."""

import os

import pytest

from common.command_line import in_one_line
from tests.command import assert_refused, run_here

LISTS = "--help lists all arguments"


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
