"""A cluster that marks a time, a place, a life or an agent is flagged; one spread like the dump is not."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from analysis.confounds import CONFOUNDS, LOW, QUANTILES, confound_evenness, evenness, expected_entropy, quantile_bins
from analysis.lives import lives_of
from tests.planted import planted_dump


def test_two_of_twenty_bins_score_as_they_should() -> None:
    category = np.repeat(np.arange(20), 5_000)
    score = evenness(category < 2, category)
    assert score == pytest.approx(np.log(2) / np.log(20), rel=1e-3)
    assert score < LOW


def test_random_clusters_of_every_size_score_one() -> None:
    rng = np.random.default_rng(0)
    category = rng.choice(200, 20_000, p=np.arange(1, 201) / np.arange(1, 201).sum())
    for size in (5, 50, 5_000):
        scores = []
        for _ in range(60):
            member = np.zeros(len(category), bool)
            member[rng.choice(len(category), size, replace=False)] = True
            scores.append(evenness(member, category))
        assert np.mean(scores) == pytest.approx(1, abs=0.03)
    assert evenness(np.ones(len(category), bool), category) == pytest.approx(1)


@pytest.mark.parametrize("size", [1, 2, 7, 40, 60])
def test_expected_entropy_equals_many_draws(size: int) -> None:
    counts = np.array([30, 15, 15, 4, 1, 0])
    draws = np.random.default_rng(0).multivariate_hypergeometric(counts, size, 20_000)
    assert expected_entropy(counts, size) == pytest.approx(np.mean(stats.entropy(draws, axis=1)), abs=0.006)


def test_one_place_tells_nothing() -> None:
    assert np.isnan(evenness(np.arange(50) < 10, np.zeros(50, np.int64)))
    assert np.isnan(evenness(np.arange(50) < 1, np.arange(50)))


def test_quantile_bins_are_flat_over_the_whole_dump() -> None:
    tick = np.random.default_rng(0).exponential(200, 20_000).astype(np.int64)
    counts = np.bincount(quantile_bins(tick), minlength=QUANTILES)
    assert len(counts) == QUANTILES and counts.min() > 0.8 * len(tick) / QUANTILES
    for value in np.unique(tick)[:20]:
        assert len(np.unique(quantile_bins(tick)[tick == value])) == 1


def test_planted_confounds_are_told_apart() -> None:
    records = planted_dump(agents=40, episodes=2, ticks=60).records
    random = np.random.default_rng(0)
    tile = records.tile.copy()
    tile[:, 112, :2] = random.integers(16, 80, (len(records), 2))  # everyone anywhere
    records, lives = dataclasses.replace(records, tile=tile), lives_of(records)
    expected = [
        (records.tick < 3, {"tick"}),
        (tile[:, 112, 0] < 20, {"row"}),
        (tile[:, 112, 1] > 75, {"column"}),
        (lives.index == 5, {"life", "agent"}),
        (records.agent_id == 9, {"life", "agent"}),
        (random.random(len(records)) < 0.1, set()),
    ]
    for member, names in expected:
        found = confound_evenness(records, lives, np.where(member, 0, -1))
        assert {name for name in CONFOUNDS if getattr(found, name)[0] < LOW} == names


def test_each_cluster_has_its_own_row() -> None:
    records = planted_dump(agents=10, ticks=40).records
    lives = lives_of(records)
    labels = np.where(records.tick < 3, 0, np.where(lives.index == 5, 1, -1))
    both = confound_evenness(records, lives, labels)
    alone = confound_evenness(records, lives, np.where(labels == 1, 0, -1))
    assert both.tick.shape == (2,) and both.life[1] == alone.life[0] == 0
    none = confound_evenness(records, lives, np.full(len(records), -1))
    assert all(values.shape == (0,) for values in dataclasses.asdict(none).values())
