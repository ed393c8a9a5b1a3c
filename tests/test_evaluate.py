"""evaluate.py as users run it, on the real game."""

import json
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from common.files import locked_folder
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.tasks import evaluation_tasks
from reinforcement_learning.play.evaluation import Evaluation, contests
from reinforcement_learning.play.evaluation_results import EvaluationJournal
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import assert_refused, run_here, run_well, start
from tests.shared import shared_folder
from tests.tiny_policies import save_policies, world_options

JOURNAL = ".eval_pvp_1.episodes.jsonl"
ALONE = ("--num-envs", 1)
"""Plays in this process."""


@pytest.fixture
def policies(three_policies: Path, tmp_path: Path) -> Path:
    """A fresh folder of three policies."""
    return shutil.copytree(three_policies, tmp_path / "policies")


@pytest.fixture(scope="module")
def world(small_world: EnvironmentSettings) -> list[object]:
    return world_options(small_world)


@pytest.fixture(scope="module")
def evaluated(three_policies: Path, world: list[object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same folder after five episodes for each of two seeds, one world after the other; with their journals."""

    def evaluate(folder: Path) -> None:
        shutil.copytree(three_policies, folder, dirs_exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EvaluationJournal, "remove", lambda self: self.path.rename(f"{self.path}.kept"))
            done = run_well("evaluate.py", folder, "pvp", "-r", 2, "-n", 5, *ALONE, "--untrained", "yaofeng", *world)
        assert "untrained_yaofeng" in done.stdout and "proc_eval_result.py" in done.stdout

    return shared_folder(tmp_path_factory, "evaluated", evaluate)


@pytest.fixture(scope="module")
def journal(evaluated: Path) -> list[bytes]:
    """The lines of the journal of seed 1 once all five episodes are played."""
    return (evaluated / f"{JOURNAL}.kept").read_bytes().splitlines(keepends=True)


def results(folder: Path, seed: int = 1, mode: str = "pvp") -> dict:
    return json.loads((folder / f"eval_{mode}_{seed}.json").read_text())


def test_result_files_hold_every_life_once_and_say_how_they_were_made(evaluated: Path) -> None:
    for seed in (1, 2):
        content = results(evaluated, seed)
        assert list(content) == ["kit", "take", "yao", "untrained_yaofeng"]
        assert sum(len(lists["length"]) for lists in content.values()) == 5 * 16
        held_out = {f"curriculum/{spec.name}" for spec in evaluation_tasks()}
        for lists in content.values():
            tasks = [name for name in lists if name.startswith("curriculum/")]
            assert set(tasks) <= held_out
            assert sum(len(lists[task]) for task in tasks) == len(lists["length"])
            assert all(0 <= value <= 1 for task in tasks for value in lists[task])
            assert all(1 <= ticks <= 64 for ticks in lists["length"])
            for name in ("length", *tasks):
                assert len(lists[f"episode/{name}"]) == len(lists[name])
            assert set(Counter(lists["episode/length"]).values()) == {4}  # 16 agents, four policies
    assert results(evaluated, 1) != results(evaluated, 2)
    provenance = results(evaluated)["yao"]["provenance"]
    assert provenance["agent"] == "yaofeng" and len(provenance["checkpoint_sha256"]) == 64
    assert provenance["opponents"] == ["kit", "take", "untrained_yaofeng"]
    assert (provenance["mode"], provenance["seed"], provenance["episodes"]) == ("pvp", 1, 5)
    assert provenance["environment"]["early_stop_agents"] == 0
    assert provenance["environment"]["resilient_population"] == 0
    assert provenance["task"]["curriculum"] == "evaluation" and provenance["versions"]["nmmo"] == "2.1.2"
    assert results(evaluated)["untrained_yaofeng"]["provenance"]["checkpoint_sha256"] is None


@pytest.mark.parametrize(("agent", "layers"), [("neurips23_start_kit", 1), ("takeru", 0), ("yaofeng", 2)])
def test_an_untrained_agent_has_the_memory_that_it_is_usually_trained_with(
    agent: str, layers: int, three_policies: Path, small_world: EnvironmentSettings
) -> None:
    *_, baseline = contests(
        Evaluation(
            folder=three_policies, mode="pve", names=("kit",), untrained=agent, env=small_world,
            task=TaskSettings(curriculum="evaluation"), protocol="toolkit", seeds=range(1, 2), episodes=1, prefix=None,
            workers=Workers(1), device="cpu",
        )
    )  # fmt: skip
    (entrant,) = baseline.entrants
    assert entrant.policy.layers == entrant.info.recurrent_arguments["layers"] == layers


def test_the_original_protocol_is_recorded_and_never_mixed(
    evaluated: Path, policies: Path, world: list[object], tmp_path: Path
) -> None:
    """Tables and comparisons refuse results by two protocols; so does the folder of the others' results."""
    without_maps = [part for name, value in zip(world[::2], world[1::2], strict=True)
                    if name not in ("--env.num-maps", "--env.map-seed") for part in (name, value)]  # fmt: skip
    command = ("pvp", "--protocol", "original", "-n", 2, *ALONE, *without_maps)
    run_well("evaluate.py", policies, *command)
    provenance = results(policies)["yao"]["provenance"]
    assert provenance["protocol"] == "original"
    assert provenance["environment"]["flip_terrain"] and provenance["environment"]["num_maps"] == 256
    assert_refused(run_here("evaluate.py", policies, "pvp", "-n", 2, *ALONE, *world), "another way", "protocol")
    both = run_here("analysis/proc_eval_result.py", policies / "eval_pvp_1.json", evaluated / "eval_pvp_2.json")
    assert_refused(both, "eval_pvp_1.json was played by the protocol 'original'", "eval_pvp_2.json by 'toolkit'")
    assert_refused(run_here("evaluate.py", policies, *command, "--env.num-maps", 7), "num_maps 256", "leave out")


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_numbers(evaluated: Path, policies: Path, world: list[object]) -> None:
    command = ("evaluate.py", policies, "pvp", "-r", 2, "-n", 5, "--untrained", "yaofeng", *world)
    journal = policies / ".eval_pvp_1.episodes.jsonl"
    with start(*command, "--num-envs", 4) as process:
        while not journal.exists() or journal.read_bytes().count(b"\n") < 2:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
    gone, left = psutil.wait_procs(workers, timeout=30)
    assert len(gone) >= 2 and not left  # no worker continues after its parent's death
    assert not list(policies.glob("eval_*.json"))
    with journal.open("ab") as file:
        file.write(b'[{"number": 4, "li')  # a line that the kill cut short
    done = run_well(*command, "--num-envs", 8)  # in two processes
    assert "playing 6 episodes" in done.stdout.replace("\n", " ")
    for name in ("eval_pvp_1.json", "eval_pvp_2.json"):
        assert (policies / name).read_bytes() == (evaluated / name).read_bytes()
    assert not list(policies.glob(".eval*"))


def test_what_is_there_is_neither_played_again_nor_mixed_with_other_weights_or_another_contest(
    evaluated: Path, world: list[object], tmp_path: Path
) -> None:
    folder = shutil.copytree(evaluated, tmp_path / "evaluated")
    before = (folder / "eval_pvp_1.json").read_bytes()
    done = run_here("evaluate.py", folder, "pvp", "-r", 2, "-n", 5, "--untrained", "yaofeng", *world)
    assert done.returncode == 0 and "playing" not in done.stdout and "take" in done.stdout
    assert (folder / "eval_pvp_1.json").read_bytes() == before
    shutil.copy(folder / "kit.safetensors", folder / "yao.safetensors")
    command = ("evaluate.py", folder, "pvp", "-n", 5, "--untrained", "yaofeng", *world)
    assert_refused(run_here(*command), "eval_pvp_1.json", "yao", "made in another way")
    for name in ("kit", "yao"):
        shutil.copy(folder / f"{name}.safetensors", folder / f"{name}_2.safetensors")
    command = ("evaluate.py", folder, "pvp", "-p", "kit_2,yao_2", "-n", 5, *world)
    assert_refused(run_here(*command), "eval_pvp_1.json", "another contest, with kit, take", "move it away")
    assert (folder / "eval_pvp_1.json").read_bytes() == before


def test_pve_plays_policies_alone_and_keeps_them_in_one_file(policies: Path, world: list[object]) -> None:
    assert_refused(run_here("evaluate.py", policies, "pve", *world), "kit, take, yao")
    for names, processes in (("kit", ALONE), ("take,yao", ())):
        run_well("evaluate.py", policies, "pve", "-p", names, "-n", 2, *processes, *world)
    content = results(policies, mode="pve")
    assert list(content) == ["kit", "take", "yao"]
    assert all(len(lists["length"]) == 32 for lists in content.values())
    assert all(lists["provenance"]["opponents"] == [] for lists in content.values())


def test_a_single_task_others_and_other_names_of_files(policies: Path, world: list[object], tmp_path: Path) -> None:
    done = run_well("evaluate.py", policies, "pvp", "-n", 1, *ALONE, "-t", "GO_FARTHEST", *world)
    assert "proc_eval_result" not in done.stdout
    (path,) = policies.glob("*.json")
    assert path.name == "task_4_eval_pvp_1.json"
    for lists in json.loads(path.read_text()).values():
        assert [name for name in lists if name.startswith("curriculum/")] == [
            "curriculum/Task_CountEvent_(event:GO_FARTHEST_N:64)_reward_to:agent"
        ]
    tasks = tmp_path / "mine.yaml"
    tasks.write_text("- {predicate: TickGE, arguments: {num_tick: 5}}\n")
    command = ("evaluate.py", policies, "pve", "-p", "take", "-n", 1, *ALONE, *world)
    done = run_well(*command, "--task-file", tasks)
    lists = json.loads((policies / "mine_eval_pve_1.json").read_text())["take"]
    (name,) = (key for key in lists if key.startswith("curriculum/"))
    assert "TickGE" in name and "proc_eval_result.py" not in done.stdout
    run_well(*command, "--save-file-prefix", "held")
    assert len(json.loads((policies / "held_1.json").read_text())["take"]["length"]) == 16


def test_bad_input_is_one_line(policies: Path, world: list[object], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, parts in (
        ((empty, "pvp"), ("no policy", str(empty))),
        ((policies, "pvp", "--env.view-radius", 3), ("--env.view-radius", "--untrained only")),
        ((policies, "pvp", "--env.mask-intrinsics", "own"), ("--env.mask-intrinsics", "--untrained only")),
        ((tmp_path / "none", "pvp"), ("not a folder", str(tmp_path / "none"))),
        ((policies, "pvp", "-p", "kit,nobody"), ("nobody", "kit, take, yao")),
        ((policies, "pvp", "-p", "kit"), ("at least two policies",)),
        ((policies, "pvp", "-p", "kit,yao,kit"), ("'kit' is named twice",)),
        ((policies, "pvp", "-r", 0), ("--repeats is 0",)),
        ((policies, "pvp", "-n", 0), ("--episodes is 0",)),
        ((policies, "pvp", "-p", "kit,taek"), ("there is no policy 'taek'", "did you mean take?")),
        ((policies, "pvp", "-t", "NOTHING"), ("NOTHING",)),
        ((policies, "pvp", "--untrained", "nobody"), ("nobody",)),
        ((policies, "pvp", "--env.map-size", 64), ("kit", "map_side", "64", "96")),
    ):  # fmt: skip
        assert_refused(
            run_here("evaluate.py", *arguments, *(world if "--env.map-size" not in arguments else world[6:])), *parts
        )
    with locked_folder(policies):
        assert_refused(run_here("evaluate.py", policies, "pvp", "-n", 1, *world), "another process", str(policies))
    (policies / "yao.safetensors").write_bytes((policies / "yao.safetensors").read_bytes()[:-100])
    assert_refused(run_here("evaluate.py", policies, "pvp", *world), "yao.safetensors")
    assert not list(policies.glob("*eval*"))


def test_policies_that_do_not_fit_are_left_out_unless_they_are_named(
    policies: Path, misfits: Path, world: list[object]
) -> None:
    for path in misfits.glob("*.safetensors"):
        shutil.copy(path, policies)
    done = run_well("evaluate.py", policies, "pvp", "-n", 1, *world)
    assert [line[: line.index(" was")] for line in done.stderr.splitlines() if " in a world" in line] == [
        "left out: the policy debug"
    ]
    assert len(done.stderr.splitlines()) == 1
    output = {name: entry["provenance"]["task"]["embedding_size"] for name, entry in results(policies).items()}
    assert output == {"kit": 16, "other_tasks": 24, "take": 16, "yao": 16}
    assert_refused(run_here("evaluate.py", policies, "pvp", "-p", "kit,debug", *world), "the policy debug", "map_side")
    assert_refused(run_here("evaluate.py", policies, "pve", "-p", "debug", *world), "the policy debug", "map_side")


@pytest.fixture(scope="module")
def misfits(tmp_path_factory: pytest.TempPathFactory, small_world: EnvironmentSettings, task: TaskSettings) -> Path:
    """A policy trained on larger maps, and one trained on a different encoding of tasks."""
    folder, agents = tmp_path_factory.mktemp("misfits"), {"debug": ("neurips23_start_kit", 1)}
    larger = replace(small_world, map_size=40)
    save_policies(folder, larger, task, ensure_maps(larger, numbers=()), agents)
    agents = {"other_tasks": agents["debug"]}
    save_policies(folder, small_world, replace(task, embedding_size=24), ensure_maps(small_world, numbers=()), agents)
    return folder


def test_a_damaged_journal_costs_the_episodes_from_there_on(
    evaluated: Path, policies: Path, world: list[object], journal: list[bytes]
) -> None:
    assert len(journal) == 3  # how it is played, and two groups of episodes
    place = journal[2].index(b'"ticks":[') + len('"ticks":[')
    damaged = journal[2][:place] + bytes([journal[2][place] ^ 1]) + journal[2][place + 1 :]  # another number of ticks
    (policies / JOURNAL).write_bytes(b"".join([*journal[:2], damaged]))
    done = run_well("evaluate.py", policies, "pvp", "-n", 5, *ALONE, "--untrained", "yaofeng", *world)
    assert f"playing {damaged.count(b'number')} episodes" in done.stdout.replace("\n", " ")
    assert f"{policies / JOURNAL} is damaged from line 3 on" in done.stderr
    assert (policies / "eval_pvp_1.json").read_bytes() == (evaluated / "eval_pvp_1.json").read_bytes()
    assert not (policies / JOURNAL).exists()


def test_a_whole_journal_needs_only_its_result_file_and_no_other_evaluation_takes_it(
    policies: Path, world: list[object], journal: list[bytes], evaluated: Path
) -> None:
    (policies / JOURNAL).write_bytes(b"".join([journal[0], *journal[:0:-1]]))  # as several processes may leave it
    result = run_here("evaluate.py", policies, "pvp", "-n", 1, *world)
    assert_refused(result, str(policies / JOURNAL), "another way", "remove it")
    done = run_here("evaluate.py", policies, "pvp", "-n", 5, "--untrained", "yaofeng", *world)
    assert done.returncode == 0 and "playing" not in done.stdout and done.stderr == ""
    assert (policies / "eval_pvp_1.json").read_bytes() == (evaluated / "eval_pvp_1.json").read_bytes()


def test_damaged_results_are_refused(evaluated: Path, world: list[object], tmp_path: Path) -> None:
    folder = shutil.copytree(evaluated, tmp_path / "evaluated")
    path = folder / "eval_pvp_1.json"
    whole = path.read_bytes()
    command = ("evaluate.py", folder, "pvp", "-n", 5, "--untrained", "yaofeng", *world)
    place = whole.index(b'"length":[') + len('"length":[')
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])  # another number of ticks
    assert_refused(run_here(*command), str(path), "'kit' do not match their checksum")
    assert_refused(run_here("analysis/proc_eval_result.py", folder), str(path), "'kit'", "checksum")
    path.write_bytes(whole.replace(b'"yao":{', b'"oay":{'))
    assert_refused(run_here(*command), str(path), "'oay' do not match their checksum")
    content = {
        name: {key: lists[key] for key in lists if key != "checksum"} for name, lists in json.loads(whole).items()
    }
    path.write_text(json.dumps(content))  # as earlier versions wrote it
    done = run_here(*command)
    assert done.returncode == 0 and "playing" not in done.stdout, done.stderr
    for lists in content.values():
        del lists["length"]
    path.write_text(json.dumps(content))
    assert_refused(run_here(*command), str(path), "is damaged")
