"""Terminal output of training: a live panel on a terminal, plain lines elsewhere."""

import time

from rich.console import Console
from rich.live import Live
from rich.panel import Panel

from common.progress_view import Clock, ProgressLines
from reinforcement_learning.training.trainer import Metrics, Reports
from reinforcement_learning.training.training_panel import training_panel, update_line


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

    @property
    def reports(self) -> Reports:
        """Callbacks for the trainer."""
        return Reports(on_update=self._show_update, on_progress=self._advance)

    def _advance(self, agent_steps: int) -> None:
        if self._first_steps is None:
            self._first_steps, self._start = agent_steps, self.clock()
        self.agent_steps = agent_steps
        if not self.console.is_terminal:
            self._lines.report(agent_steps, self.total)

    def _show_update(self, metrics: Metrics) -> None:
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
