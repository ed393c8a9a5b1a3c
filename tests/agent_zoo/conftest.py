"""Observations that the tests of policies share."""

import numpy as np
import pytest

from agent_zoo.observation import ObservationLayout, PackedObservation, pack


@pytest.fixture
def observation(request: pytest.FixtureRequest, seen: np.ndarray, layout: ObservationLayout) -> PackedObservation:
    """As many agents as `AGENTS` of the test module says."""
    return pack(seen[: request.module.AGENTS], layout)
