"""The whole stage from the command line: tables, figure, and one line for each bad input."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from analysis.evaluation.held_out_tasks import TASK_NAMES
from analysis.evaluation.tables import TABLES
from tests.command import ROOT, assert_refused, environment, rows_of, run, run_here, run_on_terminal
from tests.planted_results import Results, as_original, play, provenance, write

SCRIPT = "analysis/proc_eval_result.py"
SKILLS = {"weak": 0.2, "strong": 0.5}
SUMMARY = [
    "policy_name", "mode", "task_progress", "weighted_score", "task_progress_low", "task_progress_high",
    "weighted_score_low", "weighted_score_high", "seeds", "episodes", "lives", "length", "length_low", "length_high",
    "median_length", "median_length_low", "median_length_high",
]  # fmt: skip


def proc(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_here(SCRIPT, *arguments, "--resamples", 100)


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    return rows_of(folder / f"{name}.tsv")


def results(mode: str = "pvp", seed: int = 1, episodes: int = 8, **changes: Any) -> Results:
    """A file of two policies in which every task has lives."""
    played = play(SKILLS, episodes, 64, np.random.default_rng(seed), tasks_in_turn=True)
    for policy in played:
        note = provenance(mode, seed, episodes, checkpoint_sha256=policy)
        played[policy]["provenance"] = note | changes
    return played


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policies")
    for mode, seed in (("pvp", 1), ("pvp", 2), ("pve", 1)):
        write(folder, f"eval_{mode}_{seed}.json", results(mode, seed))
    return folder


@pytest.fixture(scope="module")
def done(folder: Path) -> subprocess.CompletedProcess[str]:
    done = run(SCRIPT, folder, "--resamples", 100)
    assert (done.returncode, done.stderr) == (0, "")
    return done


def test_everything_promised_is_there_and_a_pipe_gets_tab_separated_tables(
    done: subprocess.CompletedProcess[str], folder: Path
) -> None:
    lines = done.stdout.splitlines()
    assert lines[0] == "scores:" and lines[1].startswith("policy\tmode\tweighted score\t")
    assert lines[2].startswith("strong\tpvp\t") and lines[-1] == f"tables and figure: {folder}"
    made = {path.name for path in folder.iterdir()} - {f"eval_{name}.json" for name in ("pvp_1", "pvp_2", "pve_1")}
    assert made == {*(f"{name}.tsv" for name in TABLES), "score_summary.png"}
    assert (folder / "score_summary.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("done")
def test_the_summary_holds_means_over_seeds(folder: Path) -> None:
    summary = rows(folder, "score_summary")
    assert list(summary[0]) == SUMMARY
    assert [(row["policy_name"], row["mode"]) for row in summary] == [
        ("strong", "pvp"), ("weak", "pvp"), ("strong", "pve"), ("weak", "pve"),
    ]  # fmt: skip
    first = summary[0]
    assert (first["seeds"], first["episodes"], first["lives"]) == ("2", "16", "1024")
    by_seed = [row for row in rows(folder, "score_by_seed") if (row["policy_name"], row["mode"]) == ("strong", "pvp")]
    assert [row["seed"] for row in by_seed] == ["1", "2"]
    for column in ("task_progress", "weighted_score", "length"):
        mean = np.mean([float(row[column]) for row in by_seed])
        assert float(first[column]) == pytest.approx(mean, abs=1e-5)
        assert float(first[f"{column}_low"]) < mean < float(first[f"{column}_high"])


@pytest.mark.usefixtures("done")
def test_tables_agree_with_each_other_and_with_the_files_and_find_the_strong_policy(folder: Path) -> None:
    of_strong = {"policy_name": "strong", "mode": "pvp"}.items()
    tasks = [row for row in rows(folder, "score_task_summary") if of_strong <= row.items()]
    assert sorted(row["task_name"] for row in tasks) == sorted(TASK_NAMES)
    weighted = sum(float(row["weight"]) * float(row["task_progress"]) for row in tasks)
    (summary,) = (row for row in rows(folder, "score_summary") if of_strong <= row.items())
    assert weighted == pytest.approx(float(summary["weighted_score"]), abs=1e-3)
    categories = [row for row in rows(folder, "score_category_summary") if of_strong <= row.items()]
    parts = sum(float(row["weighted_score"]) for row in categories)
    assert len(categories) == 6 and parts == pytest.approx(weighted, abs=1e-3)
    by_seed = [row for row in rows(folder, "score_by_task_seed") if of_strong <= row.items()]
    written = {seed: orjson.loads((folder / f"eval_pvp_{seed}.json").read_bytes()) for seed in "12"}
    assert len(by_seed) == 126
    for row in by_seed:
        values = written[row["seed"]]["strong"][row["task_name"]]
        assert int(row["count"]) == len(values)
        assert float(row["task_progress"]) == pytest.approx(np.mean(values), abs=1e-6)
    compared = rows(folder, "score_improvement")
    assert [(row["mode"], row["policy_name"], row["other_policy_name"]) for row in compared] == [
        ("pvp", "strong", "weak"), ("pve", "strong", "weak"),
    ]  # fmt: skip
    assert all(float(row["probability_of_improvement_low"]) > 0.6 for row in compared)
    best, worst = rows(folder, "score_ranking")
    assert best["policy_name"] == "strong" and best["outcomes"] == "16"
    assert float(best["rating"]) + float(worst["rating"]) == pytest.approx(2000)


def test_a_terminal_gets_drawn_tables(folder: Path, tmp_path: Path) -> None:
    code, shown = run_on_terminal(160, SCRIPT, folder, "--resamples", "100", "--output-dir", tmp_path)
    assert code == 0 and "──" in shown and "strong" in shown and "Traceback" not in shown


@pytest.mark.slow
def test_it_runs_as_a_module_from_any_folder_as_a_file_and_repeatably(folder: Path, tmp_path: Path) -> None:
    for place, (where, script) in enumerate(((ROOT, ["-m", "analysis.proc_eval_result"]), (tmp_path, [ROOT / SCRIPT]))):
        command = [sys.executable, *map(str, script), str(folder), "--output-dir", str(tmp_path / str(place))]
        subprocess.run(command, cwd=where, env=environment(), check=True, capture_output=True, timeout=300)
    for name in TABLES:
        assert (tmp_path / "0" / f"{name}.tsv").read_bytes() == (tmp_path / "1" / f"{name}.tsv").read_bytes()


def test_original_files_give_the_same_scores_and_no_made_up_intervals(folder: Path, tmp_path: Path) -> None:
    file = write(tmp_path, "eval_pvp_1.json", as_original(results()))
    (tmp_path / "score_by_seed.tsv").write_text("of an earlier call with more seeds")
    assert proc(file).returncode == 0
    summary = {row["policy_name"]: row for row in rows(tmp_path, "score_summary")}
    first = [row for row in rows(folder, "score_by_seed") if (row["mode"], row["seed"]) == ("pvp", "1")]
    for row in first:
        for column in ("task_progress", "weighted_score", "length"):
            assert summary[row["policy_name"]][column] == row[column]
    empty = {"weighted_score_low", "weighted_score_high", "length_low", "median_length_high", "episodes"}
    assert {summary["strong"][column] for column in empty} == {""}
    assert rows(tmp_path, "score_ranking")[0]["rating_low"] == ""
    assert not (tmp_path / "score_by_seed.tsv").exists()


def test_one_policy_alone_needs_no_comparison_and_modes_may_differ(tmp_path: Path) -> None:
    file = write(tmp_path, "eval_pve_7.json", {"weak": results("pve", 7)["weak"]})
    done = proc(file)
    assert done.returncode == 0 and "n/a" not in done.stdout
    assert not {"score_improvement.tsv", "score_ranking.tsv"} & {path.name for path in tmp_path.iterdir()}
    files = [write(tmp_path / "pvp", "eval_pvp_1.json", results())]
    for name, content in results("pve", 1, 4).items():
        files.append(write(tmp_path / name, "eval_pve_1.json", {name: content}))
    assert proc(*files, "--output-dir", tmp_path / "out").returncode == 0
    assert len(rows(tmp_path / "out", "score_summary")) == 4


def changed(**changes: Any) -> Results:
    """A file in which the strong policy's keys are replaced, or left out where the new value is None."""
    played = results()
    played["strong"] = {key: value for key, value in {**played["strong"], **changes}.items() if value is not None}
    return played


TASK = TASK_NAMES[1]
TASK_TURNED = TASK.replace("event:PLAYER_KILL_N:20", "N:20_event:PLAYER_KILL")
BAD: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "torn": (lambda: orjson.dumps(results())[:-100], ("not valid JSON",)),
    "NaN": (lambda: orjson.dumps(results()).replace(b"[1.0", b"[NaN", 1), ("not valid JSON",)),
    "a list": (lambda: [results()], ("no JSON object",)),
    "nobody": (dict, ("no policy",)),
    "policy without object": (lambda: {"p": [1]}, ("'p'", "not a JSON object")),
    "name over lines": (lambda: {"a\nb": {"length": [1]}}, ("printable",)),
    "strings": (lambda: changed(**{TASK: ["1"] * 9}), (TASK, "not a list of numbers")),
    "truth values": (lambda: changed(length=[True] * 512), ("'length'", "not a list of numbers")),
    "no list": (lambda: changed(**{TASK: {"mean": 1}}), (TASK, "not a list of numbers")),
    "too much progress": (lambda: changed(**{TASK: [1.5] * 9}), (TASK, "from 0 to 1")),
    "negative ticks": (lambda: changed(length=[-1] * 512), ("'length'", "0 or more")),
    "no ticks": (lambda: changed(length=None), ("'length'", "not a list")),
    "twin too short": (lambda: changed(**{"episode/length": [0]}), ("512 entries", "has 1")),
    "twin missing": (lambda: changed(**{f"episode/{TASK}": None}), (f"episode/{TASK}",)),
    "twin of fractions": (lambda: changed(**{"episode/length": [0.5] * 512}), ("episode numbers",)),
    "a task twice": (lambda: changed(**{TASK_TURNED: [1.0]}), ("twice",)),
    "tasks missing": (
        lambda: {"strong": changed(**dict.fromkeys(TASK_NAMES[:5]))["strong"]},
        ("'strong'", "5 of the 63", TASK_NAMES[0].removeprefix("curriculum/"), "evaluate.py -n", "single task"),
    ),
    "task without lives": (lambda: {"one": changed(**{TASK: [], f"episode/{TASK}": []})["strong"]}, ("1 of the 63",)),
    "no life to its end": (lambda: changed(**{"length": [], "episode/length": []}), ("'length' is empty",)),
    "damaged provenance": (lambda: changed(provenance={"agent": 3}), ("provenance",)),
    "other seed": (lambda: results(seed=4), ("seed 4",)),
    "other mode": (lambda: results(mode="pve"), ("pve",)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    make, parts = BAD[name]
    content = make()
    file = tmp_path / "eval_pvp_1.json"
    file.write_bytes(content if isinstance(content, bytes) else orjson.dumps(content))
    assert_refused(proc(tmp_path), str(file), *parts)
    assert list(tmp_path.iterdir()) == [file]


def without(played: Results, policy: str, task: str) -> Results:
    """Results without any life of a policy at a task."""
    return played | {policy: {key: value for key, value in played[policy].items() if not key.endswith(task)}}


def test_a_task_missing_in_two_of_ten_files_counts_in_the_other_eight(tmp_path: Path) -> None:
    """As in results that the original repository publishes."""
    played = {seed: as_original(results(seed=seed)) for seed in range(10)}
    gone = ((3, "strong", TASK), (7, "weak", TASK_NAMES[0]))
    for seed, policy, task in gone:
        played[seed] = without(played[seed], policy, task)
    files = {seed: write(tmp_path, f"eval_pvp_{seed}.json", content) for seed, content in played.items()}
    done = proc(tmp_path)
    assert done.returncode == 0, done.stderr
    for line, (seed, policy, task) in zip(done.stderr.splitlines(), gone, strict=True):
        assert line.startswith(f"warning: {files[seed]}, policy {policy!r}: no life had 1 of the 63 held-out tasks")
        assert task.removeprefix("curriculum/") in line
    for row in rows(tmp_path, "score_task_summary"):
        lists = [content[row["policy_name"]].get(row["task_name"]) for content in played.values()]
        expected = np.mean([np.mean(values) for values in lists if values])
        assert float(row["task_progress"]) == pytest.approx(expected, abs=1e-6)
        assert float(row["task_progress_low"]) <= expected <= float(row["task_progress_high"])
    (missing,) = (
        row for row in rows(tmp_path, "score_by_task_seed")
        if (row["policy_name"], row["seed"], row["task_name"]) == ("strong", "3", TASK)
    )  # fmt: skip
    assert (missing["count"], missing["task_progress"]) == ("0", "")
    by_seed = {(row["policy_name"], row["seed"]): row for row in rows(tmp_path, "score_by_seed")}
    of_tasks = [np.mean(values) for task, values in played[3]["strong"].items() if task != "length"]
    assert float(by_seed["strong", "3"]["task_progress"]) == pytest.approx(np.mean(of_tasks), abs=1e-6)
    assert by_seed["weak", "7"]["weighted_score"] == "", "its only survival task is missing"


def test_a_policy_without_a_task_in_all_seeds_is_left_out(tmp_path: Path) -> None:
    for seed in (1, 2):
        write(tmp_path / "both", f"eval_pvp_{seed}.json", without(results(seed=seed), "strong", TASK))
        alone = {"weak": results(seed=seed)["weak"]}
        write(tmp_path / "alone", f"eval_pvp_{seed}.json", alone)
    done = proc(tmp_path / "both")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    file = tmp_path / "both" / "eval_pvp_1.json"
    assert line.startswith(f"left out: {file} and 1 more, policy 'strong': no life had")
    assert "it has no score: play more episodes" in line
    assert proc(tmp_path / "alone").returncode == 0
    for name in ("score_summary", "score_by_seed", "score_task_summary"):
        assert (tmp_path / "both" / f"{name}.tsv").read_bytes() == (tmp_path / "alone" / f"{name}.tsv").read_bytes()
    for seed in range(10):
        played = as_original(results(seed=seed))
        write(tmp_path / "many", f"eval_pvp_{seed}.json", without(played, "strong", TASK) if seed % 2 else played)
    done = proc(tmp_path / "many")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: ") and "likewise in 4 more results of a policy and a seed" in line


def test_files_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "a", "eval_pvp_1.json", results())
    cases = (
        (results(seed=2, checkpoint_sha256="another"), "different checkpoints under the name 'weak'"),
        (results(seed=2, agent="another"), "different checkpoints"),
        (results(seed=2, environment={"num_agents": 64, "maps_dir": "maps"}), "num_agents is 128 and 64"),
        (results(seed=2, episodes=4), "episodes is 8 and 4"),
        (results(seed=2, task={"curriculum": "mine"}), "curriculum is None and 'mine'"),
        (as_original(results(seed=2)), "episode numbers is True and False"),
    )
    for number, (second, part) in enumerate(cases):
        other = write(tmp_path / str(number), "eval_pvp_2.json", second)
        assert_refused(proc(first, other, "--output-dir", tmp_path / "out"), str(first), str(other), part)
    again = write(tmp_path / "b", "eval_pvp_1.json", results())
    assert_refused(proc(first, again), str(first), str(again), "both hold pvp results of seed 1")
    beside = tmp_path / "beside"  # checkpoints of one mode are compared beside original files of another
    write(beside, "eval_pvp_1.json", as_original(results()))
    of_pve = (results("pve", 1), results("pve", 2, checkpoint_sha256="another"))
    files = [write(beside, f"eval_pve_{seed}.json", content) for seed, content in enumerate(of_pve, 1)]
    assert_refused(proc(beside), *map(str, files), "different checkpoints")
    assert not (tmp_path / "out").exists() and not list(tmp_path.rglob("*.tsv"))


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    assert_refused(run(SCRIPT), "name a folder")
    for arguments, parts in (
        ((tmp_path / "none",), ("does not exist",)), ((tmp_path,), ("holds no result files", "evaluate.py")),
        ((tmp_path, "--confidence", 1), ("--confidence", "below 1")),
        ((tmp_path, "--resamples", 3), ("--resamples", "100 or more")),
        ((tmp_path, "--seed", -1), ("--seed", "0 to 4294967295")),
    ):  # fmt: skip
        assert_refused(run_here(SCRIPT, *arguments), *parts)
    stray = write(tmp_path, "eval_pvp.json", {})
    assert_refused(run_here(SCRIPT, tmp_path), str(stray), "eval_<pvp|pve>_<seed>.json")
