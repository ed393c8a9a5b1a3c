"""How far a recording is, and how large it will be: projected from the groups of episodes that have ended."""

from collections import Counter
from dataclasses import dataclass

from reinforcement_learning.play.contest import Group


@dataclass(frozen=True)
class Recorded:
    """What there is so far of all dumps that are being recorded.

    Attributes:
        episodes: finished.
        records: written.
        ended_episodes: of the groups that have ended as a whole; an episode that ends before its group is a short one.
        ended_records: of those.
        record_bytes: that a record takes on the disk; None until an episode has been stored.
    """

    episodes: int = 0
    records: int = 0
    ended_episodes: int = 0
    ended_records: int = 0
    record_bytes: float | None = None

    def expected_records(self, episodes: int) -> int | None:
        """Project how many records so many episodes come to; None until a group of episodes has ended."""
        if not self.ended_episodes:
            return None
        return max(self.records, round(self.ended_records / self.ended_episodes * episodes))


class Tally:
    """Counts what is told of groups of episodes while they are played."""

    def __init__(self) -> None:
        self._records: Counter[Group] = Counter()
        self._finished: Counter[Group] = Counter()
        self._written = 0

    def add_records(self, group: Group, told: int, written: int) -> None:
        """Count records of a group that were told, and those that were written: the others are stored already."""
        self._records[group] += told
        self._written += written

    def finish_episode(self, group: Group) -> None:
        """Count an episode of a group that has ended."""
        self._finished[group] += 1

    def recorded(self, stored_records: int, stored_bytes: int) -> Recorded:
        """Return what there is, given what the episodes that are safe on the disk take there."""
        ended = [group for group, finished in self._finished.items() if finished == len(group.numbers)]
        return Recorded(
            episodes=self._finished.total(),
            records=self._written,
            ended_episodes=sum(len(group.numbers) for group in ended),
            ended_records=sum(self._records[group] for group in ended),
            record_bytes=stored_bytes / stored_records if stored_records else None,
        )
