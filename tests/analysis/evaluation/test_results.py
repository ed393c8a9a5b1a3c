"""Result files are read or refused in one line; the list of tasks, which the analysis holds itself, is the game's."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.evaluation.held_out_tasks import (
    CATEGORIES,
    IN_CATEGORY,
    TASK_CATEGORIES,
    TASK_NAMES,
    TASK_WEIGHTS,
    task_index,
)
from analysis.evaluation.results import PolicyRun, find_result_files, read_results
from common.checked_json import CHECKSUM, entry_checksum
from common.user_error import UserError
from reinforcement_learning.game.tasks import evaluation_tasks, training_tasks
from tests.command import assert_refuses
from tests.fuzz import flip
from tests.planted_results import as_original, play, provenance, write

RESULTS = play({"one": 0.3, "other": 0.6}, 6, 40, np.random.default_rng(0), tasks_in_turn=True)
for policy in RESULTS:
    RESULTS[policy]["provenance"] = provenance("pvp", 1, 6)


def test_every_life_is_read_into_its_episode(tmp_path: Path) -> None:
    one, _ = read_results(write(tmp_path, "eval_pvp_1.json", RESULTS))
    assert (one.policy, one.mode, one.seed, one.episodes) == ("one", "pvp", 1, tuple(range(6)))
    assert one.ticks.tolist() == RESULTS["one"]["length"]
    assert one.ticks_episode.tolist() == RESULTS["one"]["episode/length"]
    for place, name in enumerate(TASK_NAMES):
        values, episodes = RESULTS["one"][name], RESULTS["one"][f"episode/{name}"]
        for episode in range(6):
            mine = [v for v, e in zip(values, episodes, strict=True) if e == episode]
            assert (one.progress_lives[episode, place], one.progress_sum[episode, place]) == (len(mine), sum(mine))
    assert one.provenance is not None and one.provenance.episodes == 6


def test_policies_that_did_not_share_worlds_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    contests = play({"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}, 6, 40, rng)
    for name, opponent in ("ab", "ba", "cd", "dc"):
        contests[name]["provenance"] = provenance("pvp", 1, 6, opponents=[opponent])
    apart = write(tmp_path, "eval_pvp_1.json", contests)
    assert_refuses(r"eval_pvp_1.json: 'a' and 'c' were not played in the same worlds", read_results, apart)
    together = write(tmp_path / "one", "eval_pvp_1.json", {name: contests[name] for name in "ab"})
    assert [run.policy for run in read_results(together)] == ["a", "b"]
    for name in contests:
        contests[name]["provenance"] |= {"mode": "pve", "opponents": []}
    assert len(read_results(write(tmp_path, "eval_pve_1.json", contests))) == 4, "alone, each has its own worlds"


def test_an_original_file_gives_the_same_means(tmp_path: Path) -> None:
    ours = read_results(write(tmp_path / "ours", "eval_pvp_1.json", RESULTS))
    theirs = read_results(write(tmp_path / "theirs", "eval_pvp_1.json", {**as_original(RESULTS), "idle": {}}))
    assert [run.policy for run in theirs] == ["one", "other"], "a policy without any results is none"
    for mine, other in zip(ours, theirs, strict=True):
        assert other.episodes is None and other.provenance is None
        np.testing.assert_allclose(other.task_progress, mine.task_progress, rtol=1e-12)
        np.testing.assert_array_equal(other.ticks, mine.ticks)
        assert other.task_progress[0] == pytest.approx(np.mean(RESULTS[mine.policy][TASK_NAMES[0]]))


def test_episode_numbers_may_have_gaps_and_any_order(tmp_path: Path) -> None:
    shuffled = {key: value for key, value in RESULTS["one"].items() if key != "provenance"}
    for key in [key for key in shuffled if key.startswith("episode/")]:
        shuffled[key] = [100 - 7 * number for number in shuffled[key]]
    (run,) = read_results(write(tmp_path, "eval_pve_3.json", {"one": shuffled}))
    assert run.episodes == (65, 72, 79, 86, 93, 100)
    (before, _) = read_results(write(tmp_path, "eval_pvp_1.json", RESULTS))
    np.testing.assert_array_equal(run.progress_sum, before.progress_sum[::-1])


def test_files_are_found_once_each(tmp_path: Path) -> None:
    files = [write(tmp_path, f"eval_pvp_{seed}.json", RESULTS) for seed in (1, 2)]
    write(tmp_path, "other.json", {})
    assert find_result_files([tmp_path, files[1], tmp_path / "." / "eval_pvp_1.json"]) == files
    assert_refuses("holds no result files", find_result_files, [tmp_path, Path(tempfile.mkdtemp(dir=tmp_path))])
    assert_refuses("name without mode and seed", find_result_files, [write(tmp_path, "eval_both_1.json", {})])


def with_checksums(results: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**lists, CHECKSUM: entry_checksum(name, lists)} for name, lists in results.items()}


def differences(ours: list[PolicyRun], theirs: list[PolicyRun]) -> list[str]:
    """Names of what differs between runs, but for the file."""
    pairs = [(vars(one), vars(other)) for one, other in zip(ours, theirs, strict=True)]
    names = [name for name in vars(ours[0]) if name != "file"]
    return [name for one, other in pairs for name in names if not np.array_equal(one[name], other[name])]


def test_every_flipped_bit_of_results_with_a_checksum_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    """Whole, they are read as those without."""
    file = write(tmp_path, "eval_pvp_1.json", with_checksums(RESULTS))
    whole, content = read_results(file), file.read_bytes()
    assert differences(read_results(write(tmp_path / "plain", "eval_pvp_1.json", RESULTS)), whole) == []
    random, refused = np.random.default_rng(0), 0
    for place in random.choice(len(content), 300, replace=False):
        flip(file, place, 1 << int(random.integers(8)), content)
        try:
            assert differences(read_results(file), whole) == []
        except UserError:
            refused += 1
    assert refused > 290  # the rest are in keys of checksums and the like


@pytest.mark.parametrize("checksum", [None, 3, "0" * 64, ["x"] * 3])
def test_a_wrong_checksum_is_refused(tmp_path: Path, checksum: object) -> None:
    results = {**with_checksums(RESULTS), "one": {**RESULTS["one"], CHECKSUM: checksum}}
    file = write(tmp_path, "eval_pvp_1.json", results)
    assert_refuses("policy 'one': its results do not match their checksum", read_results, file)


def test_names_and_categories_are_those_of_the_game_and_each_category_weighs_a_sixth() -> None:
    game = [(f"curriculum/{spec.name}", spec.tags[0]) for spec in evaluation_tasks()]
    assert list(zip(TASK_NAMES, TASK_CATEGORIES, strict=True)) == game and len(set(TASK_NAMES)) == 63
    assert IN_CATEGORY.sum(axis=1).tolist() == [1, 3, 2, 8, 44, 5]
    np.testing.assert_allclose(IN_CATEGORY @ TASK_WEIGHTS, 100 / len(CATEGORIES))


def test_keys_are_understood() -> None:
    assert [task_index(name) for name in TASK_NAMES] == list(range(63))
    assert [task_index(f"curriculum/{spec.name}") for spec in training_tasks(128)] == [None] * len(training_tasks(128))
    own = "curriculum/Task_DefeatEntity_(agent_type:npc_level:3_num_agent:20)_reward_to:agent"
    turned = "curriculum/Task_DefeatEntity_(level:3_num_agent:20_agent_type:npc)_reward_to:agent"
    assert task_index(turned) == TASK_NAMES.index(own)
    assert task_index("curriculum/Task_TickGE_(num_tick: 1024)_reward_to:agent") == 0


@pytest.mark.parametrize(
    "key",
    [
        "", "length", "curriculum/", "curriculum/Task_TickGE_()_reward_to:agent", TASK_NAMES[0][11:],
        "curriculum/Task_TickGE_(num_tick:1024)_reward_to:team",
        "curriculum/Task_TickGE_(num_tick:512)_reward_to:agent",
        "curriculum/Task_TickGE_(num_tick:1024_num_tick:1024)_reward_to:agent",
        "curriculum/Task_TickGE_(more_num_tick:1024)_reward_to:agent",
    ],
)  # fmt: skip
def test_other_keys_are_not(key: str) -> None:
    assert task_index(key) is None
