"""Associations, correlations within lives, and coverage: right numbers, few false findings, and planted ones found."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from scipy.stats.contingency import association

from analysis.clusters.blindness import Coverage, coverage
from analysis.lives import Lives
from analysis.statistics.association import Association, associations, eta_squares
from analysis.statistics.circular_shift import _all_shifts, shifted_correlations
from analysis.statistics.inference import Inference
from tests.planted_coverage import Told, told
from tests.planted_lives import make_lives, smooth, values_of

LIVES, LENGTH, OPTIONS, CLUSTERS = 40, 30, 5, 4
SETTINGS = Inference(199, 199)
TICK = np.tile(np.arange(LENGTH), LIVES)
ALIKE = make_lives([LENGTH] * LIVES)


def lasting(rng: np.random.Generator, options: int, change: float = 0.3) -> np.ndarray:
    """Options that last a few ticks, independent in each life, (B,)."""
    values = rng.integers(options, size=LIVES * LENGTH)
    stays = rng.random(LIVES * LENGTH) >= change
    stays[::LENGTH] = False
    latest = np.maximum.accumulate(np.where(stays, 0, np.arange(LIVES * LENGTH)))
    return values[latest]


def measured(code: np.ndarray, labels: np.ndarray, episodes: int = 2) -> Association:
    episode = np.repeat(np.arange(LIVES) % episodes, LENGTH)
    (result,) = associations({"move": code}, labels, ALIKE, TICK, episode, SETTINGS)
    return result


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_chi_square_is_that_of_the_table(noise: float) -> None:
    rng = np.random.default_rng(1)
    code, labels = lasting(rng, OPTIONS), lasting(rng, CLUSTERS)
    labels[rng.random(len(labels)) < noise] = -1
    table = np.array([np.bincount(code[labels == i], minlength=OPTIONS) for i in range(CLUSTERS)])
    assert measured(code, labels).chi_square == pytest.approx(chi2_contingency(table, correction=False)[0], rel=1e-4)


def test_v_is_that_of_the_table_where_records_are_many_and_independent() -> None:
    rng = np.random.default_rng(2)
    code = rng.integers(OPTIONS, size=LIVES * LENGTH)
    labels = np.where(rng.random(len(code)) < 0.5, code % CLUSTERS, rng.integers(CLUSTERS, size=len(code)))
    table = np.array([np.bincount(code[labels == i], minlength=OPTIONS) for i in range(CLUSTERS)])
    result = measured(code, labels)
    assert result.v == pytest.approx(association(table, method="cramer"), abs=0.02)
    assert result.survives and result.chi_square > result.shifted_largest


def test_options_that_have_nothing_to_do_with_clusters_are_seldom_called_associated() -> None:
    """Bouts of both last several ticks, so that the chi-square of independent records would reject nearly always."""
    rng = np.random.default_rng(3)
    runs = [(lasting(rng, OPTIONS), lasting(rng, CLUSTERS)) for _ in range(60)]
    result = [measured(code, labels) for code, labels in runs]
    assert sum(item.survives for item in result) <= 7  # 60 runs at 5%: more than 7 in 1 of 100
    assert np.mean([item.v for item in result]) < 0.06
    naive = [chi2_contingency(np.histogram2d(code, labels, (OPTIONS, CLUSTERS))[0])[1] < 0.05 for code, labels in runs]
    assert np.mean(naive) > 0.5


def test_what_only_time_explains_does_not_survive_given_time() -> None:
    """Both drift through a life: the option says when, and so does the cluster."""
    rng = np.random.default_rng(4)
    code = np.clip(TICK * OPTIONS // LENGTH + (rng.random(len(TICK)) < 0.3), 0, OPTIONS - 1)
    labels = np.clip(TICK * CLUSTERS // LENGTH + (rng.random(len(TICK)) < 0.3), 0, CLUSTERS - 1)
    result = measured(code, labels)
    assert result.p < 0.01 and result.p_given_time > 0.01 and not result.survives


def test_with_enough_episodes_what_happens_to_a_whole_world_is_no_association() -> None:
    """All lives of an episode share one course of options and one of clusters, independent of each other."""
    rng = np.random.default_rng(5)
    rejected = 0
    for _ in range(20):
        code, labels = (lasting(rng, 3)[: 8 * LENGTH].reshape(8, LENGTH) for _ in range(2))
        episode = np.arange(LIVES) % 8
        rejected += measured(code[episode].ravel(), labels[episode].ravel(), episodes=8).survives
    assert rejected <= 4


def test_too_few_lives_and_too_few_options_are_not_tested() -> None:
    rng = np.random.default_rng(6)
    labels = lasting(rng, CLUSTERS)
    always = measured(np.zeros(len(labels), np.int64), labels)
    assert np.isnan(always.v) and np.isnan(always.p) and not always.survives
    code = np.zeros(len(labels), np.int64)
    code[: 3 * LENGTH] = lasting(rng, OPTIONS)[: 3 * LENGTH]
    assert np.isnan(measured(code, labels).p)
    assert associations({}, labels, ALIKE, TICK, TICK, SETTINGS) == ()


def test_components_that_a_choice_divides_are_found() -> None:
    rng = np.random.default_rng(7)
    code = lasting(rng, OPTIONS)
    scores = rng.normal(size=(len(code), 3))
    scores[:, 1] += code
    episode = np.repeat(np.arange(LIVES) % 2, LENGTH)
    (result,) = eta_squares(scores, {"move": code}, ALIKE, TICK, episode, SETTINGS)
    groups = [scores[code == option, 1] for option in range(OPTIONS)]
    between = sum(len(group) * (group.mean() - scores[:, 1].mean()) ** 2 for group in groups)
    assert result.value[1] == pytest.approx(between / (scores[:, 1].var() * len(code)), rel=1e-4)
    assert result.surviving == [1] and result.name == "move" and len(result.value) == 3


SHIFTS = 199


def levels(rng: np.random.Generator, lives: Lives, columns: int) -> np.ndarray:
    """Smooth values, at another level in each life."""
    return drift(rng, lives, columns) + 9 * rng.normal(size=(len(lives), columns))[lives.index]


def drift(rng: np.random.Generator, lives: Lives, columns: int) -> np.ndarray:
    return values_of(smooth, rng, lives.lengths.tolist(), columns)


@pytest.fixture(scope="module")
def lives() -> Lives:
    return make_lives(np.random.default_rng(1).integers(40, 80, 24).tolist())


def test_every_circular_shift_is_summed() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=(7, 3))
    expected = np.stack([x.T @ np.roll(y, -shift, axis=0) for shift in range(7)])
    np.testing.assert_allclose(_all_shifts(x, y), expected, atol=1e-12)


def test_planted_relations_are_found_and_others_are_not(lives: Lives) -> None:
    rng = np.random.default_rng(2)
    right = levels(rng, lives, 3)
    left = np.stack([right[:, 1] + levels(rng, lives, 1)[:, 0], -right[:, 2], np.ones(len(right))], axis=1)
    result = shifted_correlations(left, right, lives, SHIFTS, 0)
    assert result.q[0, 1] < 0.01 and result.q[1, 2] < 0.01
    assert result.r[1, 2] == pytest.approx(-1) and 0.4 < result.r[0, 1] < 0.95
    assert np.isnan(result.p[2]).all() and np.isnan(result.r[2]).all()


def test_smooth_series_alone_are_rarely_related(lives: Lives) -> None:
    rng = np.random.default_rng(3)
    result = shifted_correlations(levels(rng, lives, 15), levels(rng, lives, 15), lives, SHIFTS, 0)
    assert (result.p < 0.05).mean() < 0.1 and np.nanmin(result.q) > 0.01


def test_what_all_lives_of_an_episode_share_is_not_taken_for_a_relation() -> None:
    """Two series that drift with each world's tick, in 8 worlds of 6 lives: only 8 independent pairs."""
    lives, rng = make_lives([40] * 48), np.random.default_rng(4)
    episode = np.repeat(np.arange(8), 6 * 40)
    worlds = make_lives([40] * 8)
    shared = [np.tile(levels(rng, worlds, 10).reshape(8, 1, 40, 10), (1, 6, 1, 1)).reshape(-1, 10) for _ in range(2)]
    noise = [0.01 * rng.normal(size=shared[0].shape) for _ in range(2)]
    left, right = shared[0] + noise[0], shared[1] + noise[1]
    alone, together = (shifted_correlations(left, right, lives, SHIFTS, 0, episode=of) for of in (None, episode))
    assert (alone.p < 0.05).mean() > 0.2 and (together.p < 0.05).mean() < 0.12


def test_only_the_chosen_records_count(lives: Lives) -> None:
    rng = np.random.default_rng(5)
    inside = np.arange(len(lives.index)) % 40 < 15
    right = drift(rng, lives, 1)
    left = np.where(inside[:, None], right, drift(rng, lives, 1))
    result = shifted_correlations(left, right, lives, SHIFTS, 0, inside=inside)
    without = shifted_correlations(left, right, lives, SHIFTS, 0, inside=~inside)
    assert result.r[0, 0] > 0.8 and result.p[0, 0] < 0.01
    assert abs(without.r[0, 0]) < 0.4 and without.p[0, 0] > 0.01


def test_too_few_lives_are_not_tested() -> None:
    lives = make_lives([30] * 5)
    values = levels(np.random.default_rng(6), lives, 1)
    result = shifted_correlations(values, values, lives, SHIFTS, 0)
    assert np.isnan(result.p).all() and result.r[0, 0] == pytest.approx(1)


FAST = Inference(bootstraps=199)


def covered(drawn: Told) -> Coverage:
    studied = (drawn.groups[:, None] == np.arange(4)).astype(np.float64)
    (result,) = coverage(drawn.listed, studied, drawn.groups, {"what happens": drawn.targets}, drawn.unit, FAST)
    return result


def told_by(how: str, seed: int = 0, lives: int = 40) -> Coverage:
    return covered(told(np.random.default_rng(seed), how, lives))


@pytest.mark.parametrize("how", ["one feature", "two features"])
def test_groups_made_of_listed_features_are_covered(how: str) -> None:
    """Also where no straight line through the features tells the groups."""
    result = told_by(how)
    assert result.reliable and result.studied == pytest.approx(0.2, abs=0.06)  # of each part 1/4 / (1 + 1/4)
    assert result.uncovered < 0.15 and result.uncovered_low < 0.1


def test_groups_of_something_hidden_are_not_covered() -> None:
    result = told_by("hidden")
    assert result.reliable and result.listed < 0.02
    assert result.uncovered > 0.9 and 0.7 < result.uncovered_low < result.uncovered < result.uncovered_high


def test_half_is_half_and_the_part_that_is_not_covered_is_named() -> None:
    result = told_by("half hidden")
    assert result.uncovered_low < 0.5 < result.uncovered_high and 0.35 < result.uncovered < 0.65
    first, second = result.parts
    assert (first.name, second.name) == ("first", "second")
    assert second.together - second.listed > 0.1 > 0.03 > first.together - first.listed
    assert result.studied == pytest.approx((first.studied + second.studied) / 2)


def test_of_noise_nothing_is_said() -> None:
    for seed in range(2):
        result = told_by("noise", seed)
        assert not result.reliable and abs(result.studied) < 0.02
        assert np.isnan([result.uncovered, result.uncovered_low, result.uncovered_high]).all()


def test_a_whole_life_is_held_out() -> None:
    """Groups that name the life tell its own level, and nothing about other lives."""
    rng = np.random.default_rng(0)
    life = np.repeat(np.arange(12), 20)
    level = rng.normal(size=12)[life][:, None] + 0.1 * rng.normal(size=(240, 1))
    studied = (life[:, None] == np.arange(12)).astype(np.float64)
    (result,) = coverage(rng.normal(size=(240, 3)), studied, life, {"level": {"level": level}}, life, FAST)
    assert result.studied < 0.05 and not result.reliable


def test_parts_count_alike_whatever_their_units_and_columns() -> None:
    drawn = told(np.random.default_rng(0), "half hidden")
    first, second = drawn.targets.values()
    other = {"first": np.column_stack([first, first]) * 1000 + 7, "second": second}
    plain, scaled = (covered(replace(drawn, targets=targets)) for targets in (drawn.targets, other))
    assert scaled.studied == pytest.approx(plain.studied, abs=1e-6)
    assert scaled.uncovered == pytest.approx(plain.uncovered, abs=1e-5)


def test_fewer_lives_give_wider_intervals() -> None:
    few, many = (told_by("half hidden", lives=lives) for lives in (10, 80))
    width = [case.studied_high - case.studied_low for case in (few, many)]
    assert width[0] > 1.5 * width[1]
