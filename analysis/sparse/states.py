"""The states that autoencoders are fitted to and tested on: whole episodes for each, and their behaviours."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.lives import places_of
from activation_store.reader import Progress, read_dump, read_identity
from activation_store.records import Records
from activation_store.schema import LIFE_KEY, DumpMetadata
from analysis.features.feature import Feature
from analysis.features.observed import own_truth_columns
from analysis.features.registry import feature_matrix
from analysis.lives import Lives, lives_at, lives_of
from analysis.statistics.circular_shift import age_of, time_course
from analysis.statistics.stability import gaussian_surrogate
from common.number_text import plural
from common.user_error import UserError

FEWEST_EPISODES = 2
"""One to fit to, one to test on."""

_TEST_SHARE = 4
"""One of so many episodes is tested on."""

_NOTHING_ELSE = ("tile", "entity", "inventory", "tables", "reward", "value", "log_probability")
_TOGETHER = 16


@dataclass(frozen=True)
class Split:
    """The episodes of a dump, ascending."""

    train: tuple[int, ...]
    test: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SparseStates:
    """States of some episodes. B records, U units."""

    values: np.ndarray  # (B, U) float32
    places: dict[str, np.ndarray]  # slot, agent, episode and tick of each record, (B,) int64 each
    lives: Lives

    def __len__(self) -> int:
        return len(self.values)

    @property
    def episodes(self) -> np.ndarray:
        """The episode of each record, (B,) int64."""
        return self.places["episode"]

    def surrogate(self, seed: int) -> "SparseStates":
        """Return a Gaussian of the same covariance and autocorrelation in the place of the states."""
        drawn = gaussian_surrogate(self.values, self.lives, np.random.default_rng([seed, 10]))
        return SparseStates(drawn, self.places, self.lives)

    def sample(self, most: int, seed: int) -> "SparseStates":
        """Return so many states drawn at random, or all if there are fewer."""
        if len(self) <= most:
            return self
        kept = np.zeros(len(self), bool)
        kept[np.random.default_rng(seed).permutation(len(self))[:most]] = True
        places = {name: array[kept] for name, array in self.places.items()}
        return SparseStates(self.values[kept], places, self.lives.of_records(kept))


def split_episodes(folder: Path, metadata: DumpMetadata, seed: int, most: int) -> Split:
    """Divide the episodes of a dump: a quarter, drawn at random and at least one, to test on, the rest to fit to.

    Of a dump with more than `most` records, episodes are left out of both parts, so that about so many are used in all.

    Raises:
        UserError: there are fewer than two.
    """
    if metadata.format == "json":
        records = dict(Counter(read_identity(folder)["episode"].tolist()))
    else:
        records = {file.episode: file.records for file in metadata.files.values() if file.episode is not None}
    episodes = np.array(sorted(records))
    if len(episodes) < FEWEST_EPISODES:
        raise UserError(
            f"{folder} holds {plural(len(episodes), 'episode')}: autoencoders are fitted to some and tested on others, "
            "so they need 2, better 8 or more: extract again with --episodes 8"
        )
    drawn = np.random.default_rng(seed).permutation(episodes)
    held_out = max(1, round(len(episodes) / _TEST_SHARE))
    share = most / sum(records.values())
    return Split(_first(drawn[held_out:], records, share), _first(drawn[:held_out], records, share))


def _first(episodes: np.ndarray, records: dict[int, int], share: float) -> tuple[int, ...]:
    """Return the first of some episodes that hold at most this share of their records, at least one, ascending."""
    total = np.cumsum([records[episode] for episode in episodes.tolist()])
    kept = len(episodes) if share >= 1 else max(1, int(np.searchsorted(total, share * total[-1], "right")))
    return tuple(sorted(episodes[:kept].tolist()))


def read_states(folder: Path, layer: str, episodes: tuple[int, ...], progress: Progress | None = None) -> SparseStates:
    """Read the states of one layer in some episodes.

    Raises:
        UserError: the dump cannot be read, or lacks the layer.
    """
    records = read_dump(
        folder, layers=[layer], columns=[], leave_out=_NOTHING_ELSE, episodes=episodes, progress=progress
    )
    return states_of(records, layer)


def states_of(records: Records, layer: str) -> SparseStates:
    """Take the states of one layer from records."""
    places = places_of(records)
    return SparseStates(
        records.activations[layer], {name: places[name] for name in (*LIFE_KEY, "tick")}, lives_of(records)
    )


def check_enough(folder: Path, states: int, features: int) -> None:
    """Refuse to fit more features than there are training states.

    Raises:
        UserError: there are.
    """
    if states < features:
        raise UserError(
            f"{folder} holds {states:,} states to fit to, too few for {features:,} features: give a smaller --width, "
            "or extract again with more --episodes"
        )


@dataclass(frozen=True, eq=False)
class Behaviours:
    """States and behaviours of the same records. B records, N behaviours."""

    states: SparseStates
    values: np.ndarray  # (B, N) float32
    rest: np.ndarray
    """What tick and age leave of them, in standard deviations of the values, (B, N) float32; 0 for those that do not
    vary."""
    age: np.ndarray  # ticks since the first record of the life, (B,)


def read_behaviours(
    folder: Path, metadata: DumpMetadata, layer: str, episodes: Sequence[int], features: Sequence[Feature],
    progress: Progress,
) -> Behaviours:  # fmt: skip
    """Read states and compute behaviours, one episode at a time.

    Raises:
        UserError: the dump cannot be read, or lacks what a feature needs.
    """
    columns = [*own_truth_columns(metadata)]
    states, values = [], []
    for number, episode in enumerate(episodes):
        records = read_dump(folder, layers=[layer], columns=columns, leave_out=["tables"], episodes=[episode])
        states.append(states_of(records, layer))
        values.append(feature_matrix(records, metadata, features).astype(np.float32))
        progress((number + 1) / len(episodes))
    places = {name: np.concatenate([part.places[name] for part in states]) for name in states[0].places}
    joined = SparseStates(np.concatenate([part.values for part in states]), places, lives_at(places))
    matrix, tick = np.concatenate(values), places["tick"]
    age = age_of(tick, joined.lives)
    rest = np.empty_like(matrix)
    for start in range(0, matrix.shape[1], _TOGETHER):  # a few at a time: doubles take memory
        some = slice(start, start + _TOGETHER)
        doubles = matrix[:, some].astype(np.float64)
        left, spread = doubles - time_course(doubles, tick, age).explained(tick, age), doubles.std(axis=0)
        rest[:, some] = np.where(spread > 0, left / np.where(spread > 0, spread, 1), 0)
    return Behaviours(joined, matrix, rest, age)
