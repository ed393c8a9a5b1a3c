"""--help of every script: no ragged lines."""

import os
from collections.abc import Iterator
from itertools import pairwise

import pytest

from common.command_line import print_description
from tests.command import ROOT, run_here

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
