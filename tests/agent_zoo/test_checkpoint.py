"""Checkpoints restore the same policy; anything but a complete checkpoint of ours is refused in one line."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from agent_zoo.checkpoint import load_checkpoint, read_info, save_checkpoint
from agent_zoo.observation import pack
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.settings import PolicySettings, Settings
from tests.conftest import AGENT
from user_error import UserError


@pytest.fixture(scope="module")
def subject(small_world, task, maps):
    settings = Settings(env=small_world, task=task, policy=PolicySettings(hidden_size=16, lstm_layers=2))
    return untrained_entrant(AGENT, settings, maps, seed=1)


@pytest.fixture
def path(subject, tmp_path: Path) -> Path:
    path = tmp_path / "policy.safetensors"
    save_checkpoint(path, subject.policy, replace(subject.info, steps=123))
    return path


def check_refused(path: Path) -> str:
    with pytest.raises(UserError) as error:
        load_checkpoint(path)
    message = str(error.value)
    assert "\n" not in message and str(path) in message
    return message


def test_the_same_policy_comes_back(subject, path: Path, seen: np.ndarray, layout) -> None:
    loaded, info = load_checkpoint(path)
    assert info == replace(subject.info, steps=123) and read_info(path) == info
    observation = pack(seen[:20], layout)
    with torch.no_grad():
        ours, theirs = (p(observation, p.initial_state(20)) for p in (subject.policy, loaded))
    for one, other in zip(ours[0].log_probabilities, theirs[0].log_probabilities, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(ours[1], theirs[1]) and torch.equal(ours[2].cell, theirs[2].cell)


def test_the_same_policy_is_the_same_file(subject, path: Path) -> None:
    contents = {path.read_bytes()}
    for _ in range(8):
        save_checkpoint(path, subject.policy, replace(subject.info, steps=123))
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_every_flipped_byte_and_every_truncation_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    header_length = int.from_bytes(whole[:8], "little")
    places = [*random.integers(0, 8 + header_length, 40), *random.integers(8 + header_length, len(whole), 40)]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        check_refused(path)
    for length in [0, 3, 7, 8, 100, 8 + header_length, len(whole) - 1]:
        path.write_bytes(whole[:length])
        check_refused(path)


def test_a_pickle_is_refused_and_its_code_does_not_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"

    class Malicious:
        def __reduce__(self):
            return (Path.touch, (touched,))

    for name, save in (
        ("raw", lambda path: path.write_bytes(pickle.dumps(Malicious()))),
        ("torch", lambda path: torch.save(Malicious(), path)),
    ):
        path = tmp_path / f"{name}.safetensors"
        save(path)
        assert "is a pickle" in check_refused(path)
    assert not touched.exists()


def test_a_good_file_that_starts_like_a_pickle_is_read(subject, path: Path) -> None:
    """A file starts with its header's length in little-endian order: one in 32 lengths starts with a pickle's byte."""
    for padding in range(256):
        info = replace(subject.info, versions={"padding": "x" * padding})
        save_checkpoint(path, subject.policy, info)
        if path.read_bytes().startswith(b"\x80"):
            break
    assert path.read_bytes().startswith(b"\x80")
    assert load_checkpoint(path)[1] == info


def test_a_foreign_file_of_the_same_format_is_check_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    safetensors.torch.save_file({"weight": torch.zeros(3)}, path)
    assert "not saved by this project" in check_refused(path)


def test_weights_of_another_architecture_are_refused(subject, path: Path) -> None:
    save_checkpoint(path, subject.policy, replace(subject.info, policy_arguments={"hidden_size": 24}))
    assert "another architecture" in check_refused(path)


def test_an_agent_that_is_not_here_is_refused(subject, path: Path) -> None:
    save_checkpoint(path, subject.policy, replace(subject.info, agent="gone"))
    with pytest.raises(UserError, match="no agent 'gone'"):
        load_checkpoint(path)


def test_missing_file(tmp_path: Path) -> None:
    assert "does not exist" in check_refused(tmp_path / "nope.safetensors")
