"""Checkpoints with damage of every kind, with a hash that fits: the agent that the file tells, or one line."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
from hypothesis import strategies as st

from agent_zoo.checkpoint import load_checkpoint, read_info, save_checkpoint
from reinforcement_learning.play.entrants import Entrant
from tests.fuzz import Bench, damaged_tensors, read_or_refuse, reader
from tests.tiny_policies import tiny_entrant


@functools.cache
def subject(bench: Bench, agent: str) -> Entrant:
    return tiny_entrant(bench["small_world"], bench["task"], bench["maps"], agent, seed=1, hidden_size=8)


@reader("agent_zoo.checkpoint:read_info", "agent_zoo.checkpoint:load_checkpoint", cases=100)
def checkpoints(bench: Bench, folder: Path, data: st.DataObject) -> None:
    entrant = subject(bench, data.draw(st.sampled_from(["takeru", "yaofeng"]), label="agent"))
    path = folder / "policy.safetensors"
    save_checkpoint(path, entrant.policy, replace(entrant.info, steps=123))
    truth = damaged_tensors(data, path, "policy")
    info = read_or_refuse(lambda: read_info(path), path)
    loaded = read_or_refuse(lambda: load_checkpoint(path), path)
    if loaded is None:
        return
    assert truth is not None, "a file whose hash does not fit was read"
    arrays, text = truth
    assert loaded[1] == info
    result = json.loads(loaded[1].to_header())
    assert result == {"reward": {}} | orjson.loads(text)
    weights = loaded[0].state_dict()
    assert weights.keys() == arrays.keys()
    assert all(np.array_equal(weights[name].numpy(), arrays[name], equal_nan=True) for name in arrays)
