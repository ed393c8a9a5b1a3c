"""Terminal output of train.py."""

import re
from pathlib import Path

import pytest

from tests.command import run_on_terminal
from tests.test_train import FOREVER, ONCE, SMALL, folders

PARTS = (
    "of 1,024 agent-steps", "so far", "left", "agent-steps/s", "environment", "inference", "learning", "copying",
    "losses", "entropy", "ticks", "reward", "task progress", "deaths", "events a life",
)  # fmt: skip
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@pytest.mark.slow
def test_the_live_panel_shows_everything_and_leaves_the_terminal_in_order(maps: Path, tmp_path: Path) -> None:
    one_update = (*SMALL, *ONCE, "--train.total-agent-steps", "1024")
    code, sent = run_on_terminal(80, "train.py", *one_update, "-n", "seen", *folders(tmp_path, maps.parent))
    assert code == 0, sent
    lines = CONTROL.sub("", sent[sent.rfind("\x1b[1A") :]).splitlines()  # what was drawn last
    panel = [line for line in lines if line[:1] in "╭│╰"]
    text = " ".join(" ".join(line.strip("│ ") for line in panel).split())
    for part in PARTS:
        assert part in text, part
    assert {len(line) for line in panel} == {80}
    assert "update 1" in panel[0] and "seen.safetensors" in lines[-2]
    assert_in_order(sent)


def test_ctrl_c_leaves_the_terminal_in_order(maps: Path, tmp_path: Path) -> None:
    command = ("train.py", *FOREVER, "-n", "stopped", *folders(tmp_path, maps.parent))
    code, sent = run_on_terminal(80, *command, interrupt_at="first update")
    assert code == 130, sent
    assert "stopped before the first update: nothing is kept" in sent and "Traceback" not in sent
    assert_in_order(sent)
    assert not list(tmp_path.rglob("stopped*")), "the name cannot be used again"


def assert_in_order(sent: str) -> None:
    """The cursor is visible again, colours are reset, and the prompt is on its own line."""
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h") > 0
    colours = re.findall(r"\x1b\[[0-9;]*m", sent)
    assert colours and colours[-1] == "\x1b[0m"
    assert sent.endswith("\n")
