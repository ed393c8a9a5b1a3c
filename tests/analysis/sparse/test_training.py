"""Planted features are recovered and described, an interrupted training ends the same, and noise is not described."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from activation_store.reader import read_metadata
from activation_store.sparse_dictionary import AUTOENCODERS, DictionaryKind, SparseDictionary
from agent_zoo.sparse_codes import SparseCoder
from analysis.features.registry import features_named
from analysis.sparse.describing import erasers, erasure_row
from analysis.sparse.fitting import baseline, claim
from analysis.sparse.meaning import TOP, correlations, description, meanings, shift_test, title, top_records
from analysis.sparse.outputs import matched, stability
from analysis.sparse.settings import SparseSettings
from analysis.sparse.states import Behaviours, SparseStates, split_episodes
from analysis.sparse.training import Epoch, FitPlan, Parameters, geometric_median, normalisation, train
from analysis.statistics.circular_shift import age_of
from analysis.statistics.stability import gaussian_surrogate
from common.array_files import read_tensors, write_tensors
from tests.command import assert_refuses
from tests.planted import planted_dump, write_planted
from tests.planted_features import SOURCE, PlantedFeatures, planted_features
from tests.planted_lives import make_lives

K = 3
FEATURES = 96


def fitted(plan: FitPlan, states: np.ndarray, path: Path) -> tuple[SparseDictionary, list[Epoch]]:
    result = train(plan, states, normalisation(states, 0), path)
    return result.dictionary(SOURCE), result.curve


@pytest.fixture(scope="module")
def planted() -> PlantedFeatures:
    return planted_features()


@pytest.fixture(scope="module")
def topk(planted: PlantedFeatures, tmp_path_factory: pytest.TempPathFactory) -> SparseDictionary:
    return fitted(FitPlan("topk", FEATURES, K, 0, 30), planted.states, tmp_path_factory.mktemp("topk") / "x")[0]


def test_planted_features_are_recovered_with_their_strengths(planted: PlantedFeatures, topk: SparseDictionary) -> None:
    cosines = planted.cosines(topk.decoder)
    assert cosines.mean() > 0.95 and (cosines > 0.9).mean() > 0.9
    # Twice as many features as units are more than PCA can have.
    pca = baseline("pca", planted.states, FEATURES, K, SOURCE)
    assert np.abs(planted.directions @ pca.decoder.T).max(axis=1).mean() < 0.7
    assert np.abs(np.linalg.norm(topk.decoder, axis=1) - 1).max() < 1e-5
    states = torch.from_numpy(planted.states[:2000])
    strengths = SparseCoder(topk).strengths(states).numpy()
    assert ((strengths > 0).sum(axis=1) <= K).all() and (strengths >= 0).all()
    # A planted feature is as strong as it was made.
    for number in range(5):
        partner = int((planted.directions[number] @ topk.decoder.T).argmax())
        true, result = planted.strengths[:2000, number], strengths[:, partner]
        both = (true > 0) & (result > 0)
        assert both.sum() > 20 and np.abs(result[both] - true[both]).mean() < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in AUTOENCODERS if kind != "topk"])
def test_every_kind_finds_most_of_them_with_the_sparsity_asked_for(
    planted: PlantedFeatures, kind: DictionaryKind, tmp_path: Path
) -> None:
    dictionary, curve = fitted(FitPlan(kind, FEATURES, K, 0, 30), planted.states, tmp_path / "x")
    assert planted.cosines(dictionary.decoder).mean() > 0.8
    active = (SparseCoder(dictionary).strengths(torch.from_numpy(planted.states[:4000])) > 0).sum(dim=1)
    assert abs(float(active.float().mean()) - K) < 0.5
    assert curve[-1].unexplained < curve[0].unexplained


def test_features_that_are_found_again_are_those_that_are_there(
    planted: PlantedFeatures, topk: SparseDictionary, tmp_path: Path
) -> None:
    other, _ = fitted(FitPlan("topk", FEATURES, K, 1, 30), planted.states, tmp_path / "one")
    # Gaussian noise of the same covariance holds no features, yet different seeds agree more than random directions.
    random, lives = np.random.default_rng(0), make_lives([100] * 80)
    noise = random.multivariate_normal(planted.states.mean(axis=0), np.cov(planted.states.T), len(lives.index))
    surrogate = gaussian_surrogate(planted.states[: len(lives.index)], lives, random)

    def decoders(name: str, states: np.ndarray) -> list[np.ndarray]:
        plans = [FitPlan("topk", FEATURES, K, seed, 8) for seed in (0, 1)]
        return [fitted(plan, states, tmp_path / f"{name}{plan.seed}")[0].decoder for plan in plans]

    (ones, others), floor = decoders("noise", noise.astype(np.float32)), decoders("s", surrogate.astype(np.float32))
    reached = matched(*floor)
    nothing = stability(ones, others, reached, 0)
    assert nothing.found_again.value < 0.1 and nothing.stable < 0.02
    assert nothing.mean.value == pytest.approx(nothing.gaussian.value, abs=0.05) and nothing.mean.value > nothing.chance
    assert stability(planted.directions, topk.decoder, reached, 0).found_again.value > 0.9
    result = stability(topk.decoder, other.decoder, reached, 0)
    assert result.found_again.value > 0.4 and result.stable > 0.4
    assert (result.q[result.cosine < reached.mean()] > 0.05).all()


@pytest.mark.parametrize("bias", [-1.8, -4.0])
def test_dead_features_are_revived(
    planted: PlantedFeatures, bias: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that no state comes near to activating."""
    drawn = Parameters.drawn

    def mostly_low(*arguments) -> Parameters:
        result = drawn(*arguments)
        result.encoder_bias[10:] = bias
        return result

    monkeypatch.setattr(Parameters, "drawn", staticmethod(mostly_low))
    plan = FitPlan("topk", FEATURES, K, 0, 8)
    revived = fitted(plan, planted.states, tmp_path / "revived")[1][-1]
    monkeypatch.setattr("analysis.sparse.training.REVIVING", 0.0)
    left = fitted(plan, planted.states, tmp_path / "left")[1][-1]
    assert left.dead > 10 and revived.dead < left.dead / 3


@pytest.mark.parametrize("kind", AUTOENCODERS)
def test_a_seed_decides_every_bit_with_and_without_an_interruption(
    planted: PlantedFeatures, kind: DictionaryKind, tmp_path: Path
) -> None:
    states, plan = planted.states[:3000], FitPlan(kind, 48, K, 4, 4)
    normal = normalisation(states, 0)
    whole = train(plan, states, normal, tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        train(plan, states, normal, tmp_path / "stopped", stop)
    resumed = train(plan, states, normal, tmp_path / "stopped")
    assert resumed.curve == whole.curve and resumed.threshold == whole.threshold
    for name, array in whole.parameters.items():
        np.testing.assert_array_equal(resumed.parameters[name], array)


def test_other_trainings_and_still_states_are_refused_and_the_median_is_robust(
    planted: PlantedFeatures, tmp_path: Path
) -> None:
    assert_refuses("the same state in every record", normalisation, np.ones((10, 3), np.float32), 0)
    states, path = planted.states[:1000], tmp_path / "x"
    normal = normalisation(states, 0)
    train(FitPlan("topk", 24, K, 0, 2), states, normal, path)
    assert_refuses("other arguments", train, FitPlan("topk", 24, K, 1, 2), states, normal, path)
    arrays, text = read_tensors(path, "autoencoder training")
    del arrays["silent"]
    write_tensors(path, arrays, text, "autoencoder training")
    assert_refuses("is damaged", train, FitPlan("topk", 24, K, 0, 2), states, normal, path)
    settings = SparseSettings(tmp_path / "dump", output_dir=tmp_path)
    settings.training_folder.mkdir()
    (settings.training_folder / ".plan.json.x.partial").touch()  # of a run that was killed at once
    assert claim(settings, {}) == settings.training_folder
    for path in settings.training_folder.iterdir():
        path.unlink()
    (settings.training_folder / "mine.txt").touch()
    assert_refuses("holds other files", claim, settings, {})
    points = np.random.default_rng(0).standard_normal((1000, 3))
    points[:100] += 1000
    assert np.abs(geometric_median(points)).max() < 0.5 and points.mean() > 50
    np.testing.assert_allclose(geometric_median(np.array([[0.0], [1.0], [5.0]])), [1.0], atol=1e-3)


EPISODES = 8


def test_a_quarter_is_tested_on_and_no_more_records_are_used_than_allowed_but_an_episode_of_each(
    tmp_path: Path,
) -> None:
    dump = write_planted(tmp_path / "dump", planted_dump(episodes=EPISODES, ticks=20))
    metadata = read_metadata(dump)
    limits = (metadata.records, 10**6, metadata.records // 2, 1)
    parts, whole, half, least = (split_episodes(dump, metadata, 0, most) for most in limits)
    assert sorted((*parts.train, *parts.test)) == list(range(EPISODES)) and len(parts.test) == 2
    assert 0 < len(half.train) <= 3 and len(half.test) == 1
    assert set(half.train) < set(whole.train) and set(half.test) < set(whole.test)
    assert len(least.train) == len(least.test) == 1


LIVES, LENGTH = 40, 100
BEHAVIOURS = ("self_food", "self_health", "is_moving", "n_visible_npcs", "self_water")
FOOD, AGE_ONLY, MOVING, NOISE, NEVER = range(5)
NOISES = 40
"""Features of smooth noise beside the planted ones."""


def smooth(random: np.random.Generator, count: int) -> np.ndarray:
    """Return courses that change slowly over each life, (records, count)."""
    steps = random.standard_normal((LIVES, LENGTH + 20, count)).cumsum(axis=1)
    result = steps[:, 20:] - steps[:, :-20]
    return result.reshape(-1, count) / result.std()


def behaving(seed: int) -> tuple[sparse.csr_array, Behaviours]:
    """Behaviours that change slowly, and features of which three are made of something."""
    random = np.random.default_rng(seed)
    lives, tick = make_lives([LENGTH] * LIVES), np.tile(np.arange(LENGTH), LIVES)
    life = lives.index
    values = smooth(random, len(BEHAVIOURS))
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


def test_planted_features_are_described_and_noise_and_age_are_not() -> None:
    measured = meanings(behaving(0), behaving(1), 0)
    features = features_named(BEHAVIOURS)
    assert measured.described[[FOOD, MOVING]].all()
    assert title(measured, FOOD, features) == "low self_food" and title(measured, MOVING, features) == "is_moving"
    words = description(measured, FOOD, features)
    assert "It goes strongly with low self_food (r -0." in words and "also at the same tick and age" in words
    assert measured.auc[FOOD, 0] < 0.05 and measured.auc[MOVING, 2] > 0.8
    noise = np.arange(NOISE, NOISES + 4)
    noise = noise[noise != NEVER]
    assert measured.described[noise].sum() <= 2  # 5% of what is described may be false
    assert not measured.described[AGE_ONLY]
    assert "mostly in the last third of lives" in description(measured, AGE_ONLY, features)
    assert "It goes with none of the 5 behaviours" in description(measured, AGE_ONLY, features)
    assert title(measured, NEVER, features) == "never active in the test episodes" and np.isnan(measured.p[NEVER])


@pytest.mark.parametrize("shared", ["age", "life"])
def test_what_goes_the_other_way_once_age_or_life_is_the_same_is_not_described(shared: str) -> None:
    """Feature and behaviour both rise with age, or differ between lives, and go against each other beyond that."""
    random = np.random.default_rng(0)
    lives, tick = make_lives([LENGTH] * LIVES), np.tile(np.arange(LENGTH), LIVES)
    of_life = np.linspace(-3, 3, LIVES)[lives.index]
    places = {"env_id": lives.index, "agent_id": lives.index, "episode": lives.index % 4, "tick": tick}
    states = SparseStates(np.zeros((len(tick), 1), np.float32), places, lives)
    both = 0.06 * tick if shared == "age" else of_life
    own, noise = random.standard_normal((2, len(tick)))
    values = (both + own)[:, None]
    rest = (values - both[:, None] if shared == "age" else values) / values.std()
    behaviours = Behaviours(states, values.astype(np.float32), rest.astype(np.float32), age_of(tick, lives))
    for sign in (1, -1):
        strengths = sparse.csr_array(np.maximum(1.5 * both + sign * 0.7 * own + noise + 3, 0)[:, None])
        measured = meanings((strengths, behaviours), (strengths, behaviours), 0)
        assert measured.correlation[0, 0] > 0.3 and measured.q[0] < 0.01
        assert (measured.given_time[0, 0] > 0.1) == (sign > 0 or shared == "life")
        assert measured.described[0] == (sign > 0)
        words = description(measured, 0, features_named(["self_food"]))
        assert ("goes the other way at the same tick and age" in words) == (sign < 0)


def test_correlations_of_many_records_hold_where_a_feature_is_always_active_and_hardly_varies() -> None:
    random = np.random.default_rng(0)
    value, noise = random.standard_normal((2, 400_000))
    strength = (10 + 0.1 * (value + noise)).astype(np.float32)[:, None]
    result = correlations(sparse.csr_array(strength), value[:, None])
    np.testing.assert_allclose(result[0, 0], np.corrcoef(strength[:, 0].astype(np.float64), value)[0, 1], atol=1e-6)


def test_noise_has_uniform_p_values_and_density_is_that_of_lives() -> None:
    strengths, behaviours = behaving(2)
    noise = [number for number in range(NOISE, NOISES + 4) if number != NEVER]
    best = np.zeros(strengths.shape[1], np.int64)
    p = shift_test(strengths, behaviours.rest, best, behaviours, 0, permutations=199)[0][noise]
    assert 0.3 < np.median(p) < 0.7 and (p < 0.05).mean() < 0.2
    result = meanings(behaving(0), (strengths, behaviours), 0)
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
