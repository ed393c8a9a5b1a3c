"""What a study is doing: a live table on a terminal, a line for each stage elsewhere."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from analysis.findings.running import Report, StudyPlan
from common.number_text import plural

if TYPE_CHECKING:
    from rich.table import Table

_DONE = {"skip": "finished before", "run": "waiting", "continue": "waiting, interrupted before"}
_WILL = {"skip": "is finished", "run": "will run", "continue": "will continue"}
_LINE_EVERY = 30.0


def plan_lines(plans: Sequence[StudyPlan]) -> list[str]:
    """Say what will be done with each stage, and how long all of it may take on two cores."""
    lines = [
        f"{plan.stage.name}: {_WILL[plan.action]}" + (f", about {_minutes(plan.minutes)}" if plan.minutes else "")
        for plan in plans
    ]
    left = sum(plan.minutes for plan in plans)
    return [
        *lines,
        f"{plural(len(plans), 'stage')}, about {_minutes(left)} left on two cores" if left else "nothing to run",
    ]


@contextlib.contextmanager
def overview(plans: Sequence[StudyPlan]) -> Iterator[Report]:
    """Show the stages while they are run."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        yield _lines()
        return
    states = {plan.stage.name: _DONE[plan.action] for plan in plans}
    with Live(_table(plans, states), console=console, refresh_per_second=2) as live:

        def report(plan: StudyPlan, state: str, seconds: float) -> None:
            states[plan.stage.name] = f"{state}, {_clock(seconds)}"
            live.update(_table(plans, states))

        yield report


def _lines() -> Report:
    """Return a report that prints a line when a stage begins and ends, and every half minute between."""
    next_line: dict[str, float] = {}

    def report(plan: StudyPlan, state: str, seconds: float) -> None:
        name = plan.stage.name
        if state != "done" and seconds < next_line.get(name, 0.0):
            return
        next_line[name] = seconds + _LINE_EVERY
        print(f"{name}: {state}, {_clock(seconds)} of about {_minutes(plan.stage.minutes)}", flush=True)

    return report


def _table(plans: Sequence[StudyPlan], states: dict[str, str]) -> "Table":
    from rich.table import Table

    table = Table("stage", "state", "estimate")
    for plan in plans:
        table.add_row(plan.stage.name, states[plan.stage.name], _minutes(plan.stage.minutes))
    return table


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _minutes(minutes: float) -> str:
    return f"{minutes:.0f} minutes" if minutes >= 1.5 else plural(max(1, round(60 * minutes)), "second")
