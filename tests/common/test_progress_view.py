"""Plain lines of progress without a terminal, with a simulated clock."""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from rich.console import Console

from common.progress_view import SHARE, ProgressLines, progress, progress_line, step
from reinforcement_learning.game.life import life_statistics
from reinforcement_learning.training.training_run import TrainingDisplay, update_line
from tests.reinforcement_learning.game.test_life import LIFE


@dataclass
class Clock:
    """A clock that advances on request."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(
    ("unit", "work", "seconds", "lines"),
    [
        (
            "records", lambda second: (20 * second, 6000), 95,
            [
                "working: 600 of 6,000 records, 20 records/s, 0:04:30 left",
                "working: 1,200 of 6,000 records, 20 records/s, 0:04:00 left",
                "working: 1,800 of 6,000 records, 20 records/s, 0:03:30 left",
            ],
        ),
        ("records", lambda second: (second, 30), 30, []),
        (
            "episodes", lambda second: (100 + second // 10, 110), 31,
            ["working: 103 of 110 episodes, 0.1 episodes/s, 0:01:10 left"],
        ),
        (SHARE, lambda second: (second / 60,), 31, ["working: 50%, 0:00:30 left"]),
    ],
    ids=["a line every half minute", "short work", "what was done before is no speed", "shares"],
)  # fmt: skip
def test_lines_say_work_total_rate_and_time_left(
    clock: Clock, unit: str, work: Callable[[int], tuple], seconds: int, lines: list[str]
) -> None:
    shown: list[str] = []
    writer = ProgressLines("working", unit, shown.append, clock)
    for second in range(seconds):
        writer.report(*work(second))
        clock.now += 1
    assert shown == lines


@pytest.mark.parametrize(
    ("total", "rate", "detail", "line"),
    [
        (None, 3.0, "", "working: 60 records, 3 records/s"),
        (90, 0.0, "", "working: 60 of 90 records"),
        (60, 2.0, "2 of 3 episodes", "working: 60 of 60 records, 2 records/s, 2 of 3 episodes, 0:00:00 left"),
    ],
)
def test_what_is_not_known_is_left_out(total: float | None, rate: float, detail: str, line: str) -> None:
    assert progress_line("working", "records", 60, total, rate, detail) == line


def test_a_step_of_an_analysis_writes_lines_off_the_terminal(clock: Clock) -> None:
    written = io.StringIO()
    with progress("reading [all]", console=Console(file=written, width=20), clock=clock) as report:
        for share in (0.0, 0.25, 0.5):
            report(share)
            clock.now += 31
    assert written.getvalue().splitlines() == ["reading [all]: 25%, 0:01:33 left", "reading [all]: 50%, 0:01:02 left"]
    written.truncate(0)
    with step(Console(file=written, width=20), "comparing") as tell:
        tell(0.5)
    assert written.getvalue().strip("\0\n").startswith("comparing: ")


def test_work_that_reports_nothing_still_says_that_it_goes_on(clock: Clock) -> None:
    lines: list[str] = []
    writer = ProgressLines("embedding", SHARE, lines.append, clock)
    for _ in range(70):
        writer.write_if_due()
        clock.now += 1
    assert lines == ["embedding: 0:00:30 so far", "embedding: 0:01:00 so far"]
    writer.report(0.5)
    clock.now += 30
    writer.write_if_due()
    assert lines[2:] == ["embedding: 50%"]


def test_lines_appear_while_the_work_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.progress_view.LINE_EVERY", 0.0)
    monkeypatch.setattr("common.progress_view._LOOK_EVERY", 0.01)
    written = io.StringIO()
    with progress("embedding", console=Console(file=written, width=80)):
        deadline = time.monotonic() + 30
        while not written.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert written.getvalue().startswith("embedding: 0:00:00 so far\n")
    before = written.getvalue()
    time.sleep(0.1)
    assert written.getvalue() == before  # no lines once the work is done


def test_on_a_terminal_there_are_no_lines(clock: Clock) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=120)
    with progress("reading", "records", console, clock) as report:
        for done in (0, 30):
            report(done, 60, "as ever")
            clock.now += 31
    assert "records/s" not in written.getvalue()


def test_where_lives_ended_and_nobody_died_training_says_so() -> None:
    at_horizon = life_statistics([replace(LIFE, died=False, cause_of_death=None, events={})])
    metrics = {"agent_steps": 9.0, "agent_steps_per_second": 1.0, **dict.fromkeys(("loss/policy", "loss/value"), 0.0)}
    line = update_line({**metrics, "loss/entropy": 0.0, **at_horizon})
    assert "life 10.0 ticks" in line and line.endswith("died: none  a life: none")


def test_training_writes_lines_between_updates(clock: Clock) -> None:
    written = io.StringIO()
    with TrainingDisplay(10_000, Console(file=written, width=40), clock) as display:
        for steps in range(0, 5000, 100):
            display.advance(steps)
            clock.now += 1
    assert written.getvalue().splitlines() == ["training: 3,000 of 10,000 agent-steps, 100 agent-steps/s, 0:01:10 left"]
