"""Terminal output of training: a live panel on a terminal, plain lines elsewhere."""

import time
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from common.progress_view import Clock, ProgressLines
from reinforcement_learning.training.trainer import Metrics

PHASES = ("environment", "inference", "learning", "copying")
MOST_ON_PANEL = 6
MOST_ON_LINE = 3
_LOSSES = ("policy", "value", "entropy", "approximate_kl", "clip_fraction", "explained_variance")
_WAITING = "none ended yet"


def training_panel(metrics: Metrics, agent_steps: int, total: int, seconds: float, seconds_left: float | None) -> Panel:
    """Return a panel with the progress of training.

    Args:
        metrics: of the latest update; empty before the first.
        agent_steps: trained and collected so far.
        seconds_left: estimated; None if unknown.
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column()
    for name, text in _rows(metrics):
        table.add_row(name, text)
    update = f"update {metrics['update']:,.0f}" if metrics else "first update"
    return Panel(Group(_progress(agent_steps, total, seconds, seconds_left), table), title=f"training: {update}")


def update_line(metrics: Metrics) -> str:
    """Summarise an update in one line."""
    parts = [
        f"{metrics['agent_steps']:>11,.0f} agent-steps",
        f"{metrics['agent_steps_per_second']:,.0f}/s ({_time(metrics)})",
        *(f"{name} {metrics[f'loss/{name}']:.4g}" for name in ("policy", "value", "entropy")),
    ]
    if "lives/ticks" in metrics:
        parts.append(f"life {metrics['lives/ticks']:.1f} ticks, task {metrics['lives/task_progress']:.3f}")
        parts.append(f"died: {_deaths(metrics, MOST_ON_LINE)}")
        parts.append(f"a life: {_events(metrics, MOST_ON_LINE)}")
    else:
        parts.append("no life ended")
    if "semantic/perplexity" in metrics:
        parts.append(f"codes in use {metrics['semantic/perplexity']:.1f}, weight {metrics['semantic/weight']:.2f}")
    return "  ".join(parts)


def _progress(agent_steps: int, total: int, seconds: float, seconds_left: float | None) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(no_wrap=True)
    left = f"{_clock(seconds_left)} left" if seconds_left is not None else "-:--:-- left"
    table.add_row(
        f"{agent_steps:,} of {total:,} agent-steps",
        ProgressBar(total=total, completed=agent_steps),
        f"{_clock(seconds)} so far, {left}",
    )
    table.expand = True
    return table


def _rows(metrics: Metrics) -> list[tuple[str, str]]:
    if not metrics:
        return [("speed", "known after the first update")]
    rows = [
        ("speed", f"{metrics['agent_steps_per_second']:,.0f} agent-steps/s: {_time(metrics)}"),
        ("losses", ", ".join(f"{_words(name)} {metrics[f'loss/{name}']:.4g}" for name in _LOSSES)),
        ("lives", _lives(metrics)),
        ("deaths", _deaths(metrics, MOST_ON_PANEL)),
        ("events a life", _events(metrics, MOST_ON_PANEL)),
    ]
    if "semantic/perplexity" in metrics:
        used, weight = f"{metrics['semantic/perplexity']:.1f} in use", f"{metrics['semantic/weight']:.2f}"
        restarted = f"{metrics['semantic/restarted_codes']:.0f} restarted"
        rows.append(("codes", f"{used}, {restarted}, weight of their losses {weight}"))
    return rows


def _time(metrics: Metrics) -> str:
    return ", ".join(f"{phase} {metrics.get(f'time/{phase}', 0):.0%}" for phase in PHASES)


def _lives(metrics: Metrics) -> str:
    if "lives/ticks" not in metrics:
        return _WAITING
    return (
        f"{metrics['lives/ended']:.0f} ended after {metrics['lives/ticks']:.1f} ticks "
        f"(median {metrics['lives/ticks_median']:.0f}), reward {metrics['lives/total_reward']:.3f}, "
        f"task progress {metrics['lives/task_progress']:.3f}, completed {metrics['lives/task_completed']:.0%}"
    )


def _deaths(metrics: Metrics, most: int) -> str:
    largest = _largest(metrics, "death/")[:most]
    return ", ".join(f"{_words(name)} {share:.0%}" for name, share in largest) or _WAITING


def _events(metrics: Metrics, most: int) -> str:
    largest = _largest(metrics, "events/")[:most]
    return ", ".join(f"{_words(name).lower()} {count:.2g}" for name, count in largest) or _WAITING


def _largest(metrics: Metrics, prefix: str) -> list[tuple[str, float]]:
    entries = [(key.removeprefix(prefix), value) for key, value in metrics.items() if key.startswith(prefix) and value]
    return sorted(entries, key=lambda entry: -entry[1])


def _words(name: str) -> str:
    return name.replace("_", " ").replace("npc", "NPC").replace(" kl", " KL")


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class TrainingDisplay:
    """A live panel on a terminal; elsewhere one line per update, and one every half minute between updates.

    Enter it only once there is something to show: on a terminal the panel appears at once and remains at the end.
    """

    def __init__(self, total_agent_steps: int, console: Console | None = None, clock: Clock = time.monotonic):
        self.console = console or Console()
        self.clock = clock
        self.total = total_agent_steps
        self.agent_steps = 0
        self.metrics: Metrics = {}
        self._first_steps: int | None = None  # a resumed run does not start at 0
        self._start = clock()
        self._lines = ProgressLines("training", "agent-steps", self._print, clock)
        self._live = Live(console=self.console, get_renderable=self._panel, refresh_per_second=4)

    def __enter__(self) -> "TrainingDisplay":
        self._start = self.clock()
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def advance(self, agent_steps: int) -> None:
        """Take the agent-steps so far."""
        if self._first_steps is None:
            self._first_steps, self._start = agent_steps, self.clock()
        self.agent_steps = agent_steps
        if not self.console.is_terminal:
            self._lines.report(agent_steps, self.total)

    def show_update(self, metrics: Metrics) -> None:
        """Take the metrics of an update."""
        self.metrics = metrics
        if not self.console.is_terminal:
            self._print(update_line(metrics))

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _panel(self) -> Panel:
        seconds = self.clock() - self._start
        done = self.agent_steps - (self._first_steps or 0)
        left = seconds / done * max(self.total - self.agent_steps, 0) if done else None
        return training_panel(self.metrics, self.agent_steps, self.total, seconds, left)
