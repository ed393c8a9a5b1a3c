"""Terminal output while playing, and the progress of a recording: its expected size from what has ended."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from rich.console import Console

from common.progress_view import progress
from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.policy_pool import EpisodeLives


@dataclass(frozen=True)
class Recorded:
    """The current state of all dumps being recorded."""

    episodes: int = 0  # finished
    records: int = 0  # written
    ended_episodes: int = 0
    """In groups that have ended completely; episodes that end before their group are biased short."""
    ended_records: int = 0
    ticks: int = 0  # of all episodes of groups that are being played; those of a group are as far as its latest record
    record_bytes: float | None = None  # size of a record on disk; None until an episode has been stored

    def expected_records(self, episodes: int) -> int | None:
        """Project the number of records of `episodes` episodes; None until a group of episodes has ended."""
        if not self.ended_episodes:
            return None
        return max(self.records, round(self.ended_records / self.ended_episodes * episodes))


class Tally:
    """Counts records and episodes of groups while they are played."""

    def __init__(self) -> None:
        self._records: Counter[Group] = Counter()
        self._finished: Counter[Group] = Counter()
        self._ticks: Counter[Group] = Counter()
        self._written = 0

    def add_records(self, group: Group, count: int, written: int, tick: int = 0) -> None:
        """Count records received from a group, the last of them of a tick, and those written; others are stored."""
        self._ticks[group] = max(self._ticks[group], tick)
        self._records[group] += count
        self._written += written

    def finish_episode(self, group: Group) -> None:
        """Count an episode of a group that has ended."""
        self._finished[group] += 1

    def start_over(self, group: Group, dropped: int) -> None:
        """Forget a group that is played again; `dropped` of its records are no longer written."""
        del self._records[group], self._finished[group], self._ticks[group]
        self._written -= dropped

    def recorded(self, stored_records: int, stored_bytes: int) -> Recorded:
        """Return the current state, given the records and bytes of the stored episodes."""
        ended = [group for group, finished in self._finished.items() if finished == len(group.numbers)]
        return Recorded(
            episodes=self._finished.total(),
            records=self._written,
            ended_episodes=sum(len(group.numbers) for group in ended),
            ended_records=sum(self._records[group] for group in ended),
            ticks=sum(len(group.numbers) * ticks for group, ticks in self._ticks.items() if group not in ended),
            record_bytes=stored_bytes / stored_records if stored_records else None,
        )


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
