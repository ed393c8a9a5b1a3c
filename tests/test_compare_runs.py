"""compare_runs.py as users run it, on planted training runs and on a real one."""

import json
from pathlib import Path

import pytest

from tests.command import assert_refused, run_here, run_well
from tests.planted_training_runs import plant_evaluation, plant_run

LEVELS = {"A": (10.0, 11.0, 12.0), "B": (30.0, 32.0, 31.0)}


def metrics_at(level: float) -> dict:
    return {
        "lives/ticks": lambda steps: level * (1 - 0.5 ** (steps / 2000)),
        "lives/total_reward": lambda steps: level / 10,
        "loss/entropy": lambda steps: 5 - steps / 10_000,
        "loss/explained_variance": lambda steps: 0.5,
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three seeds of A and of B, all with evaluated checkpoints."""
    folder = tmp_path_factory.mktemp("compared")
    planted = [
        plant_run(folder, f"{name}_{seed}", seed, metrics_at(level), updates=20)
        for name, levels in LEVELS.items()
        for seed, level in enumerate(levels, 1)
    ]
    for number, run in enumerate(planted):
        for steps in (0, 20_000):
            plant_evaluation(run, steps, 0.1 + steps / 100_000 + number / 100)
    return planted


def test_groups_are_drawn_and_compared(runs: list[Path], tmp_path: Path) -> None:
    result = run_well("compare_runs.py", *runs, "--output-dir", tmp_path)
    folder = tmp_path / "compare-A-B"
    assert str(folder) in result.stdout and "lives/ticks\tA - B\t-19.9" in result.stdout
    written = {path.name for path in folder.iterdir()}
    assert written == {
        "run.json", "DONE.json", "comparison.json", "learning_curves.png", "generalisation.png", "curves.tsv",
        "last_stretch.tsv", "differences.tsv", "evaluations.tsv",
    }  # fmt: skip
    assert set(json.loads((folder / "DONE.json").read_text())["files"]) == written - {"DONE.json"}
    assert len(json.loads((folder / "run.json").read_text())["input"]) == 6 + 6  # metrics and results
    results = json.loads((folder / "comparison.json").read_text())
    assert [len(group["runs"]) for group in results["groups"]] == [3, 3]
    differences = {item["metric"]: item for item in results["comparisons"]}
    assert differences["lives/ticks"]["difference"]["high"] < 0 and differences["lives/ticks"]["corrected_p"] < 0.01
    assert differences["loss/explained_variance"]["corrected_p"] is None  # every seed the same: nothing to test
    scores = differences["task_progress on held-out maps"]
    assert (
        scores["paired"] and -0.1 < scores["difference"]["value"] < 0 and "task_progress on held-out" in result.stdout
    )
    heads, *rows = (folder / "curves.tsv").read_text().splitlines()
    assert heads.split("\t") == ["metric", "group", "agent_steps", "mean", "low", "high", "seeds"]
    assert len(rows) == 4 * 2 * 20  # metrics, groups, points: a run of 20 updates has no more
    points = [line.split("\t") for line in (folder / "evaluations.tsv").read_text().splitlines()]
    progress = [row[1:] for row in points if row[0] == "task_progress"]
    assert [(row[0], float(row[2]), row[-1]) for row in progress] == [
        ("A", 0, "3"), ("A", 20_000, "3"), ("B", 0, "3"), ("B", 20_000, "3"),
    ]  # fmt: skip
    for picture in ("learning_curves.png", "generalisation.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert_refused(run_here("compare_runs.py", *runs, "--output-dir", tmp_path), "already holds a run")
    run_well("compare_runs.py", *runs[:-1], "--output-dir", tmp_path, "--metrics", "lives/ticks")
    assert (tmp_path / "compare-A-B-5-runs" / "DONE.json").exists(), (
        "other runs of the same groups, as after a seed more"
    )


def test_groups_without_repetitions_are_drawn_without_intervals(tmp_path: Path) -> None:
    alone = [plant_run(tmp_path, name, 1, metrics_at(10), updates=3, budget=9_000) for name in ("A_1", "B_1")]
    result = run_well("compare_runs.py", *alone, "--output-dir", tmp_path, "--name", "pair", "--metrics", "lives/ticks")
    for part in ("A has one seed: no interval", "A_1 is unfinished: 3,001 of 9,000", "(n/a)", "evaluate.py"):
        assert part in result.stdout
    assert not (tmp_path / "pair" / "generalisation.png").exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("name the folders of runs",)),
        (("nowhere",), ("nowhere does not exist", "runs/NAME")),
        (("A_1",), ("one run only",)),
        (("A_1", "OTHER"), ("A_1", "A_9", "differ in train.gamma (0.99 and 0.5)", "--group-by settings")),
        (("A_1", "B_1", "--metrics", "lives/tick"), ("'lives/tick'", "did you mean lives/ticks")),
        (("A_1", "B_1", "--last", "0"), ("--last is 0",)),
        (("A_1", "B_1", "--points", "0"), ("--points is 0",)),
        (("A_1", "B_1", "--confidence", "95"), ("--confidence is 95",)),
        (("A_1", "B_1", "--against", "defaults"), ("no group is called 'defaults'", "A, B")),
        (("A_1", "B_1", "--held-out", "nowhere"), ("nowhere does not exist",)),
        (("A_1", "B_1", "--held-out", "A_1/checkpoints", "--mode", "pvp"), ("no pvp results", "evaluate.py")),
        (("A_1", "B_1", "--mode", "pvp"), ("--mode pvp needs --held-out FOLDER", "evaluate.py FOLDER pvp")),
    ],
)
def test_bad_input_is_one_line(
    runs: list[Path], tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    named = {path.name: str(path) for path in runs}
    if "OTHER" in arguments:
        named["OTHER"] = str(plant_run(tmp_path, "A_9", 9, metrics_at(10), updates=20, train__gamma=0.5))
    named["A_1/checkpoints"] = str(runs[0] / "checkpoints")
    result = run_here(
        "compare_runs.py", *(named.get(argument, argument) for argument in arguments), "--output-dir", tmp_path / "out"
    )
    assert_refused(result, *parts)
    assert not (tmp_path / "out").exists()
