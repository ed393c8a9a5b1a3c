"""A cluster that marks a time, a place, a life, an agent, an episode or a map is flagged; chance is not."""

import dataclasses

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from analysis.lives import Lives, lives_of
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
from tests.planted_lives import COURSES, labels_of, make_lives, uneven_lengths, values_of

SETTINGS = Inference(permutations=199)
LIVES = 80
EPISODES = 4


def world(rng: np.random.Generator, course: str = "smooth") -> tuple[list[int], Lives, tuple[Variable, ...]]:
    """Lives of four episodes, an agent id in each episode once, and a place that follows a course."""
    lengths = uneven_lengths(rng, LIVES)
    lives = make_lives(lengths)
    tick = np.concatenate([np.arange(length) for length in lengths])
    row = values_of(COURSES[course], rng, lengths, 1)[:, 0]
    agent = rng.permutation(LIVES) % (LIVES // EPISODES)
    return lengths, lives, (
        Variable("tick", quantile_bins(tick)),
        Variable("row", quantile_bins(row)),
        Variable("life", lives.index),
        Variable("agent", agent[lives.index]),
        Variable("episode", (np.arange(LIVES) % EPISODES)[lives.index]),
    )  # fmt: skip


def flagged(measured: Confounds, cluster: int = 0) -> set[str]:
    return {confound.name for confound in measured.clusters[cluster] if confound.flagged}


def test_many_clusters_are_measured_a_few_at_a_time_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    lengths, lives, variables = world(rng)
    labels = rng.integers(-1, 7, sum(lengths) // 5 + 1).repeat(5)[: sum(lengths)]
    together = confounds(variables, labels, lives, SETTINGS)
    monkeypatch.setattr("analysis.statistics.confounds._COUNTS_AT_ONCE", 2 * 200 * QUANTILES)
    apart = confounds(variables, labels, lives, SETTINGS)
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


@pytest.mark.parametrize("clusters", [1, 40])
def test_a_cluster_in_two_of_twenty_time_bins_is_flagged_among_however_many(clusters: int) -> None:
    rng = np.random.default_rng(0)
    _, lives, variables = world(rng)
    labels = rng.integers(1, clusters + 1, len(lives.index)) if clusters > 1 else np.full(len(lives.index), -1)
    early = variables[0].category < 2
    labels[early & (rng.random(len(early)) < 0.7)] = 0
    result = confounds(variables, labels, lives, SETTINGS)
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
    result = confounds(variables, np.where(inside, labels, -1), lives, SETTINGS)
    assert marked in flagged(result)


def test_a_place_that_whole_lives_keep_to_is_flagged_as_a_place() -> None:
    _, lives, variables = world(np.random.default_rng(2), "life_levels")
    result = confounds(variables, np.where(variables[1].category >= 15, 0, -1), lives, SETTINGS)
    assert "row" in flagged(result)


def test_the_first_records_of_all_lives_mark_a_time_and_no_life() -> None:
    _, lives, variables = world(np.random.default_rng(3))
    first = np.zeros(len(lives.index), bool)
    first[lives.order[lives.starts]] = True
    for inside in (first, ~first):
        assert flagged(confounds(variables, np.where(inside, 0, -1), lives, SETTINGS)) - {"tick"} == set()
    assert flagged(confounds(variables, np.where(first, 0, -1), lives, SETTINGS)) == {"tick"}


@pytest.mark.parametrize(("label_course", "row_course"), [
    ("smooth", "smooth"), ("drifting", "drifting"), ("bursting", "wandering"), ("smooth", "life_levels"),
])  # fmt: skip
@pytest.mark.slow
def test_clusters_that_know_nothing_are_rarely_flagged(label_course: str, row_course: str) -> None:
    flags, p = 0, []
    for run in range(30):
        rng = np.random.default_rng([4, run])
        lengths, lives, variables = world(rng, row_course)
        result = confounds(variables, labels_of(COURSES[label_course], rng, lengths), lives, SETTINGS)
        flags += any(flagged(result, cluster) for cluster in range(3))
        p.extend(confound.p for row in result.clusters for confound in row if confound.name != "life")
    assert flags <= 2
    assert np.mean(np.array(p) <= 0.05) < 0.08 and len(p) == 30 * 3 * 4


def test_clusters_as_slow_as_lives_are_flagged_as_lives_without_a_p_value() -> None:
    rng = np.random.default_rng(5)
    lengths, lives, variables = world(rng)
    result = confounds(variables, labels_of(COURSES["life_levels"], rng, lengths), lives, SETTINGS)
    life = [row[2] for row in result.clusters]
    assert all(np.isnan(confound.p) and confound.share > confound.chance for confound in life)
    assert any(confound.flagged for confound in life) or result.overall[2].excess >= LARGE_EXCESS


def test_chance_is_the_mean_of_what_permutations_give_and_overall_information_is_mutual_information() -> None:
    rng = np.random.default_rng(6)
    lengths, lives, variables = world(rng)
    labels = labels_of(COURSES["smooth"], rng, lengths)
    result = confounds(variables, labels, lives, SETTINGS)
    for variable, overall in zip(variables, result.overall, strict=True):
        assert overall.information == pytest.approx(mutual_info_score(variable.category, labels), rel=1e-4)
    for row in (result.overall, *result.clusters):
        for confound in row:
            assert confound.share == pytest.approx(confound.chance, abs=0.15)
            assert confound.excess == pytest.approx((confound.share - confound.chance) / (1 - confound.chance))
            assert 0 <= confound.share <= 1


def test_what_cannot_be_told_says_why() -> None:
    records = planted_dump(agents=8, episodes=1, ticks=20).records
    lives = lives_of(records)
    labels = np.random.default_rng(0).integers(-1, 2, len(records))
    result = confounds(variables_of(records, lives), labels, lives, SETTINGS)
    reasons = {confound.name: confound.reason for confound in result.overall}
    assert reasons["episode"] == "all records have the same episode"
    assert reasons["map"] == "the dump does not record the map"
    assert reasons["policy"] == "all records have the same policy"
    assert reasons["agent"] == "every life has its own agent: see life"
    assert reasons["tick"] == reasons["row"] == reasons["life"] == ""
    nothing = confounds(variables_of(records, lives), np.full(len(records), -1), lives, SETTINGS)
    assert nothing.clusters == () and {item.reason for item in nothing.overall} >= {"there is no cluster"}
    few = records.take(np.isin(lives.index, [0, 1]))
    output = confounds(variables_of(few, lives_of(few)), labels[: len(few)], lives_of(few), SETTINGS)
    assert {item.reason for item in output.overall if item.name == "tick"} == {"there are fewer than 6 lives"}
    assert all(np.isnan(item.p) and not item.flagged for item in output.overall)


def test_maps_are_variables_too() -> None:
    records = planted_dump(agents=20, episodes=3, ticks=20).records
    records = dataclasses.replace(records, columns={"map": records.episode % 2})
    lives = lives_of(records)
    labels = np.where((records.episode == 1) & (np.random.default_rng(0).random(len(records)) < 0.8), 0, -1)
    result = confounds(variables_of(records, lives), labels, lives, SETTINGS)
    assert "map" in flagged(result)
    names = ["tick", "row", "column", "life", "agent", "episode", "map", "policy"]
    assert [item.name for item in result.overall] == names


def test_quantile_bins_are_flat_over_the_whole_dump() -> None:
    tick = np.random.default_rng(0).exponential(200, 20_000).astype(np.int64)
    counts = np.bincount(quantile_bins(tick), minlength=QUANTILES)
    assert len(counts) == QUANTILES and counts.min() > 0.8 * len(tick) / QUANTILES
    for value in np.unique(tick)[:20]:
        assert len(np.unique(quantile_bins(tick)[tick == value])) == 1
