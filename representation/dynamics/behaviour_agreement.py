"""How far behaviours of several layers together agree with those of each layer alone."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from analysis.lives import Lives
from representation.dynamics.behaviours import Behaviours
from representation.dynamics.tracks import Tracks

_HIGH = 0.95


@dataclass(frozen=True)
class BehaviourPair:
    """How far two divisions of the same ticks agree.

    The reference takes the labels of one of them from another life at the same age: how behaviours follow from each
    other and depend on age is kept, and which goes with which is lost. Labels shifted in a circle within their own life
    would not do: where a short life is all one behaviour, that changes nothing.

    Attributes:
        one, other: layers of the two divisions.
        ticks: that both divide.
        information: normalised mutual information (arithmetic mean of the entropies): 1 for the same division.
        dealt_information: the same with labels from other lives: mean.
        dealt_information_high: 95% of the draws are below.
        rand: adjusted Rand index: 1 for the same division, 0 by chance.
        dealt_rand: the same with labels from other lives: mean.
        dealt_rand_high: 95% of the draws are below.
    """

    one: str
    other: str
    ticks: int
    information: float
    dealt_information: float
    dealt_information_high: float
    rand: float
    dealt_rand: float
    dealt_rand_high: float


def pairs_of(
    found: Mapping[str, Behaviours], tracks: Tracks, draws: int, seed: int,
    progress: Callable[[float], None] = lambda share: None,
) -> list[BehaviourPair]:  # fmt: skip
    """Compare every two divisions of the ticks into behaviours.

    Args:
        found: behaviours of the records, by the name of their layers.
        tracks: recorded lives.
        draws: of other lives, for the reference.
        seed: of the draws.
        progress: called with the share done.
    """
    there = next(iter(found.values())).label >= 0
    lives = tracks.lives.of_records(there)
    pairs = list(combinations(found, 2))
    rows = []
    for number, (one, other) in enumerate(pairs):
        first, second = found[one].label[there], found[other].label[there]
        information, rand = measures(first, second)
        dealt = np.array([measures(first, each) for each in _dealt(second, lives, draws, seed)])  # (draws, 2)
        high = np.quantile(dealt, _HIGH, axis=0)
        means = dealt.mean(axis=0)
        rows.append(
            BehaviourPair(one, other, len(first), information, means[0], high[0], rand, means[1], high[1])
        )  # fmt: skip
        progress((number + 1) / len(pairs))
    return rows


def measures(label: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return the normalised mutual information and the adjusted Rand index of two divisions of records, (B,) each."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    return float(normalized_mutual_info_score(label, other)), float(adjusted_rand_score(label, other))


def _dealt(label: np.ndarray, lives: Lives, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the labels that other lives have at the same age; a shorter life begins again."""
    ordered = label[lives.order]
    life = lives.index_in_order
    age = np.arange(len(ordered)) - lives.starts[life]
    random = np.random.default_rng([seed, 12])
    for _ in range(draws):
        other = random.permutation(len(lives))[life]
        found = np.empty_like(label)
        found[lives.order] = ordered[lives.starts[other] + age % lives.lengths[other]]
        yield found
