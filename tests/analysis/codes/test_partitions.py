"""Codes and other ways to divide states and to draw them, beside scikit-learn and plain counts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.manifold import trustworthiness
from sklearn.metrics import adjusted_rand_score, cohen_kappa_score, mutual_info_score, normalized_mutual_info_score
from sklearn.neighbors import NearestNeighbors

from activation_store.directions import Source
from analysis.clusters.summary import CodeUse
from analysis.codes.cards import _differences, _followers_text, cards_markdown
from analysis.codes.fit import TICKS_APART, _Spacing, fit_codebook
from analysis.codes.leaderboard import found_again, group_axes
from analysis.codes.options import FitSettings
from analysis.codes.partitions import (
    LifeResamples,
    Partition,
    conditional_information,
    information_beyond_chance,
    normalised_information,
    partitions,
    perplexity,
    persistence,
    trajectories,
    weighted_adjusted_rand,
)
from analysis.codes.planes import NEIGHBOURS, kept_by
from analysis.codes.run import codes_in_plane, method_of
from analysis.dynamics.neighbours import STEPS
from analysis.lives import Lives
from analysis.runs.codebook_rule import CodebookRule
from analysis.statistics.resampling import Bootstrap
from analysis.statistics.stability import gaussian_surrogate
from tests.planted_lives import make_lives

UNITS, GROUPS, TICKS, LIVES = 32, 4, 40, 15
WAYS = {way.short: way for way in partitions(GROUPS)}
SOURCE = Source("cluster axis", "run", "dump", "policy", None)


def whole_lives(ticks: int = TICKS) -> Lives:
    """Lives one after the other, every tick of each."""
    return make_lives([ticks] * LIVES)


@pytest.fixture
def rng() -> np.random.Generator:
    """Draws that do not depend on which other tests are run."""
    return np.random.default_rng(3)


@pytest.fixture(scope="module")
def planted() -> tuple[np.ndarray, np.ndarray]:
    """States of groups far apart that switch every ten ticks, and the groups."""
    rng = np.random.default_rng(3)
    group = rng.permutation(np.arange(LIVES * TICKS // 10) % GROUPS).repeat(10)
    centres = rng.normal(scale=5, size=(GROUPS, UNITS))
    return (centres[group] + rng.normal(size=(len(group), UNITS))).astype(np.float32), group


@pytest.mark.parametrize("way", [WAYS[name] for name in ("hdbscan", "kmeans", "sparse")], ids=lambda way: way.short)
def test_planted_groups_are_found_in_states_and_in_new_ones(
    way: Partition, planted: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> None:
    states, group = planted
    labels_of = way.fit(states, whole_lives(), 0)
    label = labels_of(states)
    again = labels_of(states + rng.normal(scale=0.1, size=states.shape).astype(np.float32))
    for group_of_label in (group[label == item] for item in np.unique(label)):  # groups may be divided, not mixed
        assert (group_of_label == np.bincount(group_of_label).argmax()).mean() > 0.95
    assert adjusted_rand_score(label, again) > 0.8


def test_states_belong_to_the_planted_source_that_adds_most_to_them(rng: np.random.Generator) -> None:
    source = rng.laplace(size=(3000, GROUPS))
    mixing = 5 * np.linalg.qr(rng.normal(size=(UNITS, GROUPS)))[0].T
    states = (source @ mixing + rng.normal(scale=0.1, size=(len(source), UNITS))).astype(np.float32)
    size = np.sort(np.abs(source), axis=1)
    clear = size[:, -1] > 1.5 * size[:, -2]
    strongest = np.abs(source).argmax(axis=1)
    planted = 2 * strongest + (source[np.arange(len(source)), strongest] > 0)
    labels_of = WAYS["components"].fit(states, whole_lives(), 0)
    assert adjusted_rand_score(labels_of(states)[clear], planted[clear]) > 0.9


def test_behaviours_are_groups_of_motion_and_found_in_trajectories(
    rng: np.random.Generator, planted: tuple[np.ndarray, np.ndarray]
) -> None:
    """Lives go up or down one unit, from places drawn at random: a state does not say which way, its path does."""
    way = rng.integers(2, size=LIVES)
    steps = np.tile(np.arange(TICKS, dtype=np.float64), (LIVES, 1)) * np.where(way, 1, -1)[:, None]
    states = rng.normal(scale=0.05, size=(LIVES * TICKS, UNITS))
    states[:, 0] += (steps + rng.normal(scale=20, size=(LIVES, 1))).ravel()
    paths = trajectories(states.astype(np.float32), whole_lives())
    old = np.tile(np.arange(TICKS), LIVES) >= max(STEPS)
    motion = paths[:, UNITS * len(STEPS)] / np.abs(paths[old, UNITS * len(STEPS)]).mean()
    assert ((motion[old] > 0) == (way.repeat(TICKS)[old] == 1)).all()
    assert not paths[::TICKS, UNITS:].any(), "at the first tick of a life there are no differences"
    planted_states, group = planted
    paths = trajectories(planted_states, whole_lives())
    settled = np.tile(np.arange(TICKS) % 10 >= max(STEPS), LIVES)  # no change of groups within the differences
    still = paths[settled]
    label = WAYS["behaviours"].fit(still, whole_lives(int(settled[:TICKS].sum())), 0)(still.copy())
    assert adjusted_rand_score(label, group[settled]) > 0.9


def test_axes_span_what_separates_the_groups_and_of_two_it_is_one(planted: tuple[np.ndarray, np.ndarray]) -> None:
    states, group = planted
    result = group_axes(states, group, "kmeans", "lstm_hidden", whole_lives(), 2, SOURCE)
    assert [item.name for item in result] == ["kmeans_1", "kmeans_2", "kmeans_3"]
    read = np.stack([item.read_out(states) for item in result], axis=1)
    between = np.array([read[group == item].mean(axis=0) for item in range(GROUPS)])
    assert between.std(axis=0).min() > 2, "each axis separates groups"
    outside = states - read @ np.stack([item.weight for item in result])
    assert np.ptp([outside[group == item].mean(axis=0) for item in range(GROUPS)], axis=0).max() < 0.5
    assert [next(item.faults(), None) for item in result] == [None] * 3
    two, one = (group > 0).astype(np.int64), np.zeros(len(group), np.int64)
    assert len(group_axes(states, two, "codes", "lstm_hidden", whole_lives(), 2, SOURCE)) == 1
    assert group_axes(states, one, "codes", "lstm_hidden", whole_lives(), 2, SOURCE) == []


def test_groups_are_found_again_and_so_are_parts_of_a_gaussian(planted: tuple[np.ndarray, np.ndarray]) -> None:
    """Which is why the agreement of a Gaussian stands beside that of the states."""
    states, group = planted
    lives, fit = whole_lives(), WAYS["kmeans"].fit
    drawn = gaussian_surrogate(states, lives, np.random.default_rng(0))
    own, gaussian = (found_again(fit, of, lives, 0) for of in (states, drawn))
    for measure in ("seeds", "halves"):
        assert adjusted_rand_score(*own[measure]) > 0.95 and adjusted_rand_score(own[measure][0], group) > 0.95
    assert adjusted_rand_score(*gaussian["seeds"]) > 0.5 and adjusted_rand_score(gaussian["seeds"][0], group) < 0.2


RECORDS = 4000
LIFE = np.repeat(np.arange(40), RECORDS // 40)
STRATUM = np.random.default_rng(0).integers(5, size=RECORDS)
ONES = np.ones(RECORDS)


def test_information_is_the_sum_over_strata_beyond_what_they_and_chance_tell(rng: np.random.Generator) -> None:
    act = rng.integers(3, size=RECORDS)
    label = np.where(rng.random(RECORDS) < 0.5, act, rng.integers(3, size=RECORDS))
    shares = [(item == STRATUM).mean() for item in range(5)]
    parts = [mutual_info_score(label[item == STRATUM], act[item == STRATUM]) / np.log(2) for item in range(5)]
    assert conditional_information(label, act, STRATUM, ONES) == pytest.approx(np.dot(shares, parts))
    # Labels and acts both follow the place: no information given it, much without.
    act = (STRATUM + (rng.random(RECORDS) < 0.2)) % 5
    label = (STRATUM + (rng.random(RECORDS) < 0.2)) % 5
    given = information_beyond_chance(label, act, STRATUM, ONES, 0)
    plain = information_beyond_chance(label, act, np.zeros(RECORDS, np.int64), ONES, 0)
    assert abs(given) < 0.01 < 1 < plain
    label, act = rng.integers(8, size=RECORDS), rng.integers(10, size=RECORDS)
    strata = rng.integers(100, size=RECORDS)
    assert conditional_information(label, act, strata, ONES) > 0.5
    assert abs(information_beyond_chance(label, act, strata, ONES, 0)) < 0.05


def test_persistence_is_cohens_kappa(rng: np.random.Generator) -> None:
    label = np.repeat(rng.integers(4, size=RECORDS // 4), 4)
    following = np.where(np.diff(LIFE, append=-1) == 0, np.arange(RECORDS) + 1, -1)
    pairs = following >= 0
    expected = cohen_kappa_score(label[pairs], label[following[pairs]])
    assert persistence(label, following, ONES) == pytest.approx(expected) and expected > 0.5


def test_copies_count_like_records(rng: np.random.Generator) -> None:
    label, other = rng.integers(4, size=500), rng.integers(3, size=500)
    other[:250] = label[:250] % 3
    times = rng.integers(4, size=500)
    rows, weight = np.repeat(np.arange(500), times), times.astype(float)
    index, shared = (score(label[rows], other[rows]) for score in (adjusted_rand_score, normalized_mutual_info_score))
    assert weighted_adjusted_rand(label, other, weight) == pytest.approx(index)
    assert normalised_information(label, other, weight) == pytest.approx(shared)
    assert perplexity(label, weight) == pytest.approx(perplexity(label[rows], np.ones(len(rows))))
    assert perplexity(np.array([0, 1, 2, 3]), np.ones(4)) == pytest.approx(4)


def test_intervals_are_over_lives_and_do_not_lean(
    rng: np.random.Generator,
) -> None:
    """Records of a life that are all the same carry one number, not a hundred."""
    value = rng.normal(size=40)
    result = LifeResamples(LIFE, 400, 0).estimate(lambda weight: float(np.average(value[LIFE], weights=weight)))
    error = value.std() / np.sqrt(40)
    assert result.value == pytest.approx(value.mean()) and 3 * error < result.high - result.low < 5 * error
    alone = LifeResamples(np.zeros(9, np.int64), 100, 0).estimate(lambda weight: 1.0)
    assert alone.value == 1 and np.isnan(alone.low)
    # Each life has a label of its own: every resample has fewer of them than there are.
    result = LifeResamples(LIFE, 400, 0).estimate(lambda weight: perplexity(LIFE, weight))
    assert result.value == pytest.approx(40)
    assert result.low < result.value < result.high and result.high - result.value > 0.3 * (result.value - result.low)


def neighbours(points: np.ndarray) -> list[set[int]]:
    near = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(points).kneighbors(points, return_distance=False)
    return [set(row.tolist()) - {i} for i, row in enumerate(near)]


def test_numbers_are_the_known_ones() -> None:
    states = np.random.default_rng(0).normal(size=(160, 6)).astype(np.float32)
    planes = {"part": states[:, :2], "noise": np.random.default_rng(1).normal(size=(160, 2)), "same": states}
    kept = {item["name"]: item for item in kept_by(states, np.repeat(np.arange(16), 10), planes, 200, 0)}
    for name, plane in planes.items():
        assert kept[name]["trustworthiness"] == pytest.approx(trustworthiness(states, plane, n_neighbors=NEIGHBOURS))
        pairs = zip(neighbours(states), neighbours(plane), strict=True)
        assert kept[name]["neighbours"] == pytest.approx(np.mean([len(a & b) / NEIGHBOURS for a, b in pairs]))
        assert kept[name]["neighbours_low"] <= kept[name]["neighbours"] <= kept[name]["neighbours_high"]
    assert kept["same"]["trustworthiness"] == kept["same"]["neighbours"] == 1
    assert kept["noise"]["neighbours"] < kept["part"]["neighbours_low"]


WIDE, STATES = 256, 2000
QUICK = {"codes": 5, "steps": 300, "states": 128}


def modes(count: int, separation: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian modes, their centres this far from the origin; agents stay in one for 10 records, then in another."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, WIDE))
    centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
    truth = np.repeat(rng.integers(count, size=STATES // 10), 10)
    return (centres[truth] + rng.normal(size=(STATES, WIDE))).astype(np.float32), truth


def fitted(activations: np.ndarray, seed: int = 0, **options: int) -> tuple[CodebookRule, CodeUse]:
    lives = make_lives([len(activations) // 10] * 10)
    tick = np.tile(np.arange(len(activations) // 10) * TICKS_APART, 10)
    return fit_codebook(activations, lives, tick, seed, **(QUICK | options))


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_modes_ten_deviations_apart_are_recovered(scale: float) -> None:
    activations, truth = modes(5, separation=10)
    rule, use = fitted(scale * activations + 3 * scale)
    labels = rule.labels_of(scale * activations + 3 * scale)
    assert adjusted_rand_score(truth, labels) > 0.95
    assert use.perplexity == pytest.approx(5, abs=0.1) and (np.diff(np.bincount(labels)) <= 0).all()


@pytest.mark.slow
def test_eight_modes_are_recovered_from_a_dump_with_three_dimensions_too() -> None:
    activations, truth = modes(8, separation=16)
    for dimensions in (2, 3):
        rule, _ = fitted(activations, codes=8, plane_dimensions=dimensions, steps=500)
        assert rule.weight.shape == (WIDE, dimensions)
        assert adjusted_rand_score(truth, rule.labels_of(activations)) > 0.95


def test_noise_has_no_codes_fits_are_repeated_and_collapse_shows() -> None:
    noise = np.random.default_rng(1).normal(size=(STATES, WIDE)).astype(np.float32)
    first, second = (fitted(noise, seed)[0].labels_of(noise) for seed in (0, 1))
    assert adjusted_rand_score(first, second) < 0.2
    activations, _ = modes(5, separation=10)
    (rule, _), (again, _) = (fitted(activations, steps=120, states=64) for _ in range(2))
    assert np.array_equal(rule.weight, again.weight) and np.array_equal(rule.places, again.places)
    # All states but four are the same: a codebook can only tell those four apart.
    activations = np.zeros((STATES, WIDE), np.float32)
    activations[:4] = np.random.default_rng(0).normal(size=(4, WIDE))
    assert fitted(activations)[1].perplexity < 1.1


def test_states_of_an_agent_are_drawn_far_apart() -> None:
    lives, rng = make_lives([200, 150, 300]), np.random.default_rng(0)
    tick = np.concatenate([np.arange(length) for length in (200, 150, 300)])
    for _ in range(20):
        drawn = _Spacing(lives, tick).draw(40, rng)
        assert 20 <= len(drawn) <= 40
        for life in range(3):
            own = np.sort(tick[drawn[lives.index[drawn] == life]])
            assert (np.diff(own) >= TICKS_APART).all()


def test_the_method_fits_other_records_anew() -> None:
    activations, truth = modes(5, separation=10)
    method = method_of(FitSettings(Path("dump"), **QUICK))
    plane = method.embed(activations[:1000], seed=3, run_records=STATES)
    assert plane.shape == (1000, 2)
    assert adjusted_rand_score(truth[:1000], method.cluster(plane)) > 0.95
    assert codes_in_plane(np.zeros((9, 2), np.float32), 4, 2).tolist() == [0] * 9


def test_a_code_that_every_record_has_is_compared_with_nothing() -> None:
    """Nobody is elsewhere, so nobody is 0 tiles from the middle there."""
    lives, values = whole_lives(), np.arange(float(LIVES * TICKS))
    coded: Any = SimpleNamespace(lives=lives, labels=[0], label=np.zeros(len(values), np.int64))
    (own,) = _differences(coded, values, np.ones((9, LIVES)), Bootstrap()).values()
    np.testing.assert_array_equal(own, (values.mean(), np.nan, np.nan, np.nan))


def test_cards_call_no_q_0() -> None:
    after = {"label": 3, "share": 0.5, "chance": 0.25}
    card: Any = SimpleNamespace(followers=({**after, "q": 1e-4}, {**after, "q": 0.04}, {**after, "q": np.nan}))
    shown = "3 50% (chance 25%, q <0.001), 3 50% (chance 25%, q 0.040), 3 50% (chance 25%)"
    assert _followers_text(card, {}) == shown


@pytest.mark.parametrize("few_episodes", [(), ("With 1 episode the tests cannot tell.",)])
def test_cards_begin_with_what_the_verdict_says_of_all_codes(few_episodes: tuple[str, ...]) -> None:
    verdict = [
        *few_episodes,
        "2 of 2 codes are in use.",
        "Stability.",
        "Cluster 0 (60.0%): moves west.",
        "No confound.",
    ]
    assert cards_markdown("run", [], {}, verdict).split("\n\n")[1] == " ".join(verdict[:-2])
