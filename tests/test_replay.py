"""train.py -m replay as users run it, and its output compared with Neural MMO's own."""

import json
import lzma
import shutil
from pathlib import Path

import pytest
import torch
from nmmo.render.render_utils import np_encoder
from nmmo.render.replay_helper import FileReplayHelper

from activation_store.reader import read_dump
from analysis.replays.file import read_replay
from reinforcement_learning.play.contest import Contest, record_replay
from reinforcement_learning.play.entrants import load_entrants, shared_tasks
from reinforcement_learning.play.policy_pool import seats
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import assert_refused, python, run_here, run_well
from tests.tiny_policies import world_options


@pytest.fixture(scope="module")
def policies(three_policies: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(three_policies, tmp_path_factory.mktemp("replays") / "policies")


def content(path: Path) -> dict:
    return json.loads(lzma.decompress(path.read_bytes(), format=lzma.FORMAT_ALONE))


def test_a_replay_is_what_the_games_own_helper_writes(
    policies: Path, small_world: EnvironmentSettings, maps: Path, tmp_path: Path
) -> None:
    entrants = tuple(load_entrants(policies))
    tasks = shared_tasks(entrants, TaskSettings(curriculum="evaluation"))
    contest = Contest(entrants, small_world, tasks, maps, torch.device("cpu"))
    path = tmp_path / "ours.replay.lzma"
    ticks: list[tuple[int, int]] = []
    lives = record_replay(contest, 7, path, lambda done, most: ticks.append((done, most)))
    ours = content(path)

    pool = contest.pool(worlds=1)
    pool.start(7, [0])
    realm = pool.shared[0].world.game.realm
    helper = realm.record_replay(FileReplayHelper())
    helper.reset()
    while not pool.is_over:
        pool.step()
    theirs = json.loads(json.dumps({"map": helper.map, "packets": helper.packets}, default=np_encoder))

    assert pool.finished() == [lives] and [done for done, _ in ticks] == list(range(1, len(ticks) + 1))
    assert len(ours["packets"]) == len(ticks) + 1 > 20
    assert list(ours) == list(theirs) == ["map", "packets"]
    for packet in ours["packets"]:
        for number, player in packet["player"].items():
            assert player["base"]["name"].endswith(f"_{number}")
    for packet in (*ours["packets"], *theirs["packets"]):
        for player in packet["player"].values():
            del player["base"]["name"]
    assert ours == theirs


def test_agents_are_named_after_their_policy(policies: Path, small_world: EnvironmentSettings) -> None:
    done = python(
        "train.py", "--debug", "--no-track", "-m", "replay", "-p", policies, "--train.seed", 3, "-t", "0",
        *world_options(small_world),
    )  # fmt: skip
    path = policies / "seed_3_task_0.replay.lzma"
    assert str(path) in done.stdout.replace("\n", "") and "render_replay.py" in done.stdout
    assert {item.suffix for item in policies.iterdir()} == {".safetensors", ".lzma"}  # no pickle beside it
    names = [player["base"]["name"] for player in content(path)["packets"][0]["player"].values()]
    seated = seats(3, 0, small_world.num_agents, 3)
    assert names == [f"{('kit', 'take', 'yao')[entrant]}_{agent}" for agent, entrant in enumerate(seated, start=1)]
    again = run_here("train.py", "--debug", "-m", "replay", "-p", policies, "--train.seed", 3, "-t", "0")
    assert_refused(again, str(path), "already exists")


def test_an_extraction_of_one_episode_records_the_same_one(
    policies: Path, small_world: EnvironmentSettings, tmp_path: Path
) -> None:
    replayed = run_here(
        "train.py", "--debug", "-m", "replay", "-p", policies, "-n", "kit", "--train.seed", 4,
        *world_options(small_world),
    )  # fmt: skip
    recorded = run_here(
        "extract_activations.py", "pve", "-p", "kit", "-n", 1, "-s", 4, "--policies-dir", policies, "-o", tmp_path,
        "--maps-dir", small_world.maps_dir, "--format", "parquet", "--map-seed", 0,
    )  # fmt: skip
    assert replayed.returncode == 0 == recorded.returncode, replayed.stderr + recorded.stderr
    players = read_replay(policies / "seed_4_kit.replay.lzma", lambda share: None).players
    records = read_dump(tmp_path / "kit")
    seen = (records.tick, records.agent_id - 1)
    assert (players.row[seen] == records.column("row")).all() and (players.col[seen] == records.column("col")).all()
    assert len(records) > 200


def test_one_policy_plays_alone(policies: Path, small_world: EnvironmentSettings) -> None:
    run_well(
        "train.py", "--debug", "-m", "replay", "-p", policies, "-n", "take", "--env.horizon", 3,
        *world_options(small_world)[:-4], "--env.maps-dir", small_world.maps_dir,
    )  # fmt: skip
    packets = content(policies / "seed_1_take.replay.lzma")["packets"]
    assert len(packets) == 4
    assert all(player["base"]["name"].startswith("take_") for player in packets[0]["player"].values())


def test_bad_input_is_one_line(policies: Path, small_world: EnvironmentSettings, tmp_path: Path) -> None:
    for arguments, parts in (
        (("-p", tmp_path), ("no policy", str(tmp_path))),
        (("-p", policies, "-n", "nobody"), ("nobody", "kit, take, yao")),
        (("-p", policies, "-t", "NOTHING"), ("NOTHING",)),
        (("-p", policies, "--env.map-size", 64), ("kit", "map_side", "64", "96")),
    ):
        options = [*world_options(small_world), "--train.seed", 9, *arguments]
        assert_refused(run_here("train.py", "--debug", "-m", "replay", *options), *parts)
    (tmp_path / "broken.safetensors").write_bytes((policies / "kit.safetensors").read_bytes()[:-9])
    assert_refused(run_here("train.py", "--debug", "-m", "replay", "-p", tmp_path), "broken.safetensors")
    assert not [*tmp_path.glob("*replay*"), *policies.glob("*seed_9*")]
