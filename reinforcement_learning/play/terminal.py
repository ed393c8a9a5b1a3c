"""Terminal output while playing."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from rich.console import Console

from common.progress_view import progress
from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.policy_pool import EpisodeLives
from reinforcement_learning.play.recording_progress import Recorded
from reinforcement_learning.progress import Progress


@contextlib.contextmanager
def extraction_progress(most_ticks: int) -> Iterator[Callable[[Recorded, int], None]]:
    """Show ticks and records, and, once some episodes have ended, the projected total and time left.

    Yields a callback that takes the recording so far and the number of episodes to play.

    Args:
        most_ticks: of an episode. One that ends earlier counts as whole, so that time left is overestimated.
    """
    console = Console()
    start = perf_counter()
    last = Recorded()
    with progress("recording", "ticks", console) as report:

        def show(recorded: Recorded, episodes: int) -> None:
            nonlocal last
            if recorded.ended_episodes > last.ended_episodes and recorded.episodes < episodes:
                text = projection(recorded, episodes, perf_counter() - start)
                console.print(text, highlight=False, soft_wrap=True)
            last = recorded
            detail = f"{recorded.records:,} records, {recorded.episodes} of {episodes} episodes finished"
            report(recorded.ended_episodes * most_ticks + recorded.ticks, episodes * most_ticks, detail)

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
def evaluation_progress(
    who: str, groups: Sequence[Group], horizon: int
) -> Iterator[Callable[[Group, Sequence[EpisodeLives] | int], None]]:
    """Show the policies and how many ticks are done; yields a callback.

    It takes a group of episodes, and the ticks that it went on by, or what it played if it has ended: 0 and fewer
    ticks take back what it told.

    Args:
        horizon: most ticks of an episode. One that ends earlier counts as whole, so that time left is overestimated.
    """
    console = Console()
    episodes = sum(len(group.numbers) for group in groups)
    whole = {group: horizon * len(group.rounds) for group in groups}
    console.print(f"playing {episodes:,} episodes: {who}", highlight=False, soft_wrap=True)
    start = perf_counter()
    agent_steps = 0
    ticks: Counter[Group] = Counter()
    done = 0
    with progress("playing", "ticks", console) as report:
        report(0, sum(whole.values()))

        def show(group: Group, played: Sequence[EpisodeLives] | int) -> None:
            nonlocal agent_steps, done
            if isinstance(played, int):
                ticks[group] = max(0, ticks[group] + played)
            else:
                agent_steps += sum(life.ticks for episode in played for lives in episode.lives for life in lives)
                done += len(played)
                ticks[group] = whole[group]
            report(ticks.total(), sum(whole.values()), f"{done} of {episodes} episodes finished")

        yield show
    console.print(f"{agent_steps:,} agent-steps in {perf_counter() - start:.0f} s", highlight=False)


@contextlib.contextmanager
def replay_progress(ticks: int) -> Iterator[Progress]:
    """Show progress in an episode; yields a callback that takes (ticks played, maximum number of ticks)."""
    with progress("playing", "ticks") as report:
        report(0, ticks)
        yield report
