"""Associations, coverage and confounds: right numbers, few false findings, and planted ones found."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from scipy.stats.contingency import association
from sklearn.metrics import mutual_info_score

from analysis.clusters.blindness import Coverage, coverage
from analysis.lives import Lives, lives_of
from analysis.statistics.association import Association, associations, eta_squares
from analysis.statistics.circular_shift import _all_shifts, shifted_correlations
from analysis.statistics.confounds import (
    LARGE_EXCESS,
    QUANTILES,
    Confounds,
    Variable,
    confounds,
    information,
    most_possible,
    quantile_bins,
    variables_of,
)
from analysis.statistics.inference import Inference
from tests.planted import planted_dump
from tests.planted_coverage import Told, told
from tests.planted_lives import COURSES, labels_of, make_lives, smooth, uneven_lengths, values_of

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


def test_chi_square_and_v_are_those_of_the_table() -> None:
    """V where records are many and independent, and chi-square also where some are noise."""
    rng = np.random.default_rng(1)

    def table(code: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.array([np.bincount(code[labels == i], minlength=OPTIONS) for i in range(CLUSTERS)])

    for noise in (0.0, 0.3):
        code, labels = lasting(rng, OPTIONS), lasting(rng, CLUSTERS)
        labels[rng.random(len(labels)) < noise] = -1
        expected = chi2_contingency(table(code, labels), correction=False)[0]
        assert measured(code, labels).chi_square == pytest.approx(expected, rel=1e-4)
    code = rng.integers(OPTIONS, size=LIVES * LENGTH)
    labels = np.where(rng.random(len(code)) < 0.5, code % CLUSTERS, rng.integers(CLUSTERS, size=len(code)))
    result = measured(code, labels)
    assert result.v == pytest.approx(association(table(code, labels), method="cramer"), abs=0.02)
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


def test_neither_time_nor_what_happens_to_a_world_is_an_association() -> None:
    """Both drift through a life: the option says when, and so does the cluster."""
    rng = np.random.default_rng(4)
    code = np.clip(TICK * OPTIONS // LENGTH + (rng.random(len(TICK)) < 0.3), 0, OPTIONS - 1)
    labels = np.clip(TICK * CLUSTERS // LENGTH + (rng.random(len(TICK)) < 0.3), 0, CLUSTERS - 1)
    result = measured(code, labels)
    assert result.p < 0.01 and result.p_given_time > 0.01 and not result.survives
    rng = np.random.default_rng(5)
    # All lives of an episode share one course of options and one of clusters, independent of each other.
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
    lives = make_lives([30] * 5)
    values = levels(np.random.default_rng(6), lives, 1)
    result = shifted_correlations(values, values, lives, SHIFTS, 0)
    assert np.isnan(result.p).all() and result.r[0, 0] == pytest.approx(1)


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


def test_planted_relations_are_found_and_others_are_not_by_all_circular_shifts(lives: Lives) -> None:
    rng = np.random.default_rng(2)
    right = levels(rng, lives, 3)
    left = np.stack([right[:, 1] + levels(rng, lives, 1)[:, 0], -right[:, 2], np.ones(len(right))], axis=1)
    result = shifted_correlations(left, right, lives, SHIFTS, 0)
    assert result.q[0, 1] < 0.01 and result.q[1, 2] < 0.01
    assert result.r[1, 2] == pytest.approx(-1) and 0.4 < result.r[0, 1] < 0.95
    assert np.isnan(result.p[2]).all() and np.isnan(result.r[2]).all()
    rng = np.random.default_rng(3)
    result = shifted_correlations(levels(rng, lives, 15), levels(rng, lives, 15), lives, SHIFTS, 0)
    assert (result.p < 0.05).mean() < 0.1 and np.nanmin(result.q) > 0.01
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=(7, 3))
    expected = np.stack([x.T @ np.roll(y, -shift, axis=0) for shift in range(7)])
    np.testing.assert_allclose(_all_shifts(x, y), expected, atol=1e-12)


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


def test_groups_of_something_hidden_are_not_covered_and_half_is_half() -> None:
    result = told_by("hidden")
    assert result.reliable and result.listed < 0.02
    assert result.uncovered > 0.9 and 0.7 < result.uncovered_low < result.uncovered < result.uncovered_high
    result = told_by("half hidden")
    assert result.uncovered_low < 0.5 < result.uncovered_high and 0.35 < result.uncovered < 0.65
    first, second = result.parts
    assert (first.name, second.name) == ("first", "second")
    assert second.together - second.listed > 0.1 > 0.03 > first.together - first.listed
    assert result.studied == pytest.approx((first.studied + second.studied) / 2)
    for seed in range(2):
        result = told_by("noise", seed)
        assert not result.reliable and abs(result.studied) < 0.02
        assert np.isnan([result.uncovered, result.uncovered_low, result.uncovered_high]).all()
    few, many = (told_by("half hidden", lives=lives) for lives in (10, 80))
    width = [case.studied_high - case.studied_low for case in (few, many)]
    assert width[0] > 1.5 * width[1]


def test_a_whole_life_is_held_out_and_parts_count_alike() -> None:
    """Groups that name the life tell its own level, and nothing about other lives."""
    rng = np.random.default_rng(0)
    life = np.repeat(np.arange(12), 20)
    level = rng.normal(size=12)[life][:, None] + 0.1 * rng.normal(size=(240, 1))
    studied = (life[:, None] == np.arange(12)).astype(np.float64)
    (result,) = coverage(rng.normal(size=(240, 3)), studied, life, {"level": {"level": level}}, life, FAST)
    assert result.studied < 0.05 and not result.reliable
    drawn = told(np.random.default_rng(0), "half hidden")
    first, second = drawn.targets.values()
    other = {"first": np.column_stack([first, first]) * 1000 + 7, "second": second}
    plain, scaled = (covered(replace(drawn, targets=targets)) for targets in (drawn.targets, other))
    assert scaled.studied == pytest.approx(plain.studied, abs=1e-6)
    assert scaled.uncovered == pytest.approx(plain.uncovered, abs=1e-5)


PERMUTED = Inference(permutations=199)
MANY = 80
EPISODES = 4


def world(rng: np.random.Generator, course: str = "smooth") -> tuple[list[int], Lives, tuple[Variable, ...]]:
    """Lives of four episodes, an agent id in each episode once, and a place that follows a course."""
    lengths = uneven_lengths(rng, MANY)
    lives = make_lives(lengths)
    tick = np.concatenate([np.arange(length) for length in lengths])
    row = values_of(COURSES[course], rng, lengths, 1)[:, 0]
    agent = rng.permutation(MANY) % (MANY // EPISODES)
    return lengths, lives, (
        Variable("tick", quantile_bins(tick)),
        Variable("row", quantile_bins(row)),
        Variable("life", lives.index),
        Variable("agent", agent[lives.index]),
        Variable("episode", (np.arange(MANY) % EPISODES)[lives.index]),
    )  # fmt: skip


def flagged(measured: Confounds, cluster: int = 0) -> set[str]:
    return {confound.name for confound in measured.clusters[cluster] if confound.flagged}


def test_many_clusters_are_measured_a_few_at_a_time_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    lengths, lives, variables = world(rng)
    labels = rng.integers(-1, 7, sum(lengths) // 5 + 1).repeat(5)[: sum(lengths)]
    together = confounds(variables, labels, lives, PERMUTED)
    monkeypatch.setattr("analysis.statistics.confounds._COUNTS_AT_ONCE", 2 * 200 * QUANTILES)
    apart = confounds(variables, labels, lives, PERMUTED)
    for one, other in zip((*apart.clusters, apart.overall), (*together.clusters, together.overall), strict=True):
        for name in ("information", "share", "chance", "p", "q"):
            numbers = [[getattr(item, name) for item in row] for row in (one, other)]
            np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-7, err_msg=name)


def test_two_of_twenty_bins_are_told_by_their_information() -> None:
    whole = np.full(20, 100)
    spread = np.array([25, 25] + [0] * 18)
    assert information(spread, whole) == pytest.approx(np.log(10))
    assert most_possible(np.array([50]), whole) == pytest.approx(np.log(20))
    assert most_possible(np.array([200]), whole) == pytest.approx(np.log(10))  # it fills two bins: no more is possible
    assert information(whole, whole) == 0
    for size in (1, 50, 130, 200, 999):
        fullest = np.clip(size - 100 * np.arange(20), 0, 100)
        assert information(fullest, whole) <= most_possible(np.array([size]), whole) + 1e-12
    tick = np.random.default_rng(0).exponential(200, 20_000).astype(np.int64)
    counts = np.bincount(quantile_bins(tick), minlength=QUANTILES)
    assert len(counts) == QUANTILES and counts.min() > 0.8 * len(tick) / QUANTILES
    for value in np.unique(tick)[:20]:
        assert len(np.unique(quantile_bins(tick)[tick == value])) == 1


@pytest.mark.parametrize("clusters", [1, 40])
def test_a_cluster_in_two_of_twenty_time_bins_is_flagged_among_however_many(clusters: int) -> None:
    rng = np.random.default_rng(0)
    _, lives, variables = world(rng)
    labels = rng.integers(1, clusters + 1, len(lives.index)) if clusters > 1 else np.full(len(lives.index), -1)
    early = variables[0].category < 2
    labels[early & (rng.random(len(early)) < 0.7)] = 0
    result = confounds(variables, labels, lives, PERMUTED)
    assert "tick" in flagged(result)
    (tick,) = (confound for confound in result.clusters[0] if confound.name == "tick")
    assert tick.share > 0.7 and tick.q < 0.01 and tick.excess > 0.5
    assert not any(flagged(result, other) & {"tick", "row"} for other in range(1, len(result.clusters)))


@pytest.mark.parametrize("marked", ["row", "life", "agent", "episode"])
def test_every_planted_confound_is_flagged(marked: str) -> None:
    rng = np.random.default_rng(1)
    lengths, lives, variables = world(rng)
    labels = labels_of(COURSES["smooth"], rng, lengths, 1)
    (variable,) = (item for item in variables if item.name == marked)
    chosen = {"row": [3, 4], "life": [variable.counts.argmax()], "agent": [0, 1], "episode": [2]}[marked]
    inside = np.isin(variable.category, chosen)
    result = confounds(variables, np.where(inside, labels, -1), lives, PERMUTED)
    assert marked in flagged(result)


def test_places_times_and_lives_are_flagged_as_what_they_are() -> None:
    _, lives, variables = world(np.random.default_rng(2), "life_levels")
    result = confounds(variables, np.where(variables[1].category >= 15, 0, -1), lives, PERMUTED)
    assert "row" in flagged(result)
    _, lives, variables = world(np.random.default_rng(3))
    first = np.zeros(len(lives.index), bool)
    first[lives.order[lives.starts]] = True
    for inside in (first, ~first):
        assert flagged(confounds(variables, np.where(inside, 0, -1), lives, PERMUTED)) - {"tick"} == set()
    assert flagged(confounds(variables, np.where(first, 0, -1), lives, PERMUTED)) == {"tick"}
    rng = np.random.default_rng(5)
    lengths, lives, variables = world(rng)
    result = confounds(variables, labels_of(COURSES["life_levels"], rng, lengths), lives, PERMUTED)
    life = [row[2] for row in result.clusters]
    assert all(np.isnan(confound.p) and confound.share > confound.chance for confound in life)
    assert any(confound.flagged for confound in life) or result.overall[2].excess >= LARGE_EXCESS


@pytest.mark.parametrize(("label_course", "row_course"), [
    ("smooth", "smooth"), ("drifting", "drifting"), ("bursting", "wandering"), ("smooth", "life_levels"),
])  # fmt: skip
@pytest.mark.slow
def test_clusters_that_know_nothing_are_rarely_flagged(label_course: str, row_course: str) -> None:
    flags, p = 0, []
    for run in range(30):
        rng = np.random.default_rng([4, run])
        lengths, lives, variables = world(rng, row_course)
        result = confounds(variables, labels_of(COURSES[label_course], rng, lengths), lives, PERMUTED)
        flags += any(flagged(result, cluster) for cluster in range(3))
        p.extend(confound.p for row in result.clusters for confound in row if confound.name != "life")
    assert flags <= 2
    assert np.mean(np.array(p) <= 0.05) < 0.08 and len(p) == 30 * 3 * 4


def test_chance_is_the_mean_of_what_permutations_give_and_overall_information_is_mutual_information() -> None:
    rng = np.random.default_rng(6)
    lengths, lives, variables = world(rng)
    labels = labels_of(COURSES["smooth"], rng, lengths)
    result = confounds(variables, labels, lives, PERMUTED)
    for variable, overall in zip(variables, result.overall, strict=True):
        assert overall.information == pytest.approx(mutual_info_score(variable.category, labels), rel=1e-4)
    for row in (result.overall, *result.clusters):
        for confound in row:
            assert confound.share == pytest.approx(confound.chance, abs=0.15)
            assert confound.excess == pytest.approx((confound.share - confound.chance) / (1 - confound.chance))
            assert 0 <= confound.share <= 1


def test_what_cannot_be_told_says_why_and_maps_are_variables_too() -> None:
    records = planted_dump(agents=8, episodes=1, ticks=20).records
    lives = lives_of(records)
    labels = np.random.default_rng(0).integers(-1, 2, len(records))
    result = confounds(variables_of(records, lives), labels, lives, PERMUTED)
    reasons = {confound.name: confound.reason for confound in result.overall}
    assert reasons["episode"] == "all records have the same episode"
    assert reasons["map"] == "the dump does not record the map"
    assert reasons["policy"] == "all records have the same policy"
    assert reasons["agent"] == "every life has its own agent: see life"
    assert reasons["tick"] == reasons["row"] == reasons["life"] == ""
    nothing = confounds(variables_of(records, lives), np.full(len(records), -1), lives, PERMUTED)
    assert nothing.clusters == () and {item.reason for item in nothing.overall} >= {"there is no cluster"}
    few = records.take(np.isin(lives.index, [0, 1]))
    output = confounds(variables_of(few, lives_of(few)), labels[: len(few)], lives_of(few), PERMUTED)
    assert {item.reason for item in output.overall if item.name == "tick"} == {"there are fewer than 6 lives"}
    assert all(np.isnan(item.p) and not item.flagged for item in output.overall)
    records = planted_dump(agents=20, episodes=3, ticks=20).records
    records = dataclasses.replace(records, columns={"map": records.episode % 2})
    lives = lives_of(records)
    labels = np.where((records.episode == 1) & (np.random.default_rng(0).random(len(records)) < 0.8), 0, -1)
    result = confounds(variables_of(records, lives), labels, lives, PERMUTED)
    assert "map" in flagged(result)
    names = ["tick", "row", "column", "life", "agent", "episode", "map", "policy"]
    assert [item.name for item in result.overall] == names
