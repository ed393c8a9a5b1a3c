"""A difference as large as a dump is said to find with 80% power is found in about 80% of such dumps."""

import numpy as np
import pytest

from analysis.lives import Lives
from analysis.statistics.effect_intervals import EffectIntervals, effect_intervals
from analysis.statistics.inference import Inference
from analysis.statistics.power import detectable
from tests.planted_lives import make_lives, smooth, values_of

SETTINGS = Inference(bootstraps=199)


def dump(run: int, lives: int, lift: float) -> tuple[np.ndarray, np.ndarray, Lives]:
    """Four features that are higher by `lift` standard deviations in a cluster of a third of the records."""
    lengths = [30] * lives
    rng = np.random.default_rng([31, run])
    state, *features = values_of(smooth, rng, lengths, 5).T
    labels = np.where(state > 0.43, 0, -1)
    return np.column_stack(features) + lift * (labels == 0)[:, None], labels, make_lives(lengths)


def intervals(run: int, lives: int, episodes: int, lift: float) -> EffectIntervals:
    values, labels, each = dump(run, lives, lift)
    return effect_intervals(values, labels, each, each.index % episodes, SETTINGS)


@pytest.mark.parametrize(("lives", "episodes"), [(40, 1), (60, 12), (40, 4)])
def test_four_of_five_dumps_find_what_they_are_said_to_find(lives: int, episodes: int) -> None:
    told = np.median([np.median(detectable(intervals(run, lives, episodes, 0.0), 0.95)) for run in range(20)])
    found = [(intervals(100 + run, lives, episodes, float(told)).complement_low > 0).mean() for run in range(60)]
    assert 0.7 < np.mean(found) < 0.9


def test_without_an_interval_nothing_is_said() -> None:
    one_life = intervals(0, 1, 1, 0.0)
    assert np.isnan(detectable(one_life, 0.95)).all()
