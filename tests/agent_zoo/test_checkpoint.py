"""Checkpoints restore the same policy; anything but a complete checkpoint of ours is refused in one line."""

import functools
import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import agent_zoo
from agent_zoo.checkpoint import build_policy, load_checkpoint, read_info, save_checkpoint
from agent_zoo.checkpoint_files import OWN, SHIPPED, list_checkpoints, not_imported, policy_names, policy_path
from agent_zoo.observation import pack
from common.array_files import read_tensors, write_tensors
from tests.command import ROOT, assert_refuses
from tests.fuzz import as_pipe, flip, limited
from tests.tiny_policies import tiny_entrant

DEEP: dict[str, Any] = functools.reduce(lambda inner, _: {"a": inner}, range(500), {})


@pytest.fixture(scope="module")
def subject(small_world, task, maps):
    return tiny_entrant(small_world, task, maps, seed=1, lstm_layers=2)


@pytest.fixture
def path(subject, tmp_path: Path) -> Path:
    path = tmp_path / "policy.safetensors"
    save_checkpoint(path, subject.policy, replace(subject.info, steps=123))
    return path


def check_refused(path: Path) -> str:
    with limited():
        return assert_refuses([str(path)], load_checkpoint, path)


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a checkpoint, with a hash that fits."""
    arrays, text = read_tensors(path, "policy")
    header = json.loads(text)
    change(header)
    write_tensors(path, arrays, json.dumps(header), "policy")


def test_the_same_policy_comes_back_and_makes_the_same_file(subject, path: Path, seen: np.ndarray, layout) -> None:
    loaded, info = load_checkpoint(path)
    assert info == replace(subject.info, steps=123) and read_info(path) == info
    observation = pack(seen[:20], layout)
    with torch.no_grad():
        ours, theirs = (p(observation, p.initial_state(20)) for p in (subject.policy, loaded))
    for one, other in zip(ours[0].log_probabilities, theirs[0].log_probabilities, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(ours[1], theirs[1]) and torch.equal(ours[2].cell, theirs[2].cell)
    contents = {path.read_bytes()}
    for _ in range(8):
        save_checkpoint(path, subject.policy, replace(subject.info, steps=123))
        contents.add(path.read_bytes())
    assert len(contents) == 1


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header.update(environment=[1]), "'environment': Input should be an object"),
        (lambda header: header.update(environment={"mask_intrinsics": "some"}), "mask_intrinsics is 'some'"),
        (lambda header: header.update(environment={"view_radius": 8}), "view_radius is 8"),
        (lambda header: header.update(environment={"narrow_from": -1}), "narrow_from is -1, not a tick"),
        (lambda header: header.update(environment={"task_shown_for": "long"}), "task_shown_for is 'long'"),
        (lambda header: header.update(agent="gone"), "no agent 'gone'"),
        (lambda header: header.update(agent="\ud800"), "has a damaged header"),
        (lambda header: header.update(task=DEEP), "has a damaged header"),
        (lambda header: header.update(more=1), "'more'"),
        (lambda header: header.update(network="other"), "'network'"),
        (lambda header: header.pop("network"), "another architecture"),
        (lambda header: header["policy_arguments"].update(hidden_size=0), "hidden_size is 0"),
        (lambda header: header["policy_arguments"].update(hidden_size=24), "another architecture"),
        (lambda header: header["policy_arguments"].update(hidden_size=1 << 20), "larger than the weights in the file"),
        (lambda header: header["recurrent_arguments"].update(layers=-1), "layers is -1"),
        (lambda header: header["recurrent_arguments"].update(layers=1_000_000), "another architecture"),
        (lambda header: header["recurrent_arguments"].update(layers=0, cell="rnn"), "cell is 'rnn'"),
        (lambda header: header["recurrent_arguments"].update(cell="gru"), "another architecture"),
        (lambda header: header["layout"].update(materials=60_000), "larger than the weights in the file"),
        (lambda header: header["layout"].update(tiles=9), "another architecture"),
    ],
)
def test_a_forged_header_is_refused_before_anything_is_built(
    path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    forge(path, change)
    assert message in check_refused(path)


def with_doubles(path: Path) -> None:
    arrays, text = read_tensors(path, "policy")
    name = next(iter(arrays))
    write_tensors(path, arrays | {name: arrays[name].astype(np.float64)}, text, "policy")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "does not exist"),
        (as_pipe, "is not a plain file"),
        (lambda path: safetensors.torch.save_file({"weight": torch.zeros(3)}, path), "not saved by this project"),
        (
            lambda path: safetensors.torch.save_file({"weight": torch.zeros(4, dtype=torch.bfloat16)}, path),
            "numbers of a type that this project never writes",
        ),
        (with_doubles, "torch.float64, not"),
    ],
)
def test_another_file_is_refused(path: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(path)
    assert message in check_refused(path)


def test_a_network_that_is_gone_is_refused(subject, tmp_path: Path) -> None:
    info = replace(subject.info, agent="yaofeng", network="published")
    save_checkpoint(tmp_path / "old.safetensors", build_policy(info), replace(info, network="earlier"))
    assert "yaofeng's earlier network is gone" in check_refused(tmp_path / "old.safetensors")


@pytest.mark.parametrize("agent", [name for name in agent_zoo.names() if name != "yaofeng"])
def test_a_header_that_says_no_network_means_the_earlier_one(agent: str, subject, tmp_path: Path) -> None:
    for network, kind in (("published", "Policy"), ("earlier", "EarlierPolicy")):
        info = replace(subject.info, agent=agent, network=network)
        assert ("network" in json.loads(info.to_header())) == (network == "published")
        save_checkpoint(tmp_path / f"{network}.safetensors", build_policy(info), info)
        loaded, read = load_checkpoint(tmp_path / f"{network}.safetensors")
        assert read == info and type(loaded.policy) is getattr(agent_zoo.load(agent), kind)


@pytest.mark.parametrize("name", ["start_kit_3M", "takeru_10M", "hybrid_10M", "yaofeng_10M"])
def test_a_shipped_policy_has_the_network_that_its_header_says(name: str) -> None:
    policy, info = load_checkpoint(ROOT / SHIPPED / f"{name}.safetensors")
    assert type(policy.policy) is agent_zoo.policy_class(info.agent, info.network)


def test_reading_the_header_proves_the_weights(path: Path) -> None:
    flip(path, -1)
    assert_refuses("does not have the hash it was saved with", read_info, path)


def test_building_for_a_file_draws_the_random_numbers_that_building_draws(path: Path) -> None:
    """Else what follows a load would be drawn differently than before files were checked."""
    after = []
    for build in (lambda: build_policy(read_info(path)), lambda: load_checkpoint(path)):
        torch.manual_seed(3)
        build()
        after.append(torch.get_rng_state())
    assert torch.equal(*after)


def test_hidden_files_are_no_checkpoints(path: Path, tmp_path: Path) -> None:
    """macOS puts such files beside copies on other file systems; they hold no tensors."""
    folder = tmp_path / "policies"
    folder.mkdir()
    for name in ("a.safetensors", "._a.safetensors", "._b.pt"):
        shutil.copy(path, folder / name)
    assert [checkpoint.name for checkpoint in list_checkpoints(folder)] == ["a.safetensors"]
    assert policy_names(folder) == ["a"] and not_imported(folder) == []


def test_a_name_is_looked_up_in_both_folders_and_other_folders_stand_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, name in ((SHIPPED, "shipped"), (OWN, "mine"), (Path("other"), "third")):
        folder.mkdir()
        (folder / f"{name}.safetensors").touch()
    assert policy_names(SHIPPED, ("mine", "shipped")) == ["mine", "shipped"]
    assert policy_path(SHIPPED, "mine") == OWN / "mine.safetensors"
    assert policy_path(SHIPPED, "shipped") == policy_path(SHIPPED, "shipped") == SHIPPED / "shipped.safetensors"
    assert policy_path(SHIPPED, "nobody") == SHIPPED / "nobody.safetensors", "for messages"
    assert policy_names(SHIPPED) == ["shipped"] and policy_names(OWN) == ["mine"]
    assert_refuses("no policy 'mine' in other: it holds third", policy_names, Path("other"), ("mine",))
    assert_refuses("no policy 'min' in policies or my_policies.*did you mean mine", policy_names, SHIPPED, ("min",))
    mine = Path(shutil.copy(SHIPPED / "shipped.safetensors", OWN))
    assert policy_names(SHIPPED, ("shipped",)) == ["shipped"], "a copy"
    mine.write_bytes(b"another")
    assert_refuses("my_policies/shipped.* are different policies of the same name", policy_names, SHIPPED, ("shipped",))
    assert policy_names(OWN, ("shipped",)) == ["shipped"], "the folder says which"
    mine.unlink()
    (SHIPPED / "shipped.safetensors").unlink()
    SHIPPED.rmdir()
    assert policy_names(SHIPPED, ("mine",)) == ["mine"]
    assert_refuses("policies is not a folder", policy_names, SHIPPED)
