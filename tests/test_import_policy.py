"""Checkpoints and curricula of the original, imported as users do."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump, read_metadata
from agent_zoo.checkpoint import load_checkpoint, read_info
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.task_encoder import file_embeddings, write_embeddings
from reinforcement_learning.game.tasks import evaluation_tasks
from reinforcement_learning.play.entrants import load_entrant, with_embeddings
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import assert_refused, run_here, run_well
from tests.original_files import (
    archive,
    call,
    pickled,
    saved_curriculum,
    saved_network,
    saved_start_kit,
    start_kit_tensors,
)
from tests.tiny_policies import save_policies

FIXTURES = Path(__file__).parents[2] / "shared" / "original"
HELD_OUT = [spec.name for spec in evaluation_tasks()]
has_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the original's checkpoints are not in the repository")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "kit_200M.pt"
    path.write_bytes(saved_start_kit())
    return path


@pytest.fixture
def curriculum(tmp_path: Path) -> Path:
    path = tmp_path / "held_out.pkl"
    path.write_bytes(saved_curriculum(vectors()))
    return path


def vectors(size: int = 24) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.standard_normal(size).astype(np.float16) for name in HELD_OUT}


def into(folder: Path, *arguments: object) -> tuple[object, ...]:
    """A command that imports into a folder."""
    return "import_policy.py", *arguments, "-o", folder / "policies", "--embeddings-dir", folder / "task_embeddings"


def imported(*arguments: object, folder: Path) -> str:
    return run_well(*into(folder, *arguments)).stdout


def test_a_checkpoint_becomes_a_policy_that_says_where_it_came_from(checkpoint: Path, tmp_path: Path) -> None:
    printed = imported(checkpoint, folder=tmp_path)
    heads, row, *notes = (line.split("\t") for line in printed.splitlines())
    output = dict(zip(heads, row, strict=True))
    assert (output["policy"], output["agent"], output["agent-steps"]) == ("kit_200M", "neurips23_start_kit", "unknown")
    assert (output["units"], output["LSTM layers"], output["task embedding"]) == ("16", "1", "24")
    assert sum("unknown: " in note for (note,) in notes) == 3
    policy, info = load_checkpoint(tmp_path / "policies" / "kit_200M.safetensors")
    assert info.origin and info.origin.file == "kit_200M.pt" and info.origin.sha256.startswith(output["SHA-256"])
    assert info.origin.classes[0] == "pufferlib.frameworks.cleanrl.RecurrentPolicy" and not info.origin.steps_known
    theirs = start_kit_tensors()["policy.recurrent.weight_hh_l0"]
    assert np.array_equal(policy.state_dict()["lstm.weight_hh_l0"].numpy(), theirs)


@pytest.mark.parametrize("prefix", ["policy.", ""])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_state_dicts_without_a_memory_in_any_precision(tmp_path: Path, prefix: str, dtype: torch.dtype) -> None:
    tensors = {name: torch.from_numpy(values).to(dtype) for name, values in start_kit_tensors().items()}
    network = {name.replace("policy.policy.", prefix): values for name, values in tensors.items()}
    without = {name: values for name, values in network.items() if "recurrent" not in name}
    torch.save(without, tmp_path / "a.pt")
    imported(tmp_path / "a.pt", folder=tmp_path)
    policy, info = load_checkpoint(tmp_path / "policies" / "a.safetensors")
    assert policy.layers == 0 and info.origin and info.origin.classes == ()
    critic = policy.state_dict()["policy.critic.weight"]
    assert critic.dtype == torch.float32 and torch.equal(critic, without[f"{prefix}value_head.weight"].float())


def test_a_run_folder_gives_its_newest_checkpoint_and_the_agent_steps(tmp_path: Path) -> None:
    folder = tmp_path / "nmmo_20231125"
    folder.mkdir()
    for number in (1, 20):
        (folder / f"model_{number:06d}.pt").write_bytes(saved_start_kit(seed=number))
    state = {"agent_step": 123_456, "model_name": "model_000020.pt"}
    (folder / "trainer_state.pt").write_bytes(archive(pickled(state)))
    assert "123,456" in imported(folder, folder=tmp_path)
    info = read_info(tmp_path / "policies" / "nmmo_20231125.safetensors")
    assert info.steps == 123_456 and info.origin and info.origin.file == "model_000020.pt" and info.origin.steps_known
    assert "model_000001\tneurips23_start_kit\tunknown" in imported(folder / "model_000001.pt", folder=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name at least one checkpoint"),
        (("A", "A", "-n", "x"), "-n x names one policy, and 2 files are given"),
        (("A", "A"), "would both become"),
        (("A", "-n", "a/b"), "cannot name a file"),
        (("nowhere.pt",), "nowhere.pt does not exist"),
        (("x" * 300,), "cannot be read: File name too long"),
        (("A", "trainer_state.pt"), "trainer_state.pt holds no network"),
        (("A", "EMPTY"), "there is no checkpoint"),
        (("A", "HOSTILE"), "it holds a call of posix.system"),
        (("A", "OTHER"), "no tensor proj_fc.weight"),
        (("A", "--task-embeddings", "A"), "cannot be read as a curriculum"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    checkpoint: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "hostile.pt").write_bytes(archive(pickled(call("posix", "system", f"touch {tmp_path}/canary"))))
    (tmp_path / "other.pt").write_bytes(saved_network({"a.b": np.ones(2)}, wrapper="a.A", inner="a.B"))
    places = {"A": checkpoint, "EMPTY": tmp_path / "empty"}
    places |= {name: tmp_path / f"{name.lower()}.pt" for name in ("HOSTILE", "OTHER")}
    refused = run_here(*into(tmp_path, *(places.get(argument, argument) for argument in arguments)))
    assert_refused(refused, message)
    assert not list(tmp_path.glob("policies/*")) + list(tmp_path.glob("task_embeddings/*"))
    assert not (tmp_path / "canary").exists()


def test_the_same_import_changes_nothing_and_another_one_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    imported(checkpoint, folder=tmp_path)
    path = tmp_path / "policies" / "kit_200M.safetensors"
    before = path.read_bytes()
    imported(checkpoint, folder=tmp_path)
    assert path.read_bytes() == before
    checkpoint.write_bytes(saved_start_kit(seed=8))
    assert_refused(run_here("import_policy.py", checkpoint, "-o", tmp_path / "policies"), "--overwrite")
    assert path.read_bytes() == before
    imported(checkpoint, "--overwrite", folder=tmp_path)
    assert path.read_bytes() != before


def test_a_curriculum_becomes_a_file_of_embeddings(checkpoint: Path, curriculum: Path, tmp_path: Path) -> None:
    imported(checkpoint, "--task-embeddings", curriculum, folder=tmp_path)
    info = read_info(tmp_path / "policies" / "kit_200M.safetensors")
    task = TaskSettings(**info.task, embeddings_dir=tmp_path / "task_embeddings")
    assert np.array_equal(file_embeddings(HELD_OUT, task), np.stack(list(vectors().values())))
    entrant = load_entrant(tmp_path / "policies" / "kit_200M.safetensors")
    named = with_embeddings(entrant, f"elsewhere/{info.task['embeddings']}", tmp_path / "task_embeddings")
    assert named.info.task["embeddings_sha256"] == info.task["embeddings_sha256"]
    checkpoint.write_bytes(saved_start_kit(task_size=32))
    done = run_here("import_policy.py", checkpoint, "--task-embeddings", curriculum, "-o", tmp_path / "other")
    assert_refused(done, "reads task embeddings of 32 numbers")


def test_a_checkpoint_that_was_not_imported_is_not_ignored(checkpoint: Path, tmp_path: Path) -> None:
    hint = f"`python import_policy.py {checkpoint} -o {tmp_path}` imports it"
    assert hint in run_here("extract_activations.py", "--list", "--policies-dir", tmp_path).stdout
    for command in (
        ("extract_activations.py", "pve", "-p", "kit_200M", "--policies-dir", tmp_path),
        ("evaluate.py", tmp_path, "pvp"),
        ("evaluate.py", tmp_path, "pve", "-p", "kit_200M"),
        ("train.py", "-m", "replay", "-p", tmp_path),
    ):
        assert_refused(run_here(*command), hint)
    run_here("import_policy.py", checkpoint, "-o", tmp_path)
    listed = run_here("extract_activations.py", "--list", "--policies-dir", tmp_path).stdout
    assert "kit_200M\tneurips23_start_kit\tunknown\tunknown\t24" in listed and hint not in listed


def test_names_that_are_no_text_are_written_out(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.pt")
    path.write_bytes(saved_start_kit())
    curriculum = tmp_path / os.fsdecode(b"caf\xe9.pkl")
    curriculum.write_bytes(saved_curriculum(vectors()))
    imported(path, "-n", "mine", "--task-embeddings", curriculum, folder=tmp_path)
    info = read_info(tmp_path / "policies" / "mine.safetensors")
    assert info.origin and info.origin.file == r"caf\udce9.pt"
    assert (tmp_path / "task_embeddings" / str(info.task["embeddings"])).exists()


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an imported policy and a home-grown one, and the options of a small world as large as theirs."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "theirs.pt").write_bytes(saved_start_kit())
    (folder / "held_out.pkl").write_bytes(saved_curriculum(vectors()))
    imported(folder / "theirs.pt", "--task-embeddings", folder / "held_out.pkl", folder=folder)
    world = EnvironmentSettings(num_agents=8, num_npcs=8, num_maps=1, map_seed=1, horizon=12, maps_dir=folder / "maps")
    save_policies(folder / "policies", world, TaskSettings(), ensure_maps(world), {"ours": ("takeru", 0)})
    return folder


def test_an_imported_policy_and_a_home_grown_one_share_a_world(together: Path, tmp_path: Path) -> None:
    world = ("--env.num-agents", 8, "--env.num-npcs", 8, "--env.num-maps", 1, "--env.horizon", 12)
    places = ("--env.maps-dir", together / "maps", "--num-envs", 1)
    embeddings = together / "task_embeddings"
    done = run_here(
        "evaluate.py", together / "policies", "pvp", "-n", 2, *world, *places, "--embeddings-dir", embeddings
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    results = json.loads((together / "policies" / "eval_pvp_1.json").read_text())
    output = {name: entry["provenance"]["task"] for name, entry in results.items()}
    assert {name: (task["encoder"], task["embedding_size"]) for name, task in output.items()} == {
        "ours": ("structural", 128), "theirs": ("file", 24),
    }  # fmt: skip
    assert len(output["theirs"]["embeddings_sha256"]) == 64
    assert results["theirs"]["provenance"]["agent_steps"] is None
    run_well(
        "extract_activations.py", "pvp", "-p", "theirs,ours", "-n", 1, "--fields", "Task", "--format", "parquet",
        "--policies-dir", together / "policies", "--maps-dir", together / "maps", "--embeddings-dir", embeddings,
        "-c", "evaluation", "--max-steps", 3, "-o", tmp_path, "--map-seed", 1, "--workers", 1,
    )  # fmt: skip
    known = np.stack(list(vectors().values())).astype(np.float32)
    theirs = read_dump(tmp_path / "theirs").columns["task"]
    assert all((known == row).all(axis=1).any() for row in theirs) and len(theirs)
    assert read_dump(tmp_path / "ours").columns["task"].shape[1] == 128
    assert read_metadata(tmp_path / "theirs").steps_trained is None


def test_a_policy_whose_tasks_are_unknown_asks_for_their_embeddings(together: Path, tmp_path: Path) -> None:
    world = ("--env.num-agents", 8, "--env.num-npcs", 8, "--env.num-maps", 1, "--env.horizon", 4, "-n", 1)
    options = (*world, "--env.maps-dir", together / "maps", "--num-envs", 1)
    imported(together / "theirs.pt", folder=tmp_path)
    command = ("evaluate.py", tmp_path / "policies", "pve", *options)
    assert_refused(run_here(*command), "--task.embeddings FILE")
    (file,) = (together / "task_embeddings").iterdir()
    assert "theirs" in run_well(*command, "--task.embeddings", file).stdout
    other = tmp_path / "other.safetensors"
    write_embeddings(other, vectors(32), "other")
    refused = run_here(*command, "--task.embeddings", other)
    assert_refused(refused, "theirs reads task embeddings of 24 numbers")


@has_fixtures
@pytest.mark.parametrize(
    "name", ["neurips23_start_kit_small", "yaofeng_small", "takeru_small", "hybrid_small", "takeru_full"]
)
def test_checkpoints_that_the_original_wrote(tmp_path: Path, name: str) -> None:
    imported(FIXTURES / "policies" / f"{name}.pt", folder=tmp_path)
    policy, info = load_checkpoint(tmp_path / "policies" / f"{name}.safetensors")
    assert name.startswith(info.agent)
    assert all(values.dtype == torch.float32 for values in policy.state_dict().values())


@has_fixtures
def test_the_held_out_tasks_of_the_original_are_ours(tmp_path: Path) -> None:
    printed = imported("--task-embeddings", FIXTURES / "heldout_task_with_embedding.pkl", folder=tmp_path)
    assert printed.startswith("63 tasks of 2048 numbers: ")
    (path,) = (tmp_path / "task_embeddings").iterdir()
    task = TaskSettings(encoder="file", embeddings=str(path), embedding_size=2048)
    norms = np.linalg.norm(file_embeddings(HELD_OUT, task).astype(float), axis=1)
    assert norms.min() > 10 and norms.max() < 13.1
