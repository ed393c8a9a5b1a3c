"""Planted sources, clusters and outliers are found again, with how much they explain and how stable they are."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from analysis.dynamics.decompositions import Scale, above_gaussians, decompose, matched
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
from analysis.lives import Lives
from analysis.statistics.inference import LEVEL
from tests.planted_lives import make_lives

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


def test_principal_components_are_those_of_linear_algebra(planted) -> None:
    z = Scale.of(planted[0]).z(planted[0])
    result = decompose("pca", z, SOURCES, 0, resamples(RECORDS))
    values, vectors = np.linalg.eigh(np.cov(z.T))
    np.testing.assert_allclose(result.explained, values[::-1][:SOURCES] / values.sum(), rtol=1e-6)
    np.testing.assert_allclose(matched(result.patterns, vectors.T[::-1][:SOURCES]), 1, atol=1e-6)
    np.testing.assert_allclose(result.scores(z).std(axis=0), 1, rtol=1e-3)
    np.testing.assert_allclose(result.fidelity, 1, atol=1e-9)


def test_non_negative_components_are_the_planted_parts() -> None:
    rng = np.random.default_rng(1)
    patterns = np.zeros((SOURCES, UNITS))
    for source in range(SOURCES):
        patterns[source, 4 * source : 4 * source + 4] = [1, 2, 1, 1]
    activity = rng.exponential(size=(RECORDS, SOURCES)) * (rng.random((RECORDS, SOURCES)) < 0.4)
    result = decompose("nmf", activity @ patterns, SOURCES, 0, resamples(RECORDS))
    np.testing.assert_allclose(matched(result.patterns, patterns), 1, atol=0.02)
    assert result.total > 0.97 and result.stability.min() > 0.95


def test_a_unit_that_never_varies_is_left_out_and_harms_nothing(planted) -> None:
    activations = np.concatenate([planted[0], np.full((RECORDS, 1), 3.7, np.float32)], axis=1)
    scale = Scale.of(activations)
    z = scale.z(activations)
    assert (z[:, -1] == 0).all()
    result = decompose("pca", z, SOURCES, 0, [])
    assert np.abs(result.read_outs[:, -1]).max() < 1e-9 and np.isnan(result.stability).all()


def test_matching_ignores_order_and_sign() -> None:
    patterns = np.random.default_rng(3).normal(size=(4, 9))
    np.testing.assert_allclose(matched(patterns, -patterns[[2, 0, 3, 1]] * 5), 1)
    assert matched(patterns, np.zeros((4, 9))).max() == 0


def test_bootstraps_draw_whole_lives() -> None:
    life = np.repeat(np.arange(20), np.arange(1, 21))
    for records in resampled_lives(life, 3, 1):
        counts = np.bincount(records, minlength=len(life))
        for number in range(20):
            assert len(set(counts[life == number])) == 1
    assert all(len(records) == 7 for records in resampled_lives(life, 3, 1, most=7))


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


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], [90, 60, 30])
    return 30 * np.eye(3)[label] + rng.normal(size=(180, 3)), label


def test_neighbours_are_the_nearest_others(blobs) -> None:
    distance = cdist(blobs[0], blobs[0])
    np.testing.assert_allclose(nearest(blobs[0], 4)[0], np.sort(distance, axis=1)[:, 1:5], rtol=1e-3)


def test_planted_clusters_are_found_even_if_no_neighbour_connects_them(blobs) -> None:
    points, label = blobs
    result = ward_labels(points, 3, neighbours=8)
    assert (result == label).all()
    assert explained_by(result, points) > 0.95 and explained_by(np.zeros(180, np.int64), points) == 0
    resamples = [np.random.default_rng(seed).integers(0, 180, 180) for seed in range(3)]
    assert (cluster_agreement(points, result, 3, resamples) == 1).all()
    noise = np.random.default_rng(1).normal(size=(180, 6))
    assert cluster_agreement(noise, ward_labels(noise, 12), 12, resamples).mean() < 0.6, "noise is not found again"


def test_a_planted_outlier_is_marked(blobs) -> None:
    result = outliers(median_distance(np.concatenate([blobs[0], [[300.0, 300.0, 300.0]]])))
    assert result[-1] and result.sum() == 1


def test_agreement_of_planes() -> None:
    plane = np.random.default_rng(2).normal(size=(200, 2))
    turned = plane @ np.array([[0.0, -1.0], [1.0, 0.0]]) * 3 + 7
    assert plane_agreement(plane, turned) == pytest.approx(1)
    assert plane_agreement(plane, np.random.default_rng(3).normal(size=(200, 2))) < 0.3
