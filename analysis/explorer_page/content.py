"""What the explorer shows: an analysis run's points, and every tick of the lives that they are from."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from activation_store.reader import read_dump, read_identity, read_metadata
from activation_store.schema import LIFE_KEY, DumpMetadata
from analysis.features import Feature, feature_matrix, features_named
from analysis.features.observed import Observed
from analysis.finished_run import FinishedRun
from analysis.lives import Lives, lives_of
from user_error import UserError

PERMUTATIONS = 999
FEWEST_PERMUTATIONS = 99
MOST_SHIFTS = 6_000_000
"""About as many bytes in the page."""

_TICK_KEY = (*LIFE_KEY, "tick")


@dataclass(frozen=True, eq=False)
class Explored:
    """N points, T ticks, F features, L lives.

    Attributes:
        run: that found the points.
        seen: every tick of the points' lives; episode by episode, life by life, in order of ticks.
        lives: of those ticks.
        rows: which of the run's records the points are, rising, (N,) int64.
        place: which tick each point is, (N,) int64.
        features: columns of `values`.
        values: of the points, (N, F) float64.
        lives_of_run: lives that the run has records of; more than L where some are left out.
    """

    run: FinishedRun
    seen: Observed
    lives: Lives
    rows: np.ndarray
    place: np.ndarray
    features: tuple[Feature, ...]
    values: np.ndarray
    lives_of_run: int

    @cached_property
    def point_lives(self) -> Lives:
        """Which life each point belongs to, as the run's statistics number lives."""
        return lives_of(self.seen.records.take(self.place))

    @property
    def permutations_of_run(self) -> int:
        """How often the run's test shifts labels."""
        return int(self.run.summary.get("method", {}).get("permutations", PERMUTATIONS))

    def shifts(self) -> np.ndarray:
        """Return by how many records each permutation of the run's test shifts each life's labels, (M + 1, L) int64.

        The first row is no shift. With very many lives there are fewer permutations than the run's.
        """
        lives = self.point_lives
        permutations = min(self.permutations_of_run, max(FEWEST_PERMUTATIONS, MOST_SHIFTS // len(lives)))
        rng = np.random.default_rng(int(self.run.run.get("seed", 0)))
        shifts = rng.integers(0, lives.lengths, (permutations + 1, len(lives)))
        shifts[0] = 0
        return shifts

    @property
    def metadata(self) -> DumpMetadata:
        """Of the dump."""
        return self.seen.metadata

    @property
    def label(self) -> np.ndarray:
        """The cluster of each point, negative for noise, (N,) int64."""
        return self.run.label[self.rows]


def explored(run: FinishedRun, dump: Path, most_ticks: int, progress: Callable[[float], None]) -> Explored:
    """Read every tick of a run's lives; of a larger dump, of lives drawn at random with the run's seed.

    Args:
        run: to show.
        dump: that it was made from.
        most_ticks: to read; whole lives are left out above it.
        progress: told the share of the dump read.

    Raises:
        UserError: as `activation_store.reader.read_dump`; the run names features that there are not, or records that
            are not in the dump; no life is short enough.
    """
    metadata = read_metadata(dump)
    features = features_named(feature["name"] for feature in run.summary["features"])
    chosen, lives_of_run = _chosen_lives(run, dump, most_ticks)
    records = read_dump(dump, layers=[], columns=[], leave_out=["tables"], lives=chosen, progress=progress)
    records = records.take(np.lexsort((records.tick, records.agent_id, records.env_id, records.episode)))
    rows, place = _places(run, {name: getattr(records, name) for name in _TICK_KEY}, dump)
    points = records.take(place)
    lives = _in_order(lives_of(records))
    values = feature_matrix(points, metadata, features, records)
    return Explored(run, Observed(records, metadata), lives, rows, place, features, values, lives_of_run)


def _chosen_lives(run: FinishedRun, dump: Path, most_ticks: int) -> tuple[np.ndarray | None, int]:
    """Return the lives to read, (L, 3), or None for all of the dump, and how many the run has records of."""
    lives = np.unique(np.stack([run.identity[name] for name in LIFE_KEY], axis=1), axis=0)
    identity = read_identity(dump)
    of_dump, lengths = np.unique(np.stack([identity[name] for name in LIFE_KEY], axis=1), axis=0, return_counts=True)
    if lengths.sum() <= most_ticks and len(of_dump) == len(lives):
        return None, len(lives)
    ticks = dict(zip(map(tuple, of_dump.tolist()), lengths.tolist(), strict=True))
    drawn = np.random.default_rng(int(run.run.get("seed", 0))).permutation(lives)
    total = np.cumsum([ticks.get(tuple(life), 0) for life in drawn.tolist()])
    kept = drawn[total <= most_ticks]
    if not len(kept):
        raise UserError(f"--max-ticks {most_ticks} holds not even one life of {dump}: give more")
    return kept, len(lives)


def _places(run: FinishedRun, ticks: dict[str, np.ndarray], dump: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return which of the run's records are among the ticks, and which ticks those are."""
    keys = [np.stack([source[name] for name in _TICK_KEY], axis=1) for source in (ticks, run.identity)]
    distinct, number = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    tick_of = np.full(len(distinct), -1)
    tick_of[number[: len(keys[0])]] = np.arange(len(keys[0]))
    place = tick_of[number[len(keys[0]) :]]
    lives_read = {tuple(life) for life in np.unique(keys[0][:, :3], axis=0).tolist()}
    wanted = np.array([tuple(life) in lives_read for life in keys[1][:, :3].tolist()])
    if (place[wanted] < 0).any() or not wanted.any():
        raise UserError(f"{run.path} labels records that {dump} does not hold: analyse the dump again")
    rows = np.flatnonzero(wanted)
    return rows, place[rows]


def _in_order(lives: Lives) -> Lives:
    """Number lives by their first record, for records that lie life by life, so that `order` is as they lie."""
    first = lives.order[lives.starts]
    rank = np.argsort(first)
    number = np.empty(len(lives), np.int64)
    number[rank] = np.arange(len(lives))
    lengths = lives.lengths[rank]
    return Lives(number[lives.index], np.arange(len(lives.index)), np.cumsum(lengths) - lengths, lengths)
