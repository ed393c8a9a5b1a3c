"""Activations that cannot be analysed are refused before any work."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.clusters.dataset import check_activations
from common.user_error import UserError
from tests.command import assert_refuses
from tests.planted import planted_dump

RECORDS = planted_dump(agents=3, episodes=1, ticks=10).records
LAYER = "action_decoder"


def with_activations(activations: np.ndarray):
    return replace(RECORDS, activations={LAYER: activations})


def test_sound_activations_pass() -> None:
    check_activations(RECORDS, LAYER)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_and_named(value: float) -> None:
    activations = RECORDS.activations[LAYER].copy()
    activations[[5, 9], 3] = value
    message = rf"in 2 of {len(RECORDS)} records, first of agent {RECORDS.agent_id[5]} at step {RECORDS.step[5]}:"
    assert_refuses(message, check_activations, with_activations(activations), LAYER)


def test_activations_whose_distances_overflow_are_refused() -> None:
    activations = RECORDS.activations[LAYER].copy()
    check_activations(with_activations(activations / np.abs(activations).max() * 1e17), LAYER)
    with pytest.raises(UserError, match=r"holds 1e\+20, so that squared distances overflow"):
        check_activations(with_activations(activations / np.abs(activations).max() * 1e20), LAYER)
