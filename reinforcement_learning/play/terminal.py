"""What playing shows while it runs: a live bar on a terminal, plain lines elsewhere."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from rich.console import Console

from reinforcement_learning.play.policy_pool import EpisodeLives
from reinforcement_learning.play.recording_progress import Recorded
from reinforcement_learning.progress import Progress
from reinforcement_learning.terminal import progress_bar


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
def replay_progress(ticks: int) -> Iterator[Progress]:
    """Show how far an episode is; yields a callback that takes (ticks played, most ticks that there can be)."""
    with progress_bar(Console()) as bar:
        task = bar.add_task("ticks", total=ticks)
        yield lambda done, total: bar.update(task, completed=done, total=total)
