"""Planted sources, clusters, outliers and behaviours of several layers are found again, with how stable they are."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score

from analysis.dynamics.behaviours import (
    Behaviours,
    by_layer,
    find_behaviours,
    measures,
    pairs_of,
    points_in,
    space_of,
    trajectories,
)
from analysis.dynamics.decompositions import Kind, Scale, above_gaussians, decompose, matched
from analysis.dynamics.neighbours import (
    cluster_agreement,
    explained_by,
    median_distance,
    nearest,
    outliers,
    plane_agreement,
    resampled_lives,
    ward_labels,
)
from analysis.dynamics.stages import fewer_records
from analysis.dynamics.tracks import Tracks
from analysis.lives import Lives
from analysis.statistics.inference import LEVEL
from tests.command import assert_refuses
from tests.planted_lives import make_lives
from tests.planted_tracks import tracks_of

RECORDS, UNITS, SOURCES = 3000, 12, 3


@pytest.fixture(scope="module")
def planted() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Activations, sources and what each source adds to them: independent sources with long tails upwards."""
    rng = np.random.default_rng(0)
    sources = rng.exponential(size=(RECORDS, SOURCES)) - 1
    mixing = rng.normal(size=(SOURCES, UNITS))
    activations = sources @ mixing + 0.05 * rng.normal(size=(RECORDS, UNITS)) + rng.normal(size=UNITS)
    return activations.astype(np.float32), sources, mixing


def resamples(records: int) -> list[np.ndarray]:
    return resampled_lives(np.arange(records) // 30, 4, 0)


def test_independent_components_are_the_planted_sources(planted) -> None:
    activations, sources, mixing = planted
    scale = Scale.of(activations)
    z = scale.z(activations)
    result = decompose("ica", z, SOURCES, 0, resamples(RECORDS))
    r = np.corrcoef(result.scores(z).T, sources.T)[:SOURCES, SOURCES:]
    assert (np.abs(r).max(axis=1) > 0.98).all() and len(set(np.abs(r).argmax(axis=1))) == SOURCES
    assert (r[np.arange(SOURCES), np.abs(r).argmax(axis=1)] > 0).all(), "the long tail points upwards"
    np.testing.assert_allclose(matched(result.patterns * scale.spread, mixing), 1, atol=0.02)
    assert result.stability.min() > 0.95 and result.total > 0.98
    np.testing.assert_allclose(result.explained.sum(), result.total, atol=0.01)
    assert (np.diff(result.explained) <= 0).all()


def test_refits_find_independent_components_whatever_the_mean_of_the_lives_drawn() -> None:
    """Few lives that differ: those drawn have another mean than all of them, which is no part of a component."""
    rng, lives = np.random.default_rng(0), make_lives([100] * 8)
    sources = rng.laplace(size=(len(lives.index), 6)) + 0.5 * rng.standard_normal((len(lives), 6))[lives.index]
    states = sources @ rng.standard_normal((6, 20)) + 0.01 * rng.standard_normal((len(sources), 20))
    result = decompose("ica", Scale.of(states).z(states), 6, 0, resampled_lives(lives.index, 10, 0))
    assert result.stability.min() > 0.97, result.stability


def test_principal_components_are_those_of_linear_algebra(planted) -> None:
    z = Scale.of(planted[0]).z(planted[0])
    result = decompose("pca", z, SOURCES, 0, resamples(RECORDS))
    values, vectors = np.linalg.eigh(np.cov(z.T))
    np.testing.assert_allclose(result.explained, values[::-1][:SOURCES] / values.sum(), rtol=1e-6)
    np.testing.assert_allclose(matched(result.patterns, vectors.T[::-1][:SOURCES]), 1, atol=1e-6)
    np.testing.assert_allclose(result.scores(z).std(axis=0), 1, rtol=1e-3)
    np.testing.assert_allclose(result.fidelity, 1, atol=1e-9)
    activations = np.concatenate([planted[0], np.full((RECORDS, 1), 3.7, np.float32)], axis=1)
    scale = Scale.of(activations)
    z = scale.z(activations)
    assert (z[:, -1] == 0).all()
    result = decompose("pca", z, SOURCES, 0, [])
    assert np.abs(result.read_outs[:, -1]).max() < 1e-9 and np.isnan(result.stability).all()


def test_non_negative_components_are_the_planted_parts() -> None:
    rng = np.random.default_rng(1)
    patterns = np.zeros((SOURCES, UNITS))
    for source in range(SOURCES):
        patterns[source, 4 * source : 4 * source + 4] = [1, 2, 1, 1]
    activity = rng.exponential(size=(RECORDS, SOURCES)) * (rng.random((RECORDS, SOURCES)) < 0.4)
    result = decompose("nmf", activity @ patterns, SOURCES, 0, resamples(RECORDS))
    np.testing.assert_allclose(matched(result.patterns, patterns), 1, atol=0.02)
    assert result.total > 0.97 and result.stability.min() > 0.95


@pytest.mark.parametrize("kind", ["pca", "ica", "nmf"])
def test_the_largest_seed_has_refits_too(kind: Kind, planted) -> None:
    z = Scale.of(planted[0][:300]).z(planted[0][:300])
    assert np.isfinite(decompose(kind, z, SOURCES, 2**32 - 1, resamples(300)).stability).all()


def test_bootstraps_draw_whole_lives_and_matching_ignores_order_and_sign() -> None:
    life = np.repeat(np.arange(20), np.arange(1, 21))
    for records in resampled_lives(life, 3, 1):
        counts = np.bincount(records, minlength=len(life))
        for number in range(20):
            assert len(set(counts[life == number])) == 1
    assert all(len(records) == 7 for records in resampled_lives(life, 3, 1, most=7))
    patterns = np.random.default_rng(3).normal(size=(4, 9))
    np.testing.assert_allclose(matched(patterns, -patterns[[2, 0, 3, 1]] * 5), 1)
    assert matched(patterns, np.zeros((4, 9))).max() == 0


def faded(sources: np.ndarray, lives: Lives) -> np.ndarray:
    """Sources that last: each fades at its own speed within lives."""
    result, speeds = sources.copy(), np.linspace(0.1, 0.7, sources.shape[1])
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        for place in range(start + 1, start + length):
            result[place] = speeds * result[place - 1] + np.sqrt(1 - speeds**2) * sources[place]
    return result


@pytest.mark.parametrize("planted_sources", [2, 0])
def test_components_are_stable_only_above_those_of_a_gaussian(planted_sources: int, monkeypatch) -> None:
    """Two sources that are mostly silent among six Gaussian ones are stable; of eight Gaussian ones, none is."""
    monkeypatch.setattr("analysis.dynamics.decompositions._ITERATIONS", 40)
    rng, lives, units = np.random.default_rng(1), make_lives([30, 80, 10, 40] * 10), 8
    sources = rng.normal(size=(len(lives.index), units))
    active = rng.random((len(sources), planted_sources)) < 0.3
    sources[:, :planted_sources] = active * rng.laplace(size=active.shape)
    states = faded(sources, lives) @ rng.normal(size=(units, units))
    z = Scale.of(states).z(states)
    result = decompose("ica", z, units, 0, resampled_lives(lives.index, 4, 0))
    floor, q = above_gaussians(result, z, lives, 0)
    result = replace(result, stability_q=q)
    assert result.stable.sum() == planted_sources, (result.stability, floor.max(axis=1))
    assert result.stability[~result.stable].max() > 0.6, "which by itself looks like something"


def test_principal_components_of_a_gaussian_are_as_stable(planted) -> None:
    """They follow from the covariance alone, so no principal component passes the floor."""
    z, lives = Scale.of(planted[0]).z(planted[0]), make_lives([30] * (RECORDS // 30))
    result = decompose("pca", z, SOURCES, 0, resampled_lives(lives.index, 4, 0))
    assert result.stability.min() > 0.9 and result.floor.size == 0 and not result.stable.any()
    floor, q = above_gaussians(result, z, lives, 0)
    assert (q > LEVEL).all() and floor.mean() > 0.9


def test_records_are_left_out_evenly_along_lives_and_not_before_there_are_too_many() -> None:
    lives, rng = make_lives([30, 80, 10, 40]), np.random.default_rng(0)
    z = rng.normal(size=(160, 3))
    same, own = fewer_records(z, lives, 160)
    assert same is z and own is lives
    few, theirs = fewer_records(z, lives, 40)
    assert len(few) == 40 and theirs.lengths.tolist() == pytest.approx([7.5, 20, 2.5, 10], abs=0.51)
    place = [int(np.flatnonzero((z == row).all(axis=1))[0]) for row in few]
    np.testing.assert_array_equal(lives.index[place], theirs.index)
    within = [np.diff(np.flatnonzero(np.isin(lives.order[start : start + length], place))) for start, length in
              zip(lives.starts, lives.lengths, strict=True)]  # fmt: skip
    assert set(np.concatenate(within).tolist()) == {4}


def test_planted_clusters_neighbours_outliers_and_planes_are_found_as_they_are() -> None:
    label = np.repeat([0, 1, 2], [90, 60, 30])
    points = 30 * np.eye(3)[label] + np.random.default_rng(0).normal(size=(180, 3))
    result = ward_labels(points, 3, neighbours=8)
    assert (result == label).all()
    assert explained_by(result, points) > 0.95 and explained_by(np.zeros(180, np.int64), points) == 0
    resamples = [np.random.default_rng(seed).integers(0, 180, 180) for seed in range(3)]
    assert (cluster_agreement(points, result, 3, resamples) == 1).all()
    noise = np.random.default_rng(1).normal(size=(180, 6))
    assert cluster_agreement(noise, ward_labels(noise, 12), 12, resamples).mean() < 0.6, "noise is not found again"
    distance = cdist(points, points)
    np.testing.assert_allclose(nearest(points, 4)[0], np.sort(distance, axis=1)[:, 1:5], rtol=1e-3)
    marked = outliers(median_distance(np.concatenate([points, [[300.0, 300.0, 300.0]]])))
    assert marked[-1] and marked.sum() == 1, "one that was planted"
    plane = np.random.default_rng(2).normal(size=(200, 2))
    turned = plane @ np.array([[0.0, -1.0], [1.0, 0.0]]) * 3 + 7
    assert plane_agreement(plane, turned) == pytest.approx(1)
    assert plane_agreement(plane, np.random.default_rng(3).normal(size=(200, 2))) < 0.3


LIVES, TICKS, BOUT, SKIPPED = 12, 60, 20, 6
LENGTHS = [TICKS] * LIVES
AGENT, WORLD = "lstm_hidden", "world_hidden"


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    """One of four behaviours in each bout of 20 ticks: the agent's is its half, the world's its parity."""
    random = np.random.default_rng(0)
    bouts = np.stack([random.permutation(4)[: TICKS // BOUT] for _ in range(LIVES)])
    return np.repeat(bouts.ravel(), BOUT)


@pytest.fixture(scope="module")
def two_layers(truth: np.ndarray) -> Tracks:
    return planted_tracks(truth, units=(4, 90))


def planted_tracks(truth: np.ndarray, units: tuple[int, int]) -> Tracks:
    """The agent knows whether the behaviour is 2 or 3, the world whether it is odd; the rest is noise."""
    random = np.random.default_rng(1)
    layers = {}
    for name, known, count in ((AGENT, truth >= 2, units[0]), (WORLD, truth % 2 == 1, units[1])):
        held = np.where(known, 3.0, -3.0)[:, None] * random.uniform(0.5, 1, count)
        layers[name] = held + random.normal(0, 0.3, (len(truth), count))
    nothing = np.empty((len(truth), 0))
    return tracks_of(nothing, nothing, LENGTHS, layers[AGENT], layers)


def steady(tracks: Tracks) -> np.ndarray:
    """Ticks whose whole trajectory lies in one bout."""
    return tracks.place % BOUT >= SKIPPED


def found_in(tracks: Tracks, layers: list[str], count: int) -> Behaviours:
    return find_behaviours(tracks, space_of(tracks, layers, {}), count, 2, 0)


def test_only_both_layers_together_separate_four_behaviours(two_layers: Tracks, truth: np.ndarray) -> None:
    kept = steady(two_layers)
    together = found_in(two_layers, [AGENT, WORLD], 12).label[kept]
    purest = sum(np.bincount(truth[kept][together == one]).max() for one in np.unique(together))
    assert purest / kept.sum() > 0.99
    for layer, own in ((AGENT, truth >= 2), (WORLD, truth % 2 == 1)):
        alone = found_in(two_layers, [layer], 12).label[kept]
        assert sum(np.bincount(own[kept][alone == one]).max() for one in np.unique(alone)) / kept.sum() > 0.99
        assert sum(np.bincount(truth[kept][alone == one]).max() for one in np.unique(alone)) / kept.sum() < 0.75
        assert measures(together, truth[kept])[0] > measures(alone, truth[kept])[0] + 0.15


@pytest.mark.parametrize("units", [(4, 90), (90, 4), (20, 20)])
def test_layers_weigh_the_same_however_many_units_they_have(truth: np.ndarray, units: tuple[int, int]) -> None:
    tracks = planted_tracks(truth, units)
    space = space_of(tracks, [AGENT, WORLD], {})
    _, moving = trajectories(tracks, points_in(space, tracks.records.activations))
    assert by_layer(space, moving.var(axis=0)) == pytest.approx([1, 1])
    result = find_behaviours(tracks, space, 4, 2, 0)
    assert ((result.kept > 0.5) & (result.kept <= 1 + 1e-9)).all()


def test_behaviours_hold_a_share_of_all_variance_not_of_that_in_principal_components(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    tracks = tracks_of(
        np.empty((240, 0)), np.empty((240, 0)), [80, 160], activations={AGENT: rng.normal(size=(240, 40))}
    )
    monkeypatch.setattr("analysis.dynamics.behaviours.DIMENSIONS", 8)
    space = space_of(tracks, [AGENT], {})
    result = find_behaviours(tracks, space, 6, 2, 0)
    records, trajectory = trajectories(tracks, points_in(space, tracks.records.activations))
    label, whole = result.label[records], ((trajectory - trajectory.mean(axis=0)) ** 2).sum()
    means = np.stack([trajectory[label == one].mean(axis=0) for one in label])
    assert result.explained == pytest.approx(1 - ((trajectory - means) ** 2).sum() / whole)
    assert result.explained < result.kept[0] < 0.5


def test_one_layer_alone_is_not_rescaled_and_one_that_never_moves_is_refused(two_layers: Tracks) -> None:
    space = space_of(two_layers, [AGENT], {})
    own = two_layers.records.activations[AGENT]
    np.testing.assert_allclose(points_in(space, {AGENT: own}), (own - own.mean(axis=0)) / own.std(axis=0))
    still = tracks_of(two_layers.state, two_layers.read, LENGTHS, activations={"still": np.ones((len(two_layers), 3))})
    assert_refuses("still is the same in all ticks", space_of, still, ["still"], {})


def labelled(label: np.ndarray) -> Behaviours:
    return Behaviours(label, 1.0, np.zeros(1), np.zeros(1), np.ones(1))


def test_agreement_stands_beside_that_with_labels_of_other_lives(two_layers: Tracks, truth: np.ndarray) -> None:
    random = np.random.default_rng(2)
    unrelated = np.repeat(random.integers(0, 3, LIVES * TICKS // 5), 5)
    label = np.where(two_layers.place >= SKIPPED, truth, -1)
    of = {"all": truth, "half": truth // 2, "none": unrelated}
    result = {name: labelled(np.where(label >= 0, own, -1)) for name, own in of.items()}
    rows = {(pair.one, pair.other): pair for pair in pairs_of(result, two_layers, 99, 0)}
    assert set(rows) == {("all", "half"), ("all", "none"), ("half", "none")}
    half, none = rows["all", "half"], rows["all", "none"]
    inside = label >= 0
    assert half.ticks == inside.sum() == LIVES * (TICKS - SKIPPED)
    assert half.rand == pytest.approx(adjusted_rand_score(truth[inside], truth[inside] // 2))
    assert 0.6 < half.information < 0.7 and half.information > half.dealt_information_high + 0.2
    assert none.information < 1.5 * none.dealt_information_high and abs(none.dealt_rand) < 0.05
    assert half.dealt_information <= half.dealt_information_high and half.dealt_rand <= half.dealt_rand_high
    assert measures(truth, 3 - truth) == pytest.approx((1, 1)), "the same division agrees fully"
    of_life = two_layers.lives.index % 3
    there = np.where(two_layers.place >= SKIPPED, of_life, -1)
    (row,) = pairs_of({name: labelled(there) for name in ("one", "other")}, two_layers, 99, 0)
    assert row.information == row.rand == pytest.approx(1) and row.dealt_information < 0.5 and row.dealt_rand < 0.3
