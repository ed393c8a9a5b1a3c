"""R2 is computed on lives held out from the fit."""

import numpy as np
import pytest

from analysis.clusters.components import pca_feature_r2
from tests.planted_lives import make_lives, smooth

LENGTHS = [30] * 40


def test_planted_shares_are_recovered_within_their_intervals() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1200, 4))
    noise = rng.normal(size=(1200, 3))
    features = np.column_stack([scores @ [1, 1, 0, 0], scores[:, 2], scores[:, 0] * 0]) + noise * [1, 2, 1]
    found = pca_feature_r2(scores, features, make_lives(LENGTHS))
    for value, truth in zip(found.value, (2 / 3, 1 / 5, 0), strict=True):
        assert value == pytest.approx(truth, abs=0.06)
    assert (found.low < found.value).all() and (found.value < found.high).all()


def test_what_only_marks_a_life_does_not_count() -> None:
    """If nothing changes within lives, a fit holds in the sample but not for other lives."""
    rng = np.random.default_rng(0)
    lives = make_lives(LENGTHS)
    scores = rng.normal(size=(40, 20))[lives.index] + 0.01 * rng.normal(size=(1200, 20))
    feature = rng.normal(size=40)[lives.index][:, None]
    design = np.column_stack([np.ones(1200), scores])
    fitted = design @ np.linalg.lstsq(design, feature, rcond=None)[0]
    in_sample = 1 - ((feature - fitted) ** 2).sum() / ((feature - feature.mean()) ** 2).sum()
    assert in_sample > 0.3 and pca_feature_r2(scores, feature, lives).value[0] < 0.1


def test_intervals_cover_at_their_rate() -> None:
    covered = []
    for run in range(100):
        rng = np.random.default_rng([1, run])
        scores = np.concatenate([smooth(rng, 30, 3) for _ in range(40)])
        noise = np.concatenate([smooth(rng, 30, 1) for _ in range(40)])
        found = pca_feature_r2(scores, scores[:, :1] + noise, make_lives(LENGTHS))
        covered.append(found.low[0] <= 0.5 <= found.high[0])
    assert 0.88 <= np.mean(covered) <= 1.0


def test_constants_and_a_single_life_have_none() -> None:
    scores, features = np.random.default_rng(0).normal(size=(60, 2)), np.full((60, 2), 0.3)
    features[:, 1] = np.arange(60)
    found = pca_feature_r2(scores, features, make_lives([30, 30]))
    assert np.isnan(found.value[0]) and np.isfinite(found.value[1])
    assert np.isnan(pca_feature_r2(scores, features, make_lives([60])).value).all()
