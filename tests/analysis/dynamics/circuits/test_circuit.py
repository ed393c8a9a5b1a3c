"""The circuit of a direction: shares of a variance, and refusals."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from agent_zoo.memories.gru_memory import GRU
from analysis.dynamics.circuits.circuit import Resampled
from analysis.dynamics.circuits.circuit_run import trace_circuit
from analysis.dynamics.settings import DynamicsSettings
from common.user_error import UserError


def test_shares_of_parts_that_add_up_add_up_to_one() -> None:
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(size=60) * size for name, size in (("large", 3.0), ("small", 1.0))}
    parts["against"] = -0.2 * parts["large"]
    resampled = Resampled(np.sum(list(parts.values()), axis=0) + 7)
    large, small, against = resampled.shares("kind", parts)
    assert large.share + small.share + against.share == pytest.approx(1)
    assert against.share < 0 < small.share < large.share and against.share == pytest.approx(-0.2 * large.share)
    for share in (large, small, against):
        assert share.low < share.share < share.high < share.low + 0.5
    assert np.isnan(Resampled(np.arange(4.0)).shares("kind", {"all": np.arange(4.0)})[0].low)


def test_other_memories_are_refused_in_one_line(tmp_path: Path) -> None:
    settings = DynamicsSettings(tmp_path, circuit="goal_north", directions=tmp_path)
    metadata: Any = SimpleNamespace(policy="cue_gru_1")
    policy: Any = SimpleNamespace(memory=GRU(2, 1), layers=1, cell="gru")
    with pytest.raises(UserError, match=r"cue_gru_1 has a memory of the kind gru$"):
        trace_circuit(settings, metadata, policy, cast(Any, None), cast(Any, None))
