"""Progress of a recording, and its expected size, projected from the groups of episodes that have ended."""

from collections import Counter
from dataclasses import dataclass

from reinforcement_learning.play.contest import Group


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
