"""Reconstructions in place of recorded states, effects of features, and autoencoders in the layout of SAELens."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from activation_store.reader import read_dump, read_metadata
from activation_store.sparse_dictionary import AUTOENCODERS, DictionaryKind, SparseDictionary
from agent_zoo.sparse_codes import SparseCoder, matching_pursuit
from analysis.sparse.fitting import baseline
from analysis.sparse.outputs import CONFIG_FILE, WEIGHTS_FILE, sae_lens_files
from analysis.sparse.scores import Units, usage
from analysis.sparse.splicing import (
    MEAN,
    Attributions,
    RecordedPolicy,
    SplicedRun,
    attribute,
    load_recorded_policy,
    load_untrained,
    read_ticks,
    reconstructions,
    splice,
)
from analysis.sparse.states import read_states
from analysis.statistics.inference import student_stretch
from tests.command import assert_refuses
from tests.planted_features import SOURCE
from tests.recorded_features import POLICY, UNITS, RecordedFeatures

LAYERS = ("lstm_cell", "lstm_hidden", "encoder_output", "action_decoder")


def recorded_at(features_dump: RecordedFeatures, layer: str) -> RecordedPolicy:
    return load_recorded_policy(features_dump.dump, read_metadata(features_dump.dump), features_dump.policies, layer)


def spliced(dump: Path, policy: RecordedPolicy, layer: str) -> SplicedRun:
    states = read_states(dump, policy.prefix + layer, (0, 1)).values
    components = {f"pca {k}": baseline("pca", states, UNITS, k, SOURCE) for k in (1, 4, UNITS)}
    return splice(dump, policy, layer, reconstructions(components), (2, 3), states.mean(axis=0), 0)


@pytest.mark.parametrize("layer", LAYERS)
def test_what_changes_depends_on_what_is_kept(features_dump: RecordedFeatures, layer: str) -> None:
    run = spliced(features_dump.dump, recorded_at(features_dump, layer), layer)
    all_kept = f"pca {UNITS}"
    assert run.kl(all_kept).value < 1e-3 * run.kl(MEAN).value < 1
    assert run.value(all_kept).value < 1e-3 * run.value(MEAN).value
    assert 0 < run.kl("pca 4").value < run.kl("pca 1").value
    assert run.kl_kept(MEAN).value == 0 and run.kl_kept(all_kept).value > 0.99
    one = run.kl("pca 1")
    assert one.low < one.value < one.high
    assert run.kl_less("pca 4", "pca 1").low > 0 > run.kl_less("pca 1", "pca 4").high
    # The values computed again are the recorded ones: rebuilt memory and observation are exact.
    output = np.concatenate([read_dump(features_dump.dump, episodes=[case]).value for case in (2, 3)])
    assert run.value_spread == pytest.approx(float(output.std()), rel=1e-3)


def test_policies_that_were_not_recorded_are_refused_and_the_untrained_is_spliced(
    features_dump: RecordedFeatures, tmp_path: Path
) -> None:
    metadata, policies = read_metadata(features_dump.dump), features_dump.policies
    assert metadata.policy == POLICY
    for change, folder, message in (
        ({}, tmp_path, "is not there: give --policies-dir, or pass --no-splice"),
        ({"checkpoint_sha256": "0" * 64}, policies, "was recorded with another policy"),
        ({"layers": {"lstm_cell": UNITS}}, policies, "lacks lstm_hidden"),
    ):
        other = replace(metadata, **change)
        assert_refuses(message, load_recorded_policy, features_dump.dump, other, folder, "lstm_cell")
    policy = recorded_at(features_dump, "lstm_cell")
    twin = load_untrained(features_dump.dump, metadata, policy)
    assert twin is not None and twin.prefix == "untrained_"
    run = spliced(features_dump.dump, twin, "lstm_cell")
    assert run.kl(f"pca {UNITS}").value < 1e-3 * run.kl(MEAN).value
    assert 0 < run.kl("pca 4").value < run.kl("pca 1").value
    for other in (replace(metadata, seed=5), replace(metadata, seed=None)):
        assert load_untrained(features_dump.dump, other, policy) is None
    less = {name: units for name, units in metadata.layers.items() if name != "untrained_lstm_hidden"}
    assert load_untrained(features_dump.dump, replace(metadata, layers=less), policy) is None


def test_first_ticks_of_simulated_lives_are_not_computed_from_an_empty_memory(features_dump: RecordedFeatures) -> None:
    metadata = read_metadata(features_dump.dump)
    simulated = replace(metadata, origin="simulated", world_model_sha256="0" * 64)
    for of, empty in ((metadata, True), (simulated, False)):
        policy = load_recorded_policy(features_dump.dump, of, features_dump.policies, "lstm_cell")
        ticks = read_ticks(features_dump.dump, policy, 0, 10**6, 0)
        is_empty = (ticks.before.cell[-1] == 0).all(dim=1).numpy()
        assert is_empty.sum() == (len(np.unique(ticks.life)) if empty else 0)


def test_matching_pursuit_of_components_takes_the_largest_scores_and_keeps_to_its_number_of_atoms() -> None:
    random = np.random.default_rng(0)
    states = (random.standard_normal((500, 8)) * np.arange(1, 9)).astype(np.float32)
    pca = baseline("pca", states, 8, 3, SOURCE)
    scores = (states - pca.centre) @ pca.decoder.T
    smallest = np.sort(np.abs(scores), axis=1)[:, [-3]]
    expected = np.where(np.abs(scores) >= smallest, scores, 0)
    result = SparseCoder(pca).strengths(torch.from_numpy(states)).numpy()
    np.testing.assert_allclose(result, expected, atol=1e-4)
    generator = torch.Generator().manual_seed(0)
    atoms = torch.nn.functional.normalize(torch.randn(40, 6, generator=generator), dim=1)
    vectors = torch.randn(200, 6, generator=generator)
    for k in (1, 3, 5):
        strengths = matching_pursuit(vectors, atoms, atoms @ atoms.T, k)
        assert int((strengths != 0).sum(dim=1).max()) == k
    own = matching_pursuit(3 * atoms, atoms, atoms @ atoms.T, 1)
    torch.testing.assert_close(own, 3 * torch.eye(40), atol=1e-4, rtol=1e-4)


def test_the_variance_left_is_that_of_components_and_intervals_are_over_lives_or_episodes(
    features_dump: RecordedFeatures,
) -> None:
    states = read_states(features_dump.dump, "lstm_cell", (0, 1, 2, 3))
    units = Units.of(states.lives.index, states.episodes, 0)
    assert units.name == "episode"
    pca = baseline("pca", states.values, UNITS, UNITS, SOURCE)
    assert usage(pca, states.values, units).unexplained.value < 1e-5
    one = usage(replace(pca, k=1), states.values, units)
    assert 0 < one.unexplained.value < 1 and one.active == 1
    assert one.density.sum() == pytest.approx(1) and one.alive == (one.density > 0).sum()
    few = states.episodes < 3
    units = Units.of(states.lives.index[few], states.episodes[few], 0)
    assert units.name == "life"
    # An estimate that is the same in every life has an interval without width.
    same = units.mean(np.full(int(few.sum()), 0.3))
    assert (same.value, same.low, same.high) == pytest.approx((0.3, 0.3, 0.3))
    # Between lives that differ, the interval is as wide as theory says: 1.96 standard errors to either side.
    of_life = np.random.default_rng(0).standard_normal(int(units.of_record.max()) + 1)
    drawn = units.mean(of_life[units.of_record])
    sizes = np.bincount(units.of_record)
    error = np.sqrt((sizes**2 * (of_life - drawn.value) ** 2).sum()) / sizes.sum()
    assert drawn.high - drawn.low == pytest.approx(2 * 1.96 * error, rel=0.25)


def attributed(features_dump: RecordedFeatures, layer: str) -> Attributions:
    pca = baseline("pca", read_states(features_dump.dump, layer, (0, 1)).values, UNITS, 4, SOURCE)
    return attribute(features_dump.dump, recorded_at(features_dump, layer), layer, pca, (2, 3), 0)


def test_the_critic_is_linear_in_what_it_reads(features_dump: RecordedFeatures) -> None:
    result = attributed(features_dump, "action_decoder")
    assert result.correlation(0).value > 0.9999
    np.testing.assert_allclose(result.measured[0], result.predicted[0], atol=1e-5)
    assert result.correlation(1).value > 0.9


@pytest.mark.parametrize("layer", ["lstm_cell", "encoder_output"])
def test_predictions_hold_through_the_memory(features_dump: RecordedFeatures, layer: str) -> None:
    result = attributed(features_dump, layer)
    for output in range(2):
        estimate = result.correlation(output)
        assert 0.8 < estimate.low <= estimate.value <= estimate.high <= 1
    means = result.of_features(UNITS)
    counts = np.bincount(result.feature, minlength=UNITS)
    assert (np.isfinite(means[0]) == (counts >= 3)).all()


def test_correlations_and_their_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    predicted = random.standard_normal((2, 4000))
    noise = random.standard_normal((2, 4000))
    measured = np.stack([0.6 * predicted[0] + 0.8 * noise[0], noise[1]])
    units = Units.of(np.repeat(np.arange(200), 20), np.zeros(4000), 0)
    result = Attributions(np.zeros(4000, np.int64), predicted, measured, units)
    for output, truth in enumerate((0.6, 0.0)):
        estimate = result.correlation(output)
        assert estimate.value == pytest.approx(float(np.corrcoef(predicted[output], measured[output])[0, 1]))
        assert estimate.low < truth < estimate.high and estimate.high - estimate.low < 0.1
    few = replace(result, units=Units.of(np.repeat(np.arange(4), 1000), np.arange(4000) // 1000, 0))
    monkeypatch.setattr("analysis.sparse.splicing.student_stretch", lambda units, confidence: 1.0)
    plain, wider = few.correlation(0), student_stretch(4, 0.95)
    monkeypatch.undo()
    stretched = few.correlation(0)
    assert wider > 1.8 and stretched.high - stretched.low == pytest.approx(wider * (plain.high - plain.low))
    none = replace(result, measured=np.zeros_like(measured))
    assert np.isnan(none.correlation(0).value)


FEATURES, SAE_UNITS, K = 24, 8, 3


def dictionary(kind: DictionaryKind) -> SparseDictionary:
    random = np.random.default_rng(0)
    decoder = random.normal(size=(FEATURES, SAE_UNITS))
    decoder /= np.linalg.norm(decoder, axis=1, keepdims=True)
    threshold = np.zeros(FEATURES) if kind == "topk" else random.uniform(0.5, 1.5, FEATURES)
    arrays = (
        decoder,
        random.normal(size=SAE_UNITS),
        random.normal(size=(FEATURES, SAE_UNITS)),
        random.normal(size=FEATURES),
    )
    decoder, centre, encoder, bias = (array.astype(np.float32) for array in arrays)
    return SparseDictionary(kind, K, decoder, centre, SOURCE, encoder, bias, threshold.astype(np.float32))


@pytest.mark.parametrize("kind", AUTOENCODERS)
def test_the_formulas_of_its_architectures_give_the_same(kind: DictionaryKind) -> None:
    own = dictionary(kind)
    files = sae_lens_files(own)
    config, weights = json.loads(files[CONFIG_FILE]), load(files[WEIGHTS_FILE])
    states = np.random.default_rng(1).normal(size=(50, SAE_UNITS)).astype(np.float32) * 3
    z = (states - weights["b_dec"]) @ weights["W_enc"] + weights["b_enc"]
    if config["architecture"] == "topk":
        kept = z >= np.sort(z, axis=1)[:, -config["k"]][:, None]
    else:
        assert config["architecture"] == "jumprelu"
        kept = z > weights["threshold"]
    strengths = np.where(kept, np.maximum(z, 0), 0)
    coder = SparseCoder(own)
    result = coder.strengths(torch.from_numpy(states))
    np.testing.assert_allclose(result.numpy(), strengths, atol=1e-5)
    rebuilt = strengths @ weights["W_dec"] + weights["b_dec"]
    np.testing.assert_allclose(coder.rebuilt(result).numpy(), rebuilt, atol=1e-4)
    assert (config["d_in"], config["d_sae"]) == (SAE_UNITS, FEATURES) and config["metadata"]["hook_name"] == "lstm_cell"


@pytest.mark.parametrize("kind", AUTOENCODERS)
def test_it_loads_them(kind: DictionaryKind, tmp_path: Path) -> None:
    sae_lens = pytest.importorskip("sae_lens")
    own = dictionary(kind)
    for name, content in sae_lens_files(own).items():
        (tmp_path / name).write_bytes(content)
    loaded = sae_lens.SAE.load_from_disk(tmp_path)
    states = torch.from_numpy(np.random.default_rng(1).normal(size=(50, SAE_UNITS)).astype(np.float32))
    torch.testing.assert_close(loaded.encode(states), SparseCoder(own).strengths(states), atol=1e-5, rtol=1e-4)


def test_baselines_have_no_encoder_to_write() -> None:
    own = dictionary("topk")
    pca = SparseDictionary("pca", K, own.decoder, own.centre, SOURCE)
    with pytest.raises(ValueError, match="has no encoder"):
        sae_lens_files(pca)
