"""Principal components, their associations with features, directions of clusters, and residuals, on planted values."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from activation_store.directions import Direction
from analysis.clusters.components import (
    binned_profile,
    cluster_directions,
    component_directions,
    pca_feature_r2,
    pearson_r,
    principal_components,
)
from analysis.clusters.dataset import Dataset, check_activations
from analysis.clusters.summarise import residual_variables, residualize
from analysis.labels import NOISE
from analysis.lives import lives_of
from tests.command import assert_refuses
from tests.planted import planted_dump
from tests.planted_lives import make_lives, smooth
from tests.planted_summary import planted_dataset


def test_components_and_scores_of_known_variance() -> None:
    rng = np.random.default_rng(0)
    centred = rng.normal(size=(4000, 6)) * np.sqrt([60.0, 25.0, 10.0, 3.0, 1.5, 0.5])
    activations = (100 + centred).astype(np.float32)
    components = principal_components(activations)
    for measured in (components, principal_components(centred)):
        assert measured.needed_for((0.5, 0.9, 0.99)) == {0.5: 1, 0.9: 3, 0.99: 5}
    scores = components.scores(activations, 3)
    np.testing.assert_allclose(np.abs(np.diag(components.directions)[:3]), 1, atol=0.01)
    left = activations - activations.mean(axis=0)
    np.testing.assert_allclose(scores, left @ components.directions[:3].T, atol=1e-3)
    np.testing.assert_allclose(scores.var(axis=0), [60, 25, 10], rtol=0.1)


def test_fewer_records_than_units() -> None:
    activations = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    components = principal_components(activations)
    assert components.directions.shape == (5, 40) and components.scores(activations, 4).shape == (5, 4)


def test_pearson_r_is_that_of_scipy() -> None:
    rng = np.random.default_rng(1)
    scores, features = rng.normal(size=(50, 3)), rng.normal(size=(50, 4)) + 1e6
    features[:, 1] += 5 * scores[:, 2]
    features[:, 3] = 0.1
    r = pearson_r(scores, features)
    expected = [[stats.pearsonr(s, f).statistic for f in features.T[:3]] for s in scores.T]
    np.testing.assert_allclose(r[:, :3], expected, atol=1e-9)
    assert r[2, 1] > 0.9 and np.isnan(r[:, 3]).all()


def test_profile_follows_the_feature() -> None:
    rng = np.random.default_rng(5)
    lives = make_lives([40] * 50)
    score = rng.normal(size=2000)
    place, mean, low, high = binned_profile(score, score**2, lives)
    assert len(mean) == 20
    np.testing.assert_allclose(mean[1:-1], place[1:-1] ** 2, atol=0.05)
    assert (np.diff(place) > 0).all() and ((low < mean) & (mean < high)).all()


def test_intervals_of_a_profile_count_lives_not_records() -> None:
    """Each life has its own level, so its 50 records carry no more information than one; 95% intervals mostly cover."""
    lives = make_lives([50] * 40)
    held = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        level = rng.normal(size=40)[lives.index]
        *_, low, high = binned_profile(rng.normal(size=2000), level + 0.1 * rng.normal(size=2000), lives, bins=4)
        held.append((low < 0) & (high > 0))
    assert 0.88 < np.mean(held) < 0.99


def test_intervals_of_a_profile_of_few_lives_are_students() -> None:
    lives, held = make_lives([50] * 4), []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        *_, low, high = binned_profile(rng.normal(size=200), rng.normal(size=4)[lives.index], lives, bins=1)
        held.append((low < 0) & (high > 0))
    assert 0.91 < np.mean(held) < 0.99


def test_profile_of_one_life_has_no_interval() -> None:
    _, mean, low, _ = binned_profile(np.arange(9.0), np.arange(9.0), make_lives([9]))
    assert len(mean) == 9 and np.isnan(low).all()


LENGTHS = [30] * 40


def test_planted_shares_are_recovered_within_their_intervals() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1200, 4))
    noise = rng.normal(size=(1200, 3))
    features = np.column_stack([scores @ [1, 1, 0, 0], scores[:, 2], scores[:, 0] * 0]) + noise * [1, 2, 1]
    r2, low, high = pca_feature_r2(scores, features, make_lives(LENGTHS).index)
    for value, truth in zip(r2, (2 / 3, 1 / 5, 0), strict=True):
        assert value == pytest.approx(truth, abs=0.06)
    assert (low < r2).all() and (r2 < high).all()


def test_what_only_marks_a_life_does_not_count() -> None:
    """If nothing changes within lives, a fit holds in the sample but not for other lives."""
    rng = np.random.default_rng(0)
    lives = make_lives(LENGTHS)
    scores = rng.normal(size=(40, 20))[lives.index] + 0.01 * rng.normal(size=(1200, 20))
    feature = rng.normal(size=40)[lives.index][:, None]
    design = np.column_stack([np.ones(1200), scores])
    fitted = design @ np.linalg.lstsq(design, feature, rcond=None)[0]
    in_sample = 1 - ((feature - fitted) ** 2).sum() / ((feature - feature.mean()) ** 2).sum()
    assert in_sample > 0.3 and pca_feature_r2(scores, feature, lives.index)[0] < 0.1


def test_intervals_cover_at_their_rate() -> None:
    covered = []
    for run in range(100):
        rng = np.random.default_rng([1, run])
        scores = np.concatenate([smooth(rng, 30, 3) for _ in range(40)])
        noise = np.concatenate([smooth(rng, 30, 1) for _ in range(40)])
        _, low, high = pca_feature_r2(scores, scores[:, :1] + noise, make_lives(LENGTHS).index)
        covered.append(low[0] <= 0.5 <= high[0])
    assert 0.88 <= np.mean(covered) <= 1.0


def test_constants_and_a_single_life_have_none() -> None:
    scores, features = np.random.default_rng(0).normal(size=(60, 2)), np.full((60, 2), 0.3)
    features[:, 1] = np.arange(60)
    value, _, _ = pca_feature_r2(scores, features, make_lives([30, 30]).index)
    assert np.isnan(value[0]) and np.isfinite(value[1])
    assert np.isnan(pca_feature_r2(scores, features, make_lives([60]).index)).all()


LAYER = "action_decoder"


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted_dataset(planted_dump(agents=6, episodes=3, ticks=40))


@pytest.fixture(scope="module")
def labels(data: Dataset) -> np.ndarray:
    """Arbitrary labels: two clusters and noise."""
    return np.arange(len(data)) % 3 + NOISE


def named(measured: list[Direction], data: Dataset) -> dict[str, Direction]:
    for item in measured:
        assert (item.layer, item.records, item.lives, item.episodes) == (LAYER, len(data), len(data.lives), 3)
        assert item.source.run == "run" and item.source.dump == "dump" and item.source.policy == "planted"
        assert next(item.faults(), None) is None
        value = item.read_out(data.activations)
        assert item.mean == pytest.approx(value.mean()) and item.spread == pytest.approx(value.std())
    return {item.name: item for item in measured}


def test_a_cluster_reads_one_at_its_mean_and_zero_at_that_of_the_rest(data: Dataset, labels: np.ndarray) -> None:
    result = named(list(cluster_directions(data, labels, "run", "dump")), data)
    assert list(result) == ["cluster_0", "cluster_1"]
    for number, item in enumerate(result.values()):
        assert item.source.kind == "cluster difference"
        inside = labels == number
        value = item.read_out(data.activations)
        assert (value[inside].mean(), value[~inside].mean()) == pytest.approx((1, 0), abs=1e-5)
        # One unit of the read-out, along the weight, is the whole difference.
        step = item.weight / (item.weight @ item.weight)
        difference = data.activations[inside].mean(axis=0) - data.activations[~inside].mean(axis=0)
        np.testing.assert_allclose(step, difference, rtol=1e-3, atol=1e-5)


def test_a_cluster_that_does_not_differ_from_the_rest_has_no_direction(data: Dataset) -> None:
    assert not list(cluster_directions(data, np.zeros(len(data), int), "run", "dump"))
    assert not list(cluster_directions(data, np.full(len(data), NOISE), "run", "dump"))


def test_components_read_their_scores(data: Dataset) -> None:
    components = principal_components(data.activations)
    result = named(list(component_directions(data, components, "run", "dump")), data)
    assert len(result) == components.needed_for((0.99,))[0.99] and next(iter(result)) == "component_1"
    scores = components.scores(data.activations, len(result))
    for column, item in enumerate(result.values()):
        assert item.source.kind == "principal component"
        np.testing.assert_allclose(item.read_out(data.activations), scores[:, column], atol=1e-4)
        assert item.mean == pytest.approx(0, abs=1e-5) and item.weight @ item.weight == pytest.approx(1)


def test_any_smooth_course_of_a_variable_is_removed_and_the_rest_stays() -> None:
    rng = np.random.default_rng(0)
    tick = rng.integers(0, 1000, 3000)
    course = np.column_stack([tick / 300, np.sin(tick / 150), (tick / 1000) ** 3])
    rest = 0.1 * rng.normal(size=course.shape)
    left, removed = residualize((course + rest).astype(np.float32), {"tick": tick})
    assert np.corrcoef(left.ravel(), rest.ravel())[0, 1] > 0.97
    assert removed == pytest.approx(course.var(0).sum() / (course + rest).var(0).sum(), abs=0.02)


def test_categories_and_straight_lines_are_removed_exactly_even_twice() -> None:
    rng = np.random.default_rng(1)
    episode, health = rng.integers(0, 30, 500), rng.normal(size=500)
    values = np.column_stack([rng.normal(size=30)[episode], 3 * health])
    left, removed = residualize(values, {"episode": episode, "self_health": health, "agent": episode})
    assert np.abs(left).max() < 1e-4 and removed == pytest.approx(1)


def test_a_variable_that_never_changes_removes_nothing() -> None:
    values = np.random.default_rng(2).normal(size=(50, 3))
    left, removed = residualize(values, {"tick": np.full(50, 7)})
    np.testing.assert_allclose(left, values - values.mean(axis=0), atol=1e-6)
    assert removed == pytest.approx(0, abs=1e-9)
    assert residualize(np.ones((5, 2)), {"tick": np.arange(5)})[1] == 0


def test_variables_come_from_the_records_and_the_features() -> None:
    records = planted_dump(agents=3, episodes=2, ticks=20).records
    lives = lives_of(records)
    health = np.arange(len(records))
    result = residual_variables(["tick", "age", "row", "self_health"], records, lives, {"self_health": health})
    assert list(result) == ["tick", "age", "row", "self_health"]
    np.testing.assert_array_equal(result["age"], result["tick"])  # planted lives begin at tick 0
    np.testing.assert_array_equal(result["row"], records.tile[:, 112, 0])
    np.testing.assert_array_equal(result["self_health"], health)
    message = "--residualize tik: there is no such variable; did you mean tick"
    assert_refuses(message, residual_variables, ["tik"], records, lives, {})


RECORDS = planted_dump(agents=3, episodes=1, ticks=10).records


def with_activations(activations: np.ndarray):
    return replace(RECORDS, activations={LAYER: activations})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_and_named(value: float) -> None:
    check_activations(RECORDS, LAYER)
    activations = RECORDS.activations[LAYER].copy()
    activations[[5, 9], 3] = value
    message = rf"in 2 of {len(RECORDS)} records, first of agent {RECORDS.agent_id[5]} at step {RECORDS.step[5]}:"
    assert_refuses(message, check_activations, with_activations(activations), LAYER)


def test_activations_whose_distances_overflow_are_refused() -> None:
    largest = RECORDS.activations[LAYER] / np.abs(RECORDS.activations[LAYER]).max()
    check_activations(with_activations(largest * 1e17), LAYER)
    message = r"holds 1e\+20, so that squared distances overflow"
    assert_refuses(message, check_activations, with_activations(largest * 1e20), LAYER)
