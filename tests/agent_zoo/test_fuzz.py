"""Checkpoints with damage of every kind, with a hash that fits: the agent that the file tells, or one line."""

import json
from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_zoo.checkpoint import load_checkpoint, read_info, save_checkpoint
from reinforcement_learning.play.entrants import Entrant
from tests.fuzz import budget, damaged_tensors, read_or_refuse
from tests.tiny_policies import tiny_entrant


@pytest.fixture(scope="module")
def subjects(small_world, task, maps) -> dict[str, Entrant]:
    return {
        agent: tiny_entrant(small_world, task, maps, agent, seed=1, hidden_size=8) for agent in ("takeru", "yaofeng")
    }


@budget(100)
@given(data=st.data())
def test_checkpoints(
    subjects: dict[str, Entrant], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    subject = subjects[data.draw(st.sampled_from(sorted(subjects)), label="agent")]
    path = tmp_path_factory.mktemp("checkpoint") / "policy.safetensors"
    save_checkpoint(path, subject.policy, replace(subject.info, steps=123))
    truth = damaged_tensors(data, path, "policy")
    info = read_or_refuse(lambda: read_info(path), path)
    loaded = read_or_refuse(lambda: load_checkpoint(path), path)
    if loaded is None:
        return
    assert truth is not None, "a file whose hash does not fit was read"
    arrays, text = truth
    assert loaded[1] == info
    found = json.loads(loaded[1].to_header())
    assert found == {"reward": {}} | orjson.loads(text)
    weights = loaded[0].state_dict()
    assert weights.keys() == arrays.keys()
    assert all(np.array_equal(weights[name].numpy(), arrays[name], equal_nan=True) for name in arrays)
