"""Behavioural features of every record of some episodes, for comparison with sparse features."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.lives import number_lives
from activation_store.reader import Progress, read_dump
from activation_store.schema import DumpMetadata
from analysis.features.feature import Feature
from analysis.features.matrix import feature_matrix
from analysis.features.observed import own_truth_columns
from analysis.lives import Lives
from analysis.statistics.given_time import age_of, time_course
from representation.sparse_autoencoder.states import States, states_of

_TOGETHER = 16


@dataclass(frozen=True, eq=False)
class Behaviours:
    """States and behaviours of the same records. B records, N behaviours.

    Attributes:
        states: of the layer.
        values: (B, N) float32.
        rest: what tick and age leave of them, in standard deviations of the values, (B, N) float32; 0 for those that
            do not vary.
        age: ticks since the first record of the life, (B,).
    """

    states: States
    values: np.ndarray
    rest: np.ndarray
    age: np.ndarray


def read_behaviours(
    folder: Path, metadata: DumpMetadata, layer: str, episodes: Sequence[int], features: Sequence[Feature],
    progress: Progress | None = None,
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
        if progress:
            progress((number + 1) / len(episodes))
    joined = _joined(states)
    matrix = np.concatenate(values)
    tick = joined.places["tick"]
    age = age_of(tick, joined.lives)
    rest = np.empty_like(matrix)
    for start in range(0, matrix.shape[1], _TOGETHER):  # a few at a time: doubles take memory
        some = slice(start, start + _TOGETHER)
        rest[:, some] = _rest(matrix[:, some].astype(np.float64), tick, age)
    return Behaviours(joined, matrix, rest, age)


def _rest(values: np.ndarray, tick: np.ndarray, age: np.ndarray) -> np.ndarray:
    spread = values.std(axis=0)
    rest = values - time_course(values, tick, age).explained(tick, age)
    return np.where(spread > 0, rest / np.where(spread > 0, spread, 1), 0)


def _joined(parts: Sequence[States]) -> States:
    places = {name: np.concatenate([part.places[name] for part in parts]) for name in parts[0].places}
    _, index = number_lives(places)
    lengths = np.bincount(index)
    order = np.lexsort((places["tick"], index))
    lives = Lives(index, order, np.cumsum(lengths) - lengths, lengths)
    return States(np.concatenate([part.values for part in parts]), places, lives)
