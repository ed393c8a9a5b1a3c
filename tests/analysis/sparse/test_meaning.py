"""Planted features are described as they were planted, and noise is not described."""

import numpy as np
import pytest
from scipy import sparse

from activation_store.sparse_dictionary import SparseDictionary
from analysis.features.registry import features_named
from analysis.sparse.cards import TOP, description, title, top_records
from analysis.sparse.describing import erasers, erasure_row
from analysis.sparse.meaning import Meanings, meanings, shift_test
from analysis.sparse.states import Behaviours, SparseStates
from analysis.statistics.circular_shift import age_of
from tests.planted_features import SOURCE
from tests.planted_lives import make_lives

LIVES, LENGTH = 40, 100
NAMES = ("self_food", "self_health", "is_moving", "n_visible_npcs", "self_water")
FOOD, AGE_ONLY, MOVING, NOISE, NEVER = range(5)
NOISES = 40
"""Features of smooth noise beside the planted ones."""


def smooth(random: np.random.Generator, count: int) -> np.ndarray:
    """Return courses that change slowly over each life, (records, count)."""
    steps = random.standard_normal((LIVES, LENGTH + 20, count)).cumsum(axis=1)
    result = steps[:, 20:] - steps[:, :-20]
    return result.reshape(-1, count) / result.std()


def planted(seed: int) -> tuple[sparse.csr_array, Behaviours]:
    """Behaviours that change slowly, and features of which three are made of something."""
    random = np.random.default_rng(seed)
    lives, tick = make_lives([LENGTH] * LIVES), np.tile(np.arange(LENGTH), LIVES)
    life = lives.index
    values = smooth(random, len(NAMES))
    values[:, MOVING] = values[:, MOVING] > 0
    strengths = np.maximum(smooth(random, NOISES + 4) - 1, 0)
    strengths[:, FOOD] = np.maximum(-values[:, 0] - 0.5, 0)
    strengths[:, AGE_ONLY] = np.maximum(tick - 60, 0) / 40
    strengths[:, MOVING] = 2.0 * values[:, MOVING] * (random.random(len(life)) < 0.7)
    strengths[:, NEVER] = 0
    rest = values / values.std(axis=0)
    values[:, 1] += 0.1 * tick  # grows with age, as the feature of age does
    places = {"env_id": life, "agent_id": life, "episode": life % 4, "tick": tick}
    states = SparseStates(np.zeros((len(life), 1), np.float32), places, lives)
    behaviours = Behaviours(states, values.astype(np.float32), rest.astype(np.float32), age_of(tick, lives))
    return sparse.csr_array(strengths.astype(np.float32)), behaviours


@pytest.fixture(scope="module")
def found() -> Meanings:
    return meanings(planted(0), planted(1), 0)


def test_planted_features_are_described(found: Meanings) -> None:
    features = features_named(NAMES)
    assert found.described[[FOOD, MOVING]].all()
    assert title(found, FOOD, features) == "low self_food" and title(found, MOVING, features) == "is_moving"
    words = description(found, FOOD, features)
    assert "It goes strongly with low self_food (r -0." in words and "also at the same tick and age" in words
    assert found.auc[FOOD, 0] < 0.05 and found.auc[MOVING, 2] > 0.8


def test_noise_and_age_are_not_described(found: Meanings) -> None:
    noise = np.arange(NOISE, NOISES + 4)
    noise = noise[noise != NEVER]
    assert found.described[noise].sum() <= 2  # 5% of what is described may be false
    assert not found.described[AGE_ONLY]
    features = features_named(NAMES)
    assert "mostly in the last third of lives" in description(found, AGE_ONLY, features)
    assert "It goes with none of the 5 behaviours" in description(found, AGE_ONLY, features)
    assert title(found, NEVER, features) == "never active in the test episodes" and np.isnan(found.p[NEVER])


def test_p_values_of_smooth_noise_are_uniform() -> None:
    strengths, behaviours = planted(2)
    noise = [number for number in range(NOISE, NOISES + 4) if number != NEVER]
    best = np.zeros(strengths.shape[1], np.int64)
    p = shift_test(strengths, behaviours.rest, best, behaviours, 0, permutations=199)[noise]
    assert 0.3 < np.median(p) < 0.7 and (p < 0.05).mean() < 0.2


def test_density_over_a_life_and_top_records() -> None:
    strengths, behaviours = planted(3)
    result = meanings(planted(0), (strengths, behaviours), 0)
    dense = strengths.toarray()
    np.testing.assert_allclose(result.density, (dense > 0).mean(axis=0))
    assert (result.by_age[AGE_ONLY, :12] == 0).all() and (result.by_age[AGE_ONLY, 13:] > 0.9).all()
    np.testing.assert_allclose(result.by_age.mean(axis=1), result.density)
    feature, record = top_records(strengths, behaviours, np.array([FOOD, MOVING]))
    assert (np.diff(record) >= 0).all()
    own = record[feature == FOOD]
    lives = behaviours.states.lives.index[own]
    assert len(own) == TOP == len(set(lives.tolist()))
    best_of_lives = np.sort(dense[:, FOOD].reshape(LIVES, LENGTH).max(axis=1))[::-1]
    np.testing.assert_allclose(np.sort(dense[own, FOOD])[::-1], best_of_lives[:TOP])


def test_what_is_left_of_an_erased_variable() -> None:
    """A variable that one feature carries is gone with that feature; LEACE always removes it, with less movement."""
    random = np.random.default_rng(0)
    variable = np.maximum(random.standard_normal(4000), 0)
    strengths = np.abs(random.standard_normal((4000, 6)))
    strengths[:, 2] = variable
    decoder = np.linalg.qr(random.standard_normal((8, 8)))[0][:6].astype(np.float32)
    states = (strengths @ decoder).astype(np.float32)
    flat, centre = np.zeros(6, np.float32), np.zeros(8, np.float32)
    dictionary = SparseDictionary("topk", 6, decoder, centre, SOURCE, decoder.copy(), flat, flat)
    first, second = (states[:2000], variable[:2000]), (states[2000:], variable[2000:])
    ways = erasers(*first, sparse.csr_array(strengths[:2000]), dictionary)
    result = {by: erasure_row("x", by, edit, first, second, np.nan) for by, edit in ways.items()}
    assert result["nothing"]["r2"] > 0.99 and result["nothing"]["moved"] == 0
    for by in ("leace", "1 feature"):
        assert abs(result[by]["r2"]) < 0.02
    assert 0 < result["leace"]["moved"] <= result["1 feature"]["moved"] + 1e-6 < result["4 features"]["moved"]
