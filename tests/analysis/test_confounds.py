"""A cluster that marks a time, a life or an agent is flagged; one that is spread like the dump is not."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from analysis.confounds import LOW, TICK_BINS, confound_evenness, evenness, expected_entropy, tick_bins
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


def test_tick_bins_are_flat_over_the_whole_dump() -> None:
    tick = np.random.default_rng(0).exponential(200, 20_000).astype(np.int64)
    counts = np.bincount(tick_bins(tick), minlength=TICK_BINS)
    assert len(counts) == TICK_BINS and counts.min() > 0.8 * len(tick) / TICK_BINS
    for value in np.unique(tick)[:20]:
        assert len(np.unique(tick_bins(tick)[tick == value])) == 1


def test_planted_confounds_are_told_apart() -> None:
    records = planted_dump(agents=40, episodes=2, ticks=60).records
    lives = lives_of(records)
    early, one_life, one_agent = records.tick < 3, lives.index == 5, records.agent_id == 9
    spread = np.random.default_rng(0).random(len(records)) < 0.1
    found = [
        confound_evenness(records, lives, np.where(member, 0, -1)) for member in (early, one_life, one_agent, spread)
    ]
    low = [{name for name in ("tick", "life", "agent") if getattr(each, name)[0] < LOW} for each in found]
    assert low == [{"tick"}, {"life", "agent"}, {"life", "agent"}, set()]


def test_each_cluster_has_its_own_row() -> None:
    records = planted_dump(agents=10, ticks=40).records
    lives = lives_of(records)
    labels = np.where(records.tick < 3, 0, np.where(lives.index == 5, 1, -1))
    both = confound_evenness(records, lives, labels)
    alone = confound_evenness(records, lives, np.where(labels == 1, 0, -1))
    assert both.tick.shape == (2,) and both.life[1] == alone.life[0] == 0
    none = confound_evenness(records, lives, np.full(len(records), -1))
    assert all(values.shape == (0,) for values in dataclasses.asdict(none).values())
