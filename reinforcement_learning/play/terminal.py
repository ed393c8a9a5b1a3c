"""Terminal output while playing."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from rich.console import Console

from common.progress_view import progress
from reinforcement_learning.play.policy_pool import EpisodeLives
from reinforcement_learning.play.recording_progress import Recorded
from reinforcement_learning.progress import Progress


@contextlib.contextmanager
def extraction_progress() -> Iterator[Callable[[Recorded, int], None]]:
    """Show records, their speed and, once some episodes have ended, the projected total and time left.

    Yields a callback that takes the recording so far and the number of episodes to play.
    """
    console = Console()
    start = perf_counter()
    last = Recorded()
    with progress("recording", "records", console) as report:

        def show(recorded: Recorded, episodes: int) -> None:
            nonlocal last
            if recorded.ended_episodes > last.ended_episodes and recorded.episodes < episodes:
                text = projection(recorded, episodes, perf_counter() - start)
                console.print(text, highlight=False, soft_wrap=True)
            last = recorded
            ended = f"{recorded.episodes} of {episodes} episodes finished"
            report(recorded.records, recorded.expected_records(episodes), ended)

        yield show
    console.print(f"{last.records:,} records in {perf_counter() - start:.0f} s", highlight=False)


def projection(recorded: Recorded, episodes: int, seconds: float) -> str:
    """Describe the projected size and remaining time of a recording, `seconds` after its start.

    At least one group of episodes must have ended.
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
    """Show the policies and the number of episodes done; yields a callback that takes those just played."""
    console = Console()
    console.print(f"playing {episodes:,} episodes: {who}", highlight=False, soft_wrap=True)
    start = perf_counter()
    agent_steps = 0
    with progress("playing", "episodes", console) as report:
        done = 0
        report(done, episodes)

        def show(played: Sequence[EpisodeLives]) -> None:
            nonlocal agent_steps, done
            agent_steps += sum(life.ticks for episode in played for lives in episode.lives for life in lives)
            done += len(played)
            report(done, episodes, f"{agent_steps / (perf_counter() - start):,.0f} agent-steps/s")

        yield show
    console.print(f"{agent_steps:,} agent-steps in {perf_counter() - start:.0f} s", highlight=False)


@contextlib.contextmanager
def replay_progress(ticks: int) -> Iterator[Progress]:
    """Show progress in an episode; yields a callback that takes (ticks played, maximum number of ticks)."""
    with progress("playing", "ticks") as report:
        report(0, ticks)
        yield report
