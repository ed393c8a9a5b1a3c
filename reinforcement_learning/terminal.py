"""What long work shows while it runs: live bars and panels on a terminal, plain lines elsewhere."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from reinforcement_learning.maps import Progress as ProgressCallback
from reinforcement_learning.policy_pool import EpisodeLives
from reinforcement_learning.recording_progress import Recorded
from reinforcement_learning.trainer import Metrics, Reports
from reinforcement_learning.training_panel import training_panel, update_line


def progress_bar(console: Console) -> Progress:
    """Return a bar with counts and times; it shows itself only on a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextlib.contextmanager
def counted_progress(description: str) -> Iterator[ProgressCallback]:
    """Show how much of some counted work is done; yields a callback that takes (done, total).

    Nothing appears if the callback is never called, as when there is nothing to do.
    """
    console = Console()
    with progress_bar(console) as bar:
        task = None

        def show(done: int, total: int) -> None:
            nonlocal task
            if task is None:
                console.print(f"{description}: {total:,}")
                task = bar.add_task(description, total=total)
            bar.update(task, completed=done, total=total)

        yield show


@contextlib.contextmanager
def extraction_progress() -> Iterator[Callable[[Recorded, int], None]]:
    """Show records, their speed and, once some episodes have ended, how many there will be and the time left.

    Yields a callback that takes what is recorded so far, and how many episodes are played.
    """
    console = Console()
    start = perf_counter()
    with progress_bar(console) as bar:
        task = bar.add_task("records", total=None)
        last = Recorded()

        def show(recorded: Recorded, episodes: int) -> None:
            nonlocal last
            expected, seconds = recorded.expected_records(episodes), perf_counter() - start
            if recorded.ended_episodes > last.ended_episodes and recorded.episodes < episodes:
                console.print(projection(recorded, episodes, seconds), highlight=False, soft_wrap=True)
            last = recorded
            speed = f"{recorded.records / seconds:,.0f}/s"
            told = f"episodes: {recorded.episodes} of {episodes}, records ({speed})"
            bar.update(task, completed=recorded.records, total=expected, description=told)

        yield show
    console.print(f"{last.records:,} records in {perf_counter() - start:.0f} s", highlight=False)


def projection(recorded: Recorded, episodes: int, seconds: float) -> str:
    """Say how large a recording of so many episodes will be and how long it will still take, `seconds` after its start.

    Some group of its episodes must have ended.
    """
    expected = recorded.expected_records(episodes) or 0
    size = (recorded.record_bytes or 0) * expected
    left = seconds / max(1, recorded.records) * (expected - recorded.records)
    return (
        f"{recorded.episodes} of {episodes} episodes are finished: all of them will hold about {expected:,} records, "
        f"{size / 1e9:.2f} GB, and take about {left / 60:.0f} more minutes"
    )


@contextlib.contextmanager
def evaluation_progress(who: str, episodes: int) -> Iterator[Callable[[Sequence[EpisodeLives]], None]]:
    """Show who plays and how many episodes are done; yields a callback that takes those just played."""
    console = Console()
    console.print(f"playing {episodes:,} episodes: {who}", highlight=False)
    start = perf_counter()
    with progress_bar(console) as bar:
        task = bar.add_task("episodes", total=episodes)
        agent_steps = 0

        def show(played: Sequence[EpisodeLives]) -> None:
            nonlocal agent_steps
            agent_steps += sum(life.ticks for episode in played for lives in episode.lives for life in lives)
            speed = agent_steps / (perf_counter() - start)
            bar.update(task, advance=len(played), description=f"episodes ({speed:,.0f} agent-steps/s)")

        yield show
    console.print(f"{agent_steps:,} agent-steps in {perf_counter() - start:.0f} s", highlight=False)


@contextlib.contextmanager
def replay_progress(ticks: int) -> Iterator[ProgressCallback]:
    """Show how far an episode is; yields a callback that takes (ticks played, most ticks that there can be)."""
    with progress_bar(Console()) as bar:
        task = bar.add_task("ticks", total=ticks)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class TrainingView:
    """A live panel on a terminal, one line for each update elsewhere.

    Enter it only once there is something to show: on a terminal the panel appears at once, and stays when it ends.
    """

    def __init__(self, total_agent_steps: int):
        self.console = Console()
        self.total = total_agent_steps
        self.agent_steps = 0
        self.metrics: Metrics = {}
        self._first_steps: int | None = None  # a resumed run does not start at 0
        self._start = perf_counter()
        self._live = Live(console=self.console, get_renderable=self._panel, refresh_per_second=4)

    def __enter__(self) -> "TrainingView":
        self._start = perf_counter()
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
            self._first_steps, self._start = agent_steps, perf_counter()
        self.agent_steps = agent_steps

    def _show_update(self, metrics: Metrics) -> None:
        self.metrics = metrics
        if not self.console.is_terminal:
            self.console.print(update_line(metrics), highlight=False, soft_wrap=True)

    def _panel(self) -> Panel:
        seconds = perf_counter() - self._start
        done = self.agent_steps - (self._first_steps or 0)
        left = seconds / done * max(self.total - self.agent_steps, 0) if done else None
        return training_panel(self.metrics, self.agent_steps, self.total, seconds, left)
