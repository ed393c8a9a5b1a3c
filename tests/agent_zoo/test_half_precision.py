"""Policies in half precision are half as large and play nearly alike; whatever cannot be stored so is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from agent_zoo.checkpoint import load_checkpoint, read_info, save_checkpoint
from agent_zoo.observation import ObservationLayout, pack
from common.array_files import read_tensors, write_tensors
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import assert_refused, run_here, run_well
from tests.tiny_policies import tiny_entrant


@pytest.fixture
def path(small_world: EnvironmentSettings, task: TaskSettings, maps: Path, tmp_path: Path) -> Path:
    """A policy with a codebook, whose weights include numbers that are not floating-point."""
    subject = tiny_entrant(small_world, task, maps, seed=1, codes=4, hidden_size=32)
    save_checkpoint(tmp_path / "policy.safetensors", subject.policy, replace(subject.info, steps=123))
    return tmp_path / "policy.safetensors"


def halve(*arguments: object) -> str:
    result = run_well("agent_zoo/half_precision.py", *arguments)
    return result.stdout


def test_a_policy_of_half_the_size_chooses_alike(
    path: Path, tmp_path: Path, seen: np.ndarray, layout: ObservationLayout
) -> None:
    output = halve(path, "--output-dir", tmp_path / "half")
    stored = tmp_path / "half" / "policy.safetensors"
    assert str(stored) in output
    assert 0.5 < stored.stat().st_size / path.stat().st_size < 0.6  # the header stays
    assert {tensor.dtype for tensor in read_tensors(stored, "policy")[0].values()} <= {
        np.dtype("float16"),
        np.dtype("int64"),
    }
    assert read_info(stored) == read_info(path)
    (full, _), (half, _) = load_checkpoint(path), load_checkpoint(stored)
    assert all(item.dtype != torch.float16 for item in half.state_dict().values())
    observation = pack(seen[:50], layout)
    with torch.no_grad():
        ours, theirs = (policy(observation, policy.initial_state(50))[0] for policy in (full, half))
    apart = ours.divergence(theirs).sum(dim=1)
    assert 0 < apart.max() < 1e-4


def test_what_is_too_large_or_damaged_or_there_already_is_refused(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "half"
    tensors, text = read_tensors(path, "policy")
    name = next(name for name, tensor in tensors.items() if tensor.dtype == np.float32 and tensor.ndim == 1)
    large = tmp_path / "large.safetensors"
    write_tensors(large, tensors | {name: np.full_like(tensors[name], 7e4)}, text, "policy")
    command = ("agent_zoo/half_precision.py", path)
    assert_refused(run_here(*command, large, "-o", out), str(large), name, "too large for float16")
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(path.read_bytes()[:-4])
    assert_refused(run_here(*command, damaged, "-o", out), str(damaged))
    assert_refused(run_here(*command, path, "-o", out), "same file name")
    assert_refused(run_here("agent_zoo/half_precision.py", "-o", out), "at least one policy")
    assert not out.exists(), "something was left behind"
    halve(path, "-o", out)
    before = (out / "policy.safetensors").read_bytes()
    assert_refused(run_here(*command, "-o", out), "exists already")
    assert (out / "policy.safetensors").read_bytes() == before
