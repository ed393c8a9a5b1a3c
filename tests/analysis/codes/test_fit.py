"""Codes recover planted modes, do not invent them in noise, and say when they have collapsed."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from analysis.codes.fit import TICKS_APART, Codebook, FitOptions, _Spacing, fit_codebook
from analysis.codes.run import codes_in_plane, method_of, rule_of
from tests.planted_lives import make_lives

UNITS, RECORDS = 256, 2000
QUICK = FitOptions(codes=5, steps=300, states=128)


def modes(count: int, separation: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian modes, their centres this far from the origin; agents stay in one for 10 records, then in another."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, UNITS))
    centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
    truth = np.repeat(rng.integers(count, size=RECORDS // 10), 10)
    return (centres[truth] + rng.normal(size=(RECORDS, UNITS))).astype(np.float32), truth


def fitted(activations: np.ndarray, options: FitOptions = QUICK, seed: int = 0) -> Codebook:
    lives = make_lives([len(activations) // 10] * 10)
    tick = np.tile(np.arange(len(activations) // 10) * TICKS_APART, 10)
    return fit_codebook(activations, lives, tick, options, seed)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_modes_ten_deviations_apart_are_recovered(scale: float) -> None:
    activations, truth = modes(5, separation=10)
    book = fitted(scale * activations + 3 * scale)
    labels = book.labels(scale * activations + 3 * scale)
    assert adjusted_rand_score(truth, labels) > 0.95
    assert book.perplexity == pytest.approx(5, abs=0.1) and (np.diff(np.bincount(labels)) <= 0).all()
    assert np.array_equal(rule_of(book).labels_of(scale * activations + 3 * scale), labels)


@pytest.mark.slow
def test_eight_modes_are_recovered_from_a_dump_with_three_dimensions_too() -> None:
    activations, truth = modes(8, separation=16)
    for dimensions in (2, 3):
        book = fitted(activations, FitOptions(8, dimensions, 500, 128))
        assert book.weight.shape == (UNITS, dimensions)
        assert adjusted_rand_score(truth, book.labels(activations)) > 0.95


def test_noise_has_no_codes_that_another_seed_finds_again() -> None:
    noise = np.random.default_rng(1).normal(size=(RECORDS, UNITS)).astype(np.float32)
    first, second = (fitted(noise, seed=seed).labels(noise) for seed in (0, 1))
    assert adjusted_rand_score(first, second) < 0.2


def test_a_fit_is_repeated_bit_for_bit() -> None:
    activations, _ = modes(5, separation=10)
    options = FitOptions(codes=5, steps=120, states=64)
    first, again = fitted(activations, options), fitted(activations, options)
    assert np.array_equal(first.weight, again.weight) and np.array_equal(first.places, again.places)


def test_collapse_shows_in_the_perplexity() -> None:
    """All states but four are the same: a codebook can only tell those four apart."""
    activations = np.zeros((RECORDS, UNITS), np.float32)
    activations[:4] = np.random.default_rng(0).normal(size=(4, UNITS))
    assert fitted(activations).perplexity < 1.1


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
    method = method_of(QUICK)
    plane = method.embed(activations[:1000], seed=3, run_records=RECORDS)
    assert plane.shape == (1000, 2)
    assert adjusted_rand_score(truth[:1000], method.cluster(plane)) > 0.95
    assert codes_in_plane(np.zeros((9, 2), np.float32), 4, 2).tolist() == [0] * 9
