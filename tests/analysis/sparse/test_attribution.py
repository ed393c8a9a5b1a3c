"""Predicted and measured effects of features: exact where outputs are linear, and those of planted causes."""

from dataclasses import replace

import numpy as np
import pytest

from activation_store.reader import read_metadata
from analysis.sparse.attribution import Attributions, attribute
from analysis.sparse.fitting import baseline
from analysis.sparse.scores import Units
from analysis.sparse.splicing import load_recorded_policy
from analysis.sparse.states import read_states
from tests.planted_features import SOURCE
from tests.recorded_features import UNITS, RecordedFeatures


def attributed(features_dump: RecordedFeatures, layer: str) -> Attributions:
    metadata = read_metadata(features_dump.dump)
    recorded = load_recorded_policy(features_dump.dump, metadata, features_dump.policies, layer)
    states = read_states(features_dump.dump, layer, (0, 1))
    pca = baseline("pca", states.values, UNITS, 4, SOURCE)
    return attribute(features_dump.dump, recorded, layer, pca, (2, 3), 0)


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


def test_correlations_and_their_intervals() -> None:
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
    none = replace(result, measured=np.zeros_like(measured))
    assert np.isnan(none.correlation(0).value)
