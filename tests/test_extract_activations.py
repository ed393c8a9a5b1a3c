"""extract_activations.py as users run it, and its dump through the analysis: the pipeline on the real game."""

import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump, read_metadata
from activation_store.schema import refuse_kept_memory
from analysis.recorded.recorded_observation import packed_observation
from common.user_error import UserError
from reinforcement_learning.play.entrants import load_entrant
from tests.command import assert_refused, assert_refuses, python, run_here, run_on_terminal, run_well, start
from tests.shared import shared_folder

pytestmark = pytest.mark.usefixtures("without_curves")
WORLD = (
    "--env.num-agents", "16", "--env.num-npcs", "16", "--env.num-maps", "2", "--env.horizon", "64",
    "--train.batch-size", "1024", "--train.minibatch-rows", "32", "--train.total-agent-steps", "1024",
    "--train.num-checkpoints", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policies/tiny.safetensors, its maps and its dump of two episodes."""
    return shared_folder(tmp_path_factory, "pipeline", train_and_extract)


def train_and_extract(folder: Path) -> None:
    run_well(
        "train.py", "--debug", "--no-track", "-n", "tiny", *WORLD, "--policies-dir", folder / "policies",
        "--runs-dir", folder / "runs", "--env.maps-dir", folder / "maps",
    )  # fmt: skip
    extracted = python("extract_activations.py", "pve", "-p", "tiny", "-n", 2, *options(folder))
    assert str(folder / "activation_data" / "tiny") in extracted.stdout.replace("\n", "")


def options(folder: Path, output: Path | None = None) -> tuple[object, ...]:
    return (
        "-o", output or folder / "activation_data", "--policies-dir", folder / "policies",
        "--maps-dir", folder / "maps", "--runs-dir", folder / "runs",
    )  # fmt: skip


def extract(folder: Path, *arguments: object, output: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_here("extract_activations.py", *arguments, *options(folder, output))


def extracted(folder: Path, *arguments: object, output: Path | None = None) -> str:
    """Extract without a fault; returns what was printed."""
    return run_well("extract_activations.py", *arguments, *options(folder, output)).stdout


def test_dump_says_what_it_holds_and_so_does_what_follows_from_the_records(folder: Path) -> None:
    metadata, records = (read(folder / "activation_data" / "tiny") for read in (read_metadata, read_dump))
    assert metadata.policy == "tiny" and metadata.layers == {"action_decoder": 256}
    assert metadata.steps_trained >= 1024 and len(metadata.checkpoint_sha256 or "") == 64
    assert len(metadata.episodes) == 2 and metadata.records == len(records) > 200
    lives = set(zip(records.env_id.tolist(), records.agent_id.tolist(), records.episode.tolist(), strict=True))
    assert metadata.lives == len(lives) == 32
    # Training ends episodes early and lets some agents starve more slowly; dumps use the plain game.
    assert metadata.environment["early_stop_agents"] == 0 and metadata.environment["resilient_population"] == 0
    assert metadata.environment["map_seed"] == 1  # training's is 0
    own = records.entity.values[:, metadata.entity_columns.index("id")] == records.agent_id[records.entity.owner]
    for name in ("row", "col"):
        place = records.entity.values[own, metadata.entity_columns.index(name)]
        np.testing.assert_array_equal(records.column(name), place)
    maps = {episode["episode"]: episode["map"] for episode in metadata.episodes}
    assert records.column("map").tolist() == [maps[episode] for episode in records.episode.tolist()]
    last = {}
    for i, life in enumerate(zip(records.episode.tolist(), records.column("life").tolist(), strict=True)):
        last[life] = i
    assert len(last) == metadata.lives
    assert np.flatnonzero(records.column("done")).tolist() == sorted(last.values())


def test_maps_and_ticks_can_be_chosen_and_one_episode_needs_one_map(folder: Path, tmp_path: Path) -> None:
    extracted(folder, "pve", "-p", "tiny", "-n", 1, "--max-steps", 3, "--map-seed", 0, output=tmp_path)
    assert read_dump(tmp_path / "tiny").tick.max() == 2
    assert read_metadata(tmp_path / "tiny").environment["map_seed"] == 0
    assert_refused(extract(folder, "pve", "-p", "tiny", "--map-seed", -1, output=tmp_path), "--map-seed is -1")
    done = run_here(
        "extract_activations.py", "pve", "-p", "tiny", "-n", 1, "--max-steps", 2, "-o", tmp_path / "dumps",
        "--policies-dir", folder / "policies", "--maps-dir", tmp_path / "maps",
    )  # fmt: skip
    assert done.returncode == 0 and "generating maps: 1" in done.stdout, done.stderr
    (played,) = read_metadata(tmp_path / "dumps" / "tiny").episodes
    assert [path.parent.name for path in tmp_path.glob("maps/*/*/map.npy")] == [f"map{played['map']}"]


def test_the_original_protocol_is_recorded_and_memories_outlast_episodes(folder: Path, tmp_path: Path) -> None:
    short = (
        "pve", "-p", "tiny", "-n", 7, "--max-steps", 2, "--layers", "lstm_hidden", "--protocol", "original",
        "--fields", "Market,Task,ActionTargets",
    )  # fmt: skip
    extracted(folder, *short, output=tmp_path)
    metadata, records = read_metadata(tmp_path / "tiny"), read_dump(tmp_path / "tiny")
    world = metadata.environment
    assert (world["protocol"], world["num_maps"], world["flip_terrain"]) == ("original", 4, True)
    assert world["task"]["curriculum"] == "evaluation"
    assert (records.reward[~records.columns["done"]] >= 0).all()
    with pytest.raises(UserError, match=r"--protocol original, by which memories outlast lives"):
        refuse_kept_memory(tmp_path / "tiny", metadata)
    first = np.flatnonzero((records.step == 0) & (records.episode == 6))  # follows episode 0 in its world
    policy = load_entrant(folder / "policies" / "tiny.safetensors").policy
    seen = packed_observation(records.take(first), policy.policy.layout, policy.mask)
    with torch.no_grad():
        *_, fresh = policy(seen, policy.initial_state(len(first)))
    recorded = records.activations["lstm_hidden"][first]
    assert np.abs(recorded - fresh.hidden[-1].numpy()).max() > 1e-3


def test_a_share_of_acts_can_be_random(folder: Path, tmp_path: Path) -> None:
    short = ("pve", "-p", "tiny", "-n", 1, "--max-steps", 5, "--format", "parquet")
    for name, options in (("plain", ()), ("none", ("--random-actions", 0)), ("some", ("--random-actions", 0.5))):
        extracted(folder, *short, *options, output=tmp_path / name)
    plain, none, some = (read_metadata(tmp_path / name / "tiny") for name in ("plain", "none", "some"))
    assert plain == none and plain.files != some.files
    assert "random_actions" not in plain.environment and some.environment["random_actions"] == 0.5


@pytest.mark.slow
def test_policies_share_worlds_and_a_killed_run_goes_on(folder: Path, tmp_path: Path) -> None:
    """After a kill at any moment, the dumps of both policies are completed as if by one uninterrupted run."""
    shutil.copytree(folder / "policies", tmp_path / "policies")
    (tmp_path / "policies" / "tiny.safetensors").rename(tmp_path / "policies" / "a.safetensors")
    shutil.copy(tmp_path / "policies" / "a.safetensors", tmp_path / "policies" / "b.safetensors")
    (tmp_path / "maps").symlink_to(folder / "maps")
    common = ("pvp", "-p", "a,b", "-n", 9, "--format", "parquet", "--fields", "Market,ActionTargets")
    whole = extract(tmp_path, *common, "--num-envs", 8, output=tmp_path / "whole")
    assert (whole.returncode, whole.stderr) == (0, "")
    assert "at most 9,216 records" in whole.stdout and "GB are free" in whole.stdout
    projected = re.findall(r"of 9 episodes are finished: all of them will hold about ([\d,]+) records", whole.stdout)
    held = sum(read_metadata(tmp_path / "whole" / name).records for name in ("a", "b"))
    assert projected and all(0.5 < int(number.replace(",", "")) / held < 2 for number in projected)

    with start(
        "extract_activations.py", *common, "-o", tmp_path / "killed", "--num-envs", 4,
        "--policies-dir", tmp_path / "policies", "--maps-dir", tmp_path / "maps",
    ) as process:  # fmt: skip
        while not list((tmp_path / "killed").glob("b/episode-*.parquet")):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.02)
        process.kill()
        process.communicate()
    assert not list((tmp_path / "killed").rglob("metadata.json"))
    assert_refuses("unfinished", read_dump, tmp_path / "killed" / "a")
    assert_refused(extract(tmp_path, *common, output=tmp_path / "killed"), "unfinished", "resume")
    extracted(tmp_path, *common, "--resume", "--workers", 2, output=tmp_path / "killed")
    for name in ("a", "b"):
        once, again = (read_metadata(tmp_path / way / name) for way in ("whole", "killed"))
        assert once.files == again.files and len(once.files) == 9
        assert once.environment["opponents"] == [{"a": "b", "b": "a"}[name]]
    records = read_dump(tmp_path / "whole" / "a")
    assert "legal" in records.columns and "Market" in records.tables


def test_every_checkpoint_of_a_run_can_be_recorded(folder: Path, tmp_path: Path) -> None:
    extracted(
        folder, "pve", "-p", "tiny", "--checkpoint", "all", "--max-steps", 2, "-n", 1,
        output=tmp_path / "emergence",
    )  # fmt: skip
    steps = [read_metadata(path).steps_trained for path in sorted((tmp_path / "emergence").iterdir())]
    assert len(steps) == 2 and steps[0] == 0 and (steps[1] or 0) >= 1024


def test_list_shows_policies_by_their_whole_names_and_what_is_wrong_with_them(folder: Path, tmp_path: Path) -> None:
    policies = Path(shutil.copytree(folder / "policies", tmp_path / "policies"))
    (policies / "broken.safetensors").write_bytes(b"\x80\x04.")
    listed = extracted(tmp_path, "--list")
    assert all(part in listed for part in ("tiny", "neurips23_start_kit", "broken", "pickle"))
    assert_refused(extract(tmp_path, "pve", "-p", "broken"), "broken.safetensors")
    (tmp_path / "empty").mkdir()
    assert_refused(
        run_here("extract_activations.py", "--list", "--policies-dir", tmp_path / "empty"), "no policy", "train.py"
    )
    name = "a_policy_whose_name_is_longer_than_the_terminal_is_wide"
    shutil.copy(policies / "tiny.safetensors", policies / f"{name}.safetensors")
    code, sent = run_on_terminal(40, "extract_activations.py", "--list", "--policies-dir", policies)
    assert code == 0 and name in sent and "1,0" in sent


def test_smoke_test_needs_nothing(tmp_path: Path) -> None:
    result = run_well("extract_activations.py", "--smoke-test", "--policies-dir", tmp_path / "none")
    assert "smoke test passed" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("pve -p NAME", "--list", "--smoke-test")),
        (("pve",), ("pve -p NAME",)),
        (("pve", "-p", "nobody"), ("no policy 'nobody'", "tiny")),
        (("pvp", "-p", "tiny"), ("at least two policies",)),
        (("pve", "-p", "tiny,tiny"), ("twice",)),
        (("pve", "-p", "tiny", "--smoke-test"), ("--smoke-test plays an untrained policy", "-n 1 --max-steps 20")),
        (("pve", "-p", "tiny", "--workers", "2", "--num-envs", "8"), ("--num-envs and --workers",)),
        (("pve", "-p", "tiny", "--fields", "Smell"), ("no optional field 'Smell'", "Market")),
        (("pve", "-p", "tiny", "--checkpoint", "7"), ("no such checkpoint of tiny", "1,")),
        (("pve", "-p", "tiny", "--checkpoint", "last"), ("--checkpoint is last", "all")),
        (("pve", "-p", "tiny", "--layers", "attention"), ("no layer 'attention'", "lstm_cell")),
        (("pve", "-p", "tiny", "--layers", "lstm_hiden"), ("did you mean lstm_hidden or lstm_cell?",)),
        (("pve", "-p", "tiny_200M"), ("no policy 'tiny_200M'", "did you mean tiny?")),
        (("pve", "-p", "tiny", "-n", "0"), ("--episodes is 0",)),
        (("pve", "-p", "tiny", "--food-regrowth", "41"), ("--food-regrowth is 41", "0 to 40")),
        (("pve", "-p", "tiny", "--random-actions", "1.01"), ("--random-actions is 1.01", "0 to 1")),
        (("pve", "-p", "tiny", "--random-actions", "nan"), ("--random-actions is nan", "0 to 1")),
        (("pve", "-p", "tiny", "--precision", "float16"), ("--format parquet",)),
        (("pve", "-p", "tiny", "--protocol", "original", "--map-seed", "3"), ("cannot have --map-seed",)),
        (("pve", "-p", "tiny", "-n", 2), ("already holds a dump", "activation_data/tiny")),
    ],
)
def test_bad_input_is_one_line(folder: Path, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    before = sorted(folder.rglob("*"))
    assert_refused(extract(folder, *arguments), *parts)
    assert sorted(folder.rglob("*")) == before, "something was left behind"


def test_networks_that_watch_are_recorded(folder: Path, tmp_path: Path) -> None:
    extracted(
        folder, "pve", "-p", "tiny", "-n", 1, "--max-steps", 4, "--untrained-twin", "--shadow-networks", "all",
        output=tmp_path / "watched",
    )  # fmt: skip
    metadata = read_metadata(tmp_path / "watched" / "tiny")
    steps = [
        int(name.removeprefix("steps_")) for name in metadata.environment["shadow_networks"] if name != "untrained"
    ]
    assert 0 in steps and "untrained" in metadata.environment["shadow_networks"]
    expected = {
        f"{name}_lstm_{part}" for name in metadata.environment["shadow_networks"] for part in ("hidden", "cell")
    }
    assert set(metadata.layers) == {"action_decoder"} | expected
    assert_refused(
        extract(folder, "pve", "-p", "tiny", "--shadow-networks", "few"),
        "--shadow-networks is few: must be comma-separated numbers",
    )
    assert_refused(
        extract(folder, "pve", "-p", "tiny", "--shadow-networks", "17"), "no such checkpoint of tiny", "there are"
    )


def test_a_stage_names_the_command_that_records_what_it_lacks(folder: Path, tmp_path: Path) -> None:
    dump = folder / "activation_data" / "tiny"
    refused = run_here("train_sparse_autoencoder.py", dump, "--no-track")
    assert_refused(refused, "holds no layer 'lstm_cell'", "--record standard")
    command = shlex.split(refused.stderr.split("`")[1])
    assert command[:2] == ["python", "extract_activations.py"]
    short = ("-n", 3, "--max-steps", 8, *options(folder, tmp_path), "--num-envs", 4)
    recorded = run_well("extract_activations.py", *command[2:], *short)
    assert "with --record: activations" in recorded.stdout
    metadata = read_metadata(tmp_path / "tiny-standard")
    assert metadata.format == "parquet" and {"lstm_cell", "encoder_output", "untrained_lstm_cell"} <= set(
        metadata.layers
    )
    assert "Market" in metadata.tables and {"legal", "task"} <= set(metadata.columns)


def test_everything_and_parts_of_it(folder: Path, tmp_path: Path) -> None:
    short = ("pve", "-p", "tiny", "-n", 1, "--max-steps", 4, "--precision", "float16")
    extracted(folder, *short, "--record", "everything", "--layers", "lstm_cell", "--name", "all", output=tmp_path)
    metadata = read_metadata(tmp_path / "all")
    assert set(metadata.layers) == {"lstm_cell", "untrained_lstm_hidden", "untrained_lstm_cell"}
    assert metadata.precision == "float16" and "logits" in metadata.columns
    assert_refused(extract(folder, *short, "--name", "../x", output=tmp_path), "--name is ../x: must be a file's name")
