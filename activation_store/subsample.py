"""Which records of each life to keep when thinning out neighbouring ticks, which are nearly identical."""

from dataclasses import dataclass

import numpy as np

from common import argument_checks
from common.user_error import UserError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Subsample:
    """Keeps one in `every` records of each life, in order of ticks.

    The first record kept is drawn for each life among its first `every` records after `skip_first`. So every record
    after the skipped ones is equally likely to be kept, and different lives keep different ticks. The draw depends only
    on the seed and the life, not on what else is read or in which order.
    """

    every: int = 1  # keep one record in this many, from 1 (all)
    skip_first: int = 0  # records at the start of each life that are never kept, from 0
    seed: int = 0  # of the draws, from 0 to 2**32 - 1

    def check(self) -> None:
        """Refuse invalid values."""
        if self.every < 1:
            raise UserError(f"--subsample is {self.every}: must be 1 (keep every record) or more")
        argument_checks.check(
            self, skip_first=argument_checks.at_least(self.skip_first, 0), seed=argument_checks.seed_value(self.seed)
        )

    @property
    def keeps_all(self) -> bool:
        """Whether all records are kept."""
        return self.every == 1 and self.skip_first == 0

    def capacity(self, records: int, lives: int) -> int:
        """Return an upper bound on the records kept, given numbers of records and lives."""
        return min(records, records // self.every + lives)

    def first_kept(self, lives: np.ndarray) -> np.ndarray:
        """Draw the first record of each life that is kept, counted from 0 in its life.

        Args:
            lives: slot, agent and episode of each life, (L, 3) int64.

        Returns:
            (L,) int64; a life shorter than that keeps no records.
        """
        state = np.full(len(lives), self.seed, np.uint64)
        for column in np.asarray(lives, np.int64).T:
            state = _mixed(state ^ column.astype(np.uint64))
        return self.skip_first + (state % np.uint64(self.every)).astype(np.int64)

    def keep(self, rank: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Return which records are kept, (B,) bool.

        Args:
            rank: of each record in its life, from 0, (B,) int64.
            first: of its life, from `first_kept`, (B,) int64.
        """
        return (rank >= first) & ((rank - first) % self.every == 0)

    def in_words(self) -> str:
        """Describe in words which records of each life are kept."""
        skipped = f"{self.skip_first} ticks" if self.skip_first > 1 else "tick"
        after = f" after its first {skipped}" if self.skip_first else ""
        if self.every == 1:
            return f"all of each life{after}"
        return f"one in {self.every} of each life, from a random tick on{after}"


ALL_RECORDS = Subsample()


def _mixed(state: np.ndarray) -> np.ndarray:
    """Scramble each number, uint64 to uint64: one step of splitmix64 (Steele, Lea and Flood 2014)."""
    state = state + _GOLDEN  # overflow is meant to wrap around
    state = (state ^ (state >> np.uint64(30))) * _MULTIPLIERS[0]
    state = (state ^ (state >> np.uint64(27))) * _MULTIPLIERS[1]
    return state ^ (state >> np.uint64(31))
