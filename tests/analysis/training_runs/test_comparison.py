"""Groups, curves, differences and figures of planted training runs whose metrics are known."""

import itertools
import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from analysis.training_runs import run as run_files
from analysis.training_runs.comparison import ComparedRuns, compare, generalisation, learning_curves, notes_on
from analysis.training_runs.curves import Comparison, mean_over_seeds, stretch_means
from analysis.training_runs.run import TITLES, ComparedRun, RunGroup, chosen_metrics, group_runs, read_run
from common.checked_json import CHECKSUM, entry_checksum
from reinforcement_learning.run_settings import RUN_SETTINGS_FILE
from reinforcement_learning.training import run_folder
from tests.analysis.figures.test_figures import texts
from tests.command import assert_refuses
from tests.planted_training_runs import plant_evaluation, plant_run


def flat(value: float) -> dict:
    return {"lives/ticks": lambda steps: value}


def planted_groups(folder: Path, values: dict[str, list[float]]) -> list[RunGroup]:
    paths = []
    for name, levels in values.items():
        paths += [plant_run(folder, f"{name}_{seed}", seed, flat(value)) for seed, value in enumerate(levels, 1)]
    return group_runs([read_run(path) for path in paths], "name")


def compared_in_ticks(groups: list[RunGroup], *, held_out: Path | None = None, **given: Any) -> ComparedRuns:
    """Compare the ticks lived in the later half of trainings, and evaluations."""
    return compare(groups, ["lives/ticks"], 5, 0.5, 0.95, held_out, **given)


def of_metric(compared: ComparedRuns, metric: str = "task_progress on held-out maps") -> Comparison:
    (result,) = (item for item in compared.comparisons if item.metric == metric)
    return result


def test_a_stretch_weighs_updates_and_intervals_over_seeds_are_students() -> None:
    steps = np.array([100.0, 300.0, 400.0])
    run = ComparedRun(Path("run"), {}, steps, {"loss/value": np.array([1.0, 2.0, np.nan])}, "")
    means = stretch_means(run, "loss/value", np.array([0.0, 50.0, 200.0, 400.0]))
    assert means == pytest.approx([1.0, (50 * 1 + 100 * 2) / 150, 2.0])  # the update without a value is passed over
    assert np.isnan(stretch_means(run, "loss/value", np.array([310.0, 390.0]))).all()
    assert np.isnan(stretch_means(run, "no such metric", np.array([0.0, 400.0]))).all()
    values = np.array([[1.0, 5.0, np.nan], [2.0, 7.0, 3.0], [6.0, np.nan, np.nan]])
    mean, low, high, seeds = mean_over_seeds(values, 0.95)
    assert mean == pytest.approx([3.0, 6.0, 3.0]) and seeds.tolist() == [3, 2, 1]
    reach = [4.302653 * math.sqrt(7 / 3), 12.706205 * 1.0]  # t with 2 and 1 degrees of freedom, from tables
    assert (high - mean)[:2] == pytest.approx(reach, rel=1e-6) and (mean - low)[:2] == pytest.approx(reach, rel=1e-6)
    assert np.isnan([low[2], high[2]]).all()


def test_a_mean_over_lives_weighs_each_life_alike() -> None:
    """As if all lives and deaths of the stretch were counted together."""
    lives = [np.full(30, 20.0), np.full(2, 500.0), np.empty(0), np.full(8, 60.0)]  # ticks lived, by update
    ended, died, starved = np.array([[30.0, 2, np.nan, 8], [27, 1, np.nan, 2], [9, 1, 0, 0]])
    metrics = {
        "lives/ended": ended,
        "lives/ticks": np.array([20.0, 500.0, np.nan, 60.0]),
        "lives/died": died / ended,
        "events/EAT_FOOD": np.array([1.0, 9.0, np.nan, 3.0]),
        "death/starved": starved / died,
    }
    run = ComparedRun(Path("run"), {}, np.array([100.0, 200.0, 300.0, 400.0]), metrics, "")
    everything = np.array([0.0, 400.0])
    means = {metric: stretch_means(run, metric, everything)[0] for metric in metrics}
    assert means["lives/ticks"] == pytest.approx(np.concatenate(lives).mean())
    assert means["events/EAT_FOOD"] == pytest.approx((30 * 1 + 2 * 9 + 8 * 3) / 40)
    assert means["lives/died"] == pytest.approx(30 / 40)
    assert means["death/starved"] == pytest.approx(10 / 30)
    assert means["lives/ended"] == pytest.approx(40 / 3)  # of an update in which any ended
    assert np.isnan(stretch_means(run, "lives/ticks", np.array([200.0, 300.0]))).all()
    del metrics["lives/died"]  # how many deaths a share is of is not known then
    assert stretch_means(run, "death/starved", everything)[0] == pytest.approx(np.mean([9 / 27, 1, 0]))


@pytest.mark.parametrize(("seeds", "paired"), [((1, 2, 3), True), ((1, 2, 4), False), ((1, 2, 3, 4), False)])
def test_groups_are_paired_only_where_they_have_the_same_seeds(
    tmp_path: Path, seeds: tuple[int, ...], paired: bool
) -> None:
    """The seed moves the metric far more than the groups differ, but for B it moves it alike."""
    paths = [plant_run(tmp_path, f"A_{seed}", seed, flat(100.0 * seed)) for seed in (1, 2, 3)]
    paths += [plant_run(tmp_path, f"B_{seed}", seed, flat(100.0 * seed + 5 + seed / 10)) for seed in seeds]
    groups = group_runs([read_run(path) for path in reversed(paths)], "name")
    compared = compared_in_ticks(groups)
    (only,) = compared.comparisons
    assert only.paired == paired and (only.difference.p < 0.01) == paired
    differences = next(table for table in compared.tables if table.name == "differences")
    test = dict(zip(differences.heads, differences.rows[0], strict=True))["test"]
    assert test == ("paired t" if paired else "Welch t")


def test_runs_are_aligned_on_agent_steps_and_compared_where_all_have_been(tmp_path: Path) -> None:
    """The metric is the agent-steps themselves: curves and last stretch must be the middle of each stretch."""
    line = {"lives/ticks": float, "loss/value": lambda steps: 1.0}
    paths = []
    for name, seed, updates, more in (("A_1", 1, 40, {}), ("A_2", 2, 20, {}), ("B_1", 1, 30, {"train__gamma": 0.5})):
        paths.append(plant_run(tmp_path, name, seed, line, updates=updates, budget=40_000, **more))
    groups = group_runs([read_run(path) for path in paths], "name")
    compared = compare(groups, ["lives/ticks"], points=4, last=0.1, confidence=0.95, held_out=None)
    end = 20_002.0
    assert [group.end for group in groups] == [end, 30_001.0] and compared.stretch == pytest.approx((0.9 * end, end))
    a, b = compared.curves
    assert a.steps == pytest.approx(end * np.array([0.25, 0.5, 0.75, 1])) and b.steps[-1] == 30_001
    middles = end * np.array([1, 3, 5, 7]) / 8
    assert np.abs(a.mean - middles - 500).max() < 10  # an update tells of the 1,000 agent-steps before its end
    assert a.seeds.tolist() == [2] * 4 and np.isfinite(a.low).all() and np.isnan(b.low).all()
    (only,) = compared.comparisons
    assert abs(only.difference.value) < 10 and math.isnan(only.difference.p)
    output = ("A_2 is unfinished: 20,002 of 40,000", "B has one seed", "train.gamma (A: 0.99, B: 0.5)")
    for part in (*output, "18,002 to 20,002"):
        assert any(part in note for note in compared.notes), part


LEVELS = {"A": [10.0, 11.0, 12.0], "B": [20.5, 20.0, 22.5], "C": [10.5, 11.0, 11.5]}


def test_planted_differences_are_found_and_corrected_all_or_those_against_one_group(tmp_path: Path) -> None:
    groups = planted_groups(tmp_path, LEVELS)
    compared = compared_in_ticks(groups)
    assert [item.mean for item in compared.levels] == pytest.approx([11, 21, 11])
    result = {(item.group, item.other): item for item in compared.comparisons}
    assert result["A", "B"].difference.value == pytest.approx(-10)
    assert result["A", "B"].difference.high < 0 and result["A", "B"].corrected_p < 0.01
    assert result["A", "C"].difference.low < 0 < result["A", "C"].difference.high and result["A", "C"].corrected_p > 0.5
    p = sorted(item.difference.p for item in compared.comparisons)
    corrected = sorted(item.corrected_p for item in compared.comparisons)
    assert corrected[0] == pytest.approx(min(3 * p[0], 1.5 * p[1])) and corrected[2] == pytest.approx(p[2])
    against = compared_in_ticks(groups, against="B").comparisons
    assert [(item.group, item.other) for item in against] == [("A", "B"), ("C", "B")]
    assert all(item.difference.value == pytest.approx(-10) for item in against)
    p, corrected = (sorted(of) for of in zip(*((item.difference.p, item.corrected_p) for item in against), strict=True))
    assert corrected == pytest.approx([min(2 * p[0], p[1]), p[1]])


def test_groups_leave_the_seed_out_or_say_what_sets_them_apart(tmp_path: Path) -> None:
    for place, (names, groups) in enumerate((
        (["A_1", "A_2", "B-s1", "B-s2"], ["A", "B"]), (["A_seed1", "A_seed_2", "boss1", "boss2"], ["A", "boss"]),
        (["lr_3e-4.1", "lr_3e-4.2", "kit_3M"], ["lr_3e-4", "kit_3M"]),
    )):  # fmt: skip
        folder = tmp_path / str(place)
        runs = [read_run(plant_run(folder, name, seed, flat(1))) for seed, name in enumerate(names)]
        assert [group.name for group in group_runs(runs, "name")] == groups
    paths = [
        plant_run(tmp_path, "x_1", 1, flat(1), train__gamma=0.9),
        plant_run(tmp_path, "y_5", 2, flat(1), train__gamma=0.9, env__maps_dir="elsewhere", train__device="cpu"),
        plant_run(tmp_path, "z", 1, flat(1), train__gamma=0.5, agent="hybrid"),
    ]
    found = group_runs([read_run(path) for path in paths], "settings")
    assert [group.name for group in found] == ["takeru, gamma=0.9", "hybrid, gamma=0.5"]
    assert [len(group.runs) for group in found] == [2, 1]


def test_earlier_runs_were_paid_otherwise_and_lack_later_settings(
    tmp_path: Path,
) -> None:
    folders = [plant_run(tmp_path, f"{name}_1", 1, flat(1)) for name in ("A", "B")]
    settings = folders[0] / "settings.json"
    content = json.loads(settings.read_text())
    del content["settings"]["reward"]["as_published"]
    settings.write_text(json.dumps(content))
    groups = group_runs([read_run(folder) for folder in folders], "name")
    notes = " ".join(notes_on(groups, ["lives/total_reward"], (0, 1)))
    assert "The groups differ in reward.as_published (A: False, B: True)" in notes
    assert "rewards are defined differently" in notes
    folder = tmp_path / "later"
    now, before = (read_run(plant_run(folder, f"A_{seed}", seed, flat(1))) for seed in (1, 2))
    other = read_run(plant_run(folder, "B_1", 1, flat(1), train__gamma=0.5))
    lacking = {name: value for name, value in before.settings.items() if not name.startswith("semantic.")}
    before = replace(before, settings=lacking)
    groups = group_runs([now, before, other], "name")
    assert [len(group.runs) for group in groups] == [2, 1]
    notes = " ".join(notes_on(groups, ["lives/ticks"], (0, 1)))
    assert "The groups differ in train.gamma (A: 0.99, B: 0.5)" in notes and "differ in semantic" not in notes
    assert "predate the settings semantic.codes, " in notes and "and others, which are not" in notes


def test_a_run_without_a_later_setting_does_not_hide_what_others_of_its_group_say(tmp_path: Path) -> None:
    """Two that differ are no repetitions, and groups of which one differs are not the same."""
    without, *others = (
        read_run(plant_run(tmp_path, f"A_{seed}", seed, flat(1), policy__network=network))
        for seed, network in ((1, "published"), (2, "earlier"), (3, "published"))
    )
    settings = {name: value for name, value in without.settings.items() if name != "policy.network"}
    without = replace(without, settings=settings)
    assert_refuses(r"A_2 and .*A_3 are in one group, 'A', but differ in policy\.network", group_runs,
                   [without, *others], "name")  # fmt: skip
    found = group_runs([without, *others], "settings")
    assert [[run.name for run in group.runs] for group in found] == [["A_1", "A_2"], ["A_3"]]
    assert [group.name for group in found] == ["network=earlier", "network=published"]
    other = read_run(plant_run(tmp_path, "B_1", 1, flat(1), policy__network="published"))
    notes = " ".join(notes_on(group_runs([without, others[0], other], "name"), ["lives/ticks"], (0, 1)))
    assert "The groups differ in policy.network (A: earlier, B: published)" in notes
    assert "have the same settings" not in notes


def test_which_checkpoints_are_kept_matters_to_runs_that_play_against_them(tmp_path: Path) -> None:
    for kernel, groups in (("0", 1), ("0,0,0,1", 2)):
        paths = [
            plant_run(tmp_path / kernel, f"x_{seed}", seed, flat(1), train__num_checkpoints=kept,
                      train__pool_kernel=kernel)
            for seed, kept in ((1, 4), (2, 8))
        ]  # fmt: skip
        assert len(group_runs([read_run(path) for path in paths], "settings")) == groups


def test_groups_that_are_no_repetitions_and_runs_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    first = plant_run(tmp_path, "A_1", 1, flat(1))
    other_settings = plant_run(tmp_path, "A_2", 2, flat(1), train__learning_rate=0.5)
    same_seed = plant_run(tmp_path, "A_3", 1, flat(1))
    for folders, parts in (
        ((first, other_settings), ("A_1", "A_2", "train.learning_rate (0.00015 and 0.5)", "--group-by settings")),
        ((first, same_seed), ("A_1", "A_3", "train.seed 1", "different seeds")),
        ((first,), ("one run only", "curves.png")),
        ((first, first), ("given twice",)),
    ):
        assert_refuses(parts, group_runs, [read_run(folder) for folder in folders], "name")
    whole = first
    metrics = (whole / "metrics.jsonl").read_text()
    for damage, part in (
        ('{"agent_steps": 1\n', "not JSON"), ("[1]\n", "not a JSON object"), ('{"update": 1}\n', "lacks 'agent_steps'"),
        (metrics + metrics, "does not grow"), ("", "no update yet"),
    ):  # fmt: skip
        (whole / "metrics.jsonl").write_text(damage)
        assert_refuses(part, read_run, whole)
    (whole / "metrics.jsonl").write_text(metrics + '{"agent_steps": 99')  # a kill cut the line short
    assert len(read_run(whole).steps) == 10
    (whole / "metrics.jsonl").unlink()
    assert_refuses(r"has no metrics\.jsonl", read_run, whole)
    assert_refuses("does not exist", read_run, tmp_path / "nowhere")
    assert_refuses("not the folder of a training run", read_run, tmp_path)


def test_runs_may_share_held_out_worlds_or_have_a_seed_for_each_pair(
    tmp_path: Path,
) -> None:
    """Seen maps are played with a seed for each run, unseen ones with one for all."""
    (group,) = planted_groups(tmp_path, {"A": [1.0, 1.0, 1.0]})
    for run in group.runs:
        plant_evaluation(run.folder, 10_000 + run.seed, 0.4)
        plant_evaluation(run.folder, 10_000 + run.seed, 0.6, seed=10 + run.seed, map_seed=0)
    compared = compared_in_ticks([group])
    gap = next(item for item in compared.gaps if item.measure == "task_progress")
    assert 0 < gap.low[0] <= 0.2 <= gap.high[0] and gap.seeds.tolist() == [3]
    groups = planted_groups(tmp_path / "pairs", {"A": [1.0, 1.0, 1.0], "B": [1.0, 1.0, 1.0]})
    for group, skill in zip(groups, (0.4, 0.6), strict=True):
        for run in group.runs:
            plant_evaluation(run.folder, 10_000 + run.seed, skill, seed=run.seed)
    result = of_metric(compared_in_ticks(groups))
    assert (result.paired, result.worlds) == (True, "own") and result.difference.high < 0


def test_checkpoints_are_scored_on_maps_seen_and_unseen(tmp_path: Path) -> None:
    """Planted: the policies of A are worse on unseen maps, by 0.2 in task progress after 10,000 agent-steps."""
    groups = planted_groups(tmp_path, {"A": [1.0, 1.0, 1.0]})
    for run in groups[0].runs:
        for steps, unseen, seen in ((0, 0.1, 0.1), (10_000 + run.seed, 0.4, 0.6)):
            plant_evaluation(run.folder, steps, unseen)
            plant_evaluation(run.folder, steps, seen, seed=2, map_seed=0)
    compared = compared_in_ticks(groups)
    result = {(item.measure, item.maps): item for item in compared.evaluations}
    progress = result["task_progress", "held-out"]
    assert progress.steps == pytest.approx([0, 10_002]) and progress.runs.shape == (3, 2)
    assert progress.mean == pytest.approx([0.1, 0.4], abs=0.02) and progress.seeds.tolist() == [3, 3]
    assert result["weighted_score", "training"].mean == pytest.approx([10, 60], abs=5)
    gap = next(item for item in compared.gaps if item.measure == "task_progress")
    assert gap.low[1] <= 0.2 <= gap.high[1] and gap.low[1] > 0 and abs(gap.mean[0]) < 0.02
    assert any("differ in: resilient_population" in note for note in compared.notes)

    elsewhere = tmp_path / "results"
    elsewhere.mkdir()
    (elsewhere / "eval_pve_1.json").write_bytes((groups[0].runs[0].folder / "checkpoints/eval_pve_1.json").read_bytes())
    only = compared_in_ticks(groups, held_out=elsewhere).evaluations
    assert {item.maps for item in only} == {"held-out"} and all(item.seeds.tolist() == [1, 1] for item in only)
    for run in groups[0].runs:
        plant_evaluation(run.folder, 5_000 + run.seed, 0.3)  # on unseen maps alone: no gap there, and the others stay
    again = next(item for item in compared_in_ticks(groups).gaps if item.measure == "task_progress")
    assert again.steps.tolist() == gap.steps.tolist() and again.runs.tolist() == gap.runs.tolist()
    assert (again.low.tolist(), again.seeds.tolist()) == (gap.low.tolist(), gap.seeds.tolist())
    (
        groups[0].runs[2].folder / "checkpoints/eval_pve_2.json"
    ).unlink()  # not on seen maps: the gap is that of the others
    fewer = next(item for item in compared_in_ticks(groups).gaps if item.measure == "task_progress")
    assert fewer.steps == pytest.approx([0, 10_001.5]) and fewer.seeds.tolist() == [2, 2]
    assert fewer.runs[:2].tolist() == gap.runs[:2].tolist() and np.isnan(fewer.runs[2]).all()
    for checkpoint in (groups[0].runs[0].folder / "checkpoints").glob("*.safetensors"):
        checkpoint.write_bytes(b"others")
    assert_refuses("no pve results of a checkpoint of these runs", compared_in_ticks, groups, held_out=elsewhere)


def test_checkpoints_that_played_the_same_worlds_have_their_luck_in_common(tmp_path: Path) -> None:
    """Runs hardly differ, but worlds do: an interval over runs alone is far too narrow. Worlds add up to scores."""
    groups = planted_groups(tmp_path, {"A": [1.0, 1.0, 1.0]})
    for run in groups[0].runs:
        for seed in (1, 2):
            plant_evaluation(run.folder, 10_000, 0.5, seed=seed)
            content = orjson.loads((file := run.folder / f"checkpoints/eval_pve_{seed}.json").read_bytes())
            (name,) = content
            results = {key: value for key, value in content[name].items() if key != CHECKSUM}
            luck = 100.0 + 7 * seed + run.seed / 100
            results["length"] = [luck + 40 * episode for episode in results["episode/length"]]
            file.write_bytes(orjson.dumps({name: results | {CHECKSUM: entry_checksum(name, results)}}))
    ticks, progress, score = compared_in_ticks(groups).evaluations
    assert ticks.runs[:, 0].std() < 0.1 and ticks.high[0] - ticks.mean[0] > 20
    for curve in (ticks, progress, score):
        worlds = curve.by_world[0]
        assert [len(world) for world in worlds] == [8, 8, 8] and len(set().union(*worlds)) == 8
        assert [np.mean(list(world.values())) for world in worlds] == pytest.approx(curve.runs[:, 0])


def test_an_untrained_checkpoint_that_two_groups_share_was_played_in_each_ones_own_worlds(tmp_path: Path) -> None:
    """Three runs and two: what the other group's runs played is known of two of the three alone."""
    groups = planted_groups(tmp_path, {"A": [1.0, 1.0, 1.0], "B": [1.0, 1.0]})
    for seed, group in enumerate(groups, 1):
        for run in group.runs:
            plant_evaluation(run.folder, 0, 0.1, seed=seed)
    for curve in compared_in_ticks(groups).evaluations:
        seed = 1 if curve.group == "A" else 2
        assert all(f"seed {seed}," in world for played in curve.by_world[0] for world in played)


def test_deleted_checkpoints_are_known_by_their_listed_hashes(tmp_path: Path) -> None:
    groups = planted_groups(tmp_path, {"A": [1.0, 1.0]})
    for run in groups[0].runs:
        plant_evaluation(run.folder, 10_000, 0.4)
    checkpoints = [run.folder / "checkpoints" for run in groups[0].runs]
    before = compared_in_ticks(groups).evaluations
    for folder in checkpoints:
        (kept,) = folder.glob("*.safetensors")
        with (folder / "SHA256SUMS").open("w") as sums:
            subprocess.run(["sha256sum", kept.name], cwd=folder, stdout=sums, check=True)
    both = compared_in_ticks(groups).evaluations
    for folder in checkpoints:
        next(folder.glob("*.safetensors")).unlink()
    listed = compared_in_ticks(groups).evaluations
    for case in (both, listed):
        assert [item.runs.tolist() for item in case] == [item.runs.tolist() for item in before] != []

    damaged = checkpoints[1] / "SHA256SUMS"
    damaged.write_text(damaged.read_text() + "0123  A_2_0000010000.safetensors\n")
    message = "A_2/checkpoints/SHA256SUMS is damaged: line 2 is not a hash and a name"
    assert_refuses(message, compared_in_ticks, groups)
    damaged.write_bytes(b"\xff")
    assert_refuses("SHA256SUMS cannot be read as text", compared_in_ticks, groups)


def test_checkpoints_that_share_worlds_are_compared_where_all_of_them_met(tmp_path: Path) -> None:
    """Planted: B does better than A by 0.3 in shared worlds, and worse alone."""
    groups = planted_groups(tmp_path, {"A": [1.0, 1.0], "B": [1.0, 1.0]})
    shared = tmp_path / "results"
    shared.mkdir()
    for group, alone, together in zip(groups, (0.7, 0.2), (0.3, 0.6), strict=True):
        for run in group.runs:
            plant_evaluation(run.folder, 10_000, alone, into=shared)
            for seed in (1, 2):
                plant_evaluation(run.folder, 10_000, together, seed=seed, mode="pvp", into=shared)
    compared = compared_in_ticks(groups, held_out=shared, mode="pvp")
    progress = of_metric(compared)
    assert progress.paired and progress.difference.value == pytest.approx(-0.3, abs=0.03)
    assert set(compared.evaluation_files) == {str(shared / f"eval_pvp_{seed}.json") for seed in (1, 2)}
    assert any("share worlds" in note for note in compared.notes)

    plant_evaluation(groups[1].runs[1].folder, 10_000, 0.6, seed=3, mode="pvp", into=shared)
    message = r"A_1_.* and B_2_.* were not played in the same shared worlds \(.*_3"
    assert_refuses(message, compared_in_ticks, groups, held_out=shared, mode="pvp")


def test_evaluations_that_do_not_belong_together_or_are_damaged_are_refused(tmp_path: Path) -> None:
    original = {"protocol": "original", "map_seed": 0, "flip_terrain": True}
    for place, (first, second, parts) in enumerate((
        ({}, {"map_seed": 0, "num_maps": 16}, r"neither those of the training nor unseen.*--env\.num-maps 256"),
        ({}, {"num_agents": 7}, ("different rules: num_agents is 128 and 7", "A_1", "B_1")),
        (original, {"map_seed": 2}, "played by the protocol 'original' and .* by 'toolkit'"),
    )):  # fmt: skip
        groups = planted_groups(tmp_path / str(place), {"A": [1.0], "B": [2.0]})
        folders = [group.runs[0].folder for group in groups]
        plant_evaluation(folders[0], 10_000, 0.5, **first)  # type: ignore[arg-type]
        assert {item.maps for item in compared_in_ticks(groups).evaluations} == {"held-out"}
        plant_evaluation(folders[1], 10_000, 0.5, **second)  # type: ignore[arg-type]
        assert_refuses(parts, compared_in_ticks, groups)
    results = folders[1] / "checkpoints" / "eval_pve_1.json"
    results.write_bytes(results.read_bytes().replace(b'"num_agents":', b'"num_agents":1'))
    assert_refuses("do not match their checksum", compared_in_ticks, groups)


def test_final_scores_are_those_of_the_last_checkpoint_that_every_run_has(tmp_path: Path) -> None:
    groups = planted_groups(tmp_path, {"A": [1.0, 1.0], "B": [2.0, 2.0]})
    for skill, group in zip((0.2, 0.6), groups, strict=True):
        for run in group.runs:
            plant_evaluation(run.folder, 5_000 + run.seed, skill)
    plant_evaluation(groups[0].runs[0].folder, 10_000, 0.9)  # the others were not evaluated there
    plant_evaluation(groups[1].runs[0].folder, 5_600, 0.9)  # nor there, an update later
    for run in groups[0].runs:
        plant_evaluation(run.folder, 5_700 + run.seed, 0.2)
    compared = compared_in_ticks(groups)
    scores = {level.group: level for level in compared.levels if level.metric == "task_progress on held-out maps"}
    assert [scores[name].agent_steps for name in "AB"] == [5_701.5, 5_001.5]
    assert [scores[name].training_seeds for name in "AB"] == [(1, 2), (1, 2)]
    assert [scores[name].mean for name in "AB"] == pytest.approx([0.2, 0.6], abs=0.02)


def test_checkpoints_after_every_update_are_put_together_with_the_nearest(tmp_path: Path) -> None:
    """One run was evaluated after two updates, the other after the later one alone, which ended a tick earlier."""
    (group,) = planted_groups(tmp_path, {"A": [1.0, 1.0]})
    often, once = group.runs
    for run, steps, skill in ((often, 9_002, 0.2), (often, 10_002, 0.6), (once, 10_001, 0.6)):
        plant_evaluation(run.folder, steps, skill)
    progress = next(curve for curve in compared_in_ticks([group]).evaluations if curve.measure == "task_progress")
    assert progress.steps.tolist() == [9_002, 10_001.5] and progress.seeds.tolist() == [1, 2]
    assert progress.mean == pytest.approx([0.2, 0.6], abs=0.03)


def test_files_are_called_as_training_calls_them() -> None:
    """The rooms do not import each other, so both name the files of a run."""
    assert run_files.SETTINGS_FILE == RUN_SETTINGS_FILE
    assert run_files.METRICS_FILE == run_folder.METRICS_FILE
    assert run_files.CHECKPOINTS_FOLDER == run_folder.CHECKPOINTS_FOLDER


LONG = "a_policy_with_a_rather_long_name_and_$dollars$_200M_and_more_of_it"


@pytest.mark.parametrize(
    ("groups", "seeds", "updates"), [(1, 3, 12), (2, 1, 1), pytest.param(9, 2, 12, marks=pytest.mark.slow)]
)
def test_curves_of_groups(tmp_path: Path, groups: int, seeds: int, updates: int) -> None:
    names = [LONG, *(f"group {number}x" for number in range(1, groups))]
    drawn = [*TITLES, "events/EAT_FOOD"]
    metrics = {name: (lambda steps, place=place: place + steps / 1000) for place, name in enumerate(drawn)}
    runs_of = itertools.product(names, range(1, seeds + 1))
    paths = [plant_run(tmp_path, f"{name}_{seed}", seed, metrics, updates=updates) for name, seed in runs_of]
    for path in paths:
        plant_evaluation(path, 0, 0.2)
    runs = [read_run(path) for path in paths]
    compared = compare(group_runs(runs, "name"), [*chosen_metrics(runs, ()), "events/EAT_FOOD"], 50, 0.1, 0.9, None)
    figures = learning_curves(compared), generalisation(compared)
    curves, scores = ([text.replace("\n", " ") for text in texts(figure)] for figure in figures)
    assert any("90% Student's t intervals" in text for text in curves)
    assert any("events/EAT_FOOD" in text for text in curves) and any("Ticks lived" in text for text in curves)
    output = "1 seed, no interval" if seeds == 1 else f"{seeds} seeds"
    assert sum(output in text for text in curves) == groups
    assert "evaluated on held-out maps" in scores and "evaluated on the training's maps" not in scores


def test_a_single_checkpoint_has_its_interval(tmp_path: Path) -> None:
    groups = planted_groups(tmp_path, {"A": [1.0, 2.0, 3.0], "B": [1.0, 2.0, 3.0]})
    for place, run in enumerate(run for group in groups for run in group.runs):
        plant_evaluation(run.folder, 10_000, 0.3 + place / 30)
    compared = compared_in_ticks(groups)
    ticks = next(axes for axes in generalisation(compared).axes if axes.get_title() == "Mean ticks lived")
    (first, *_), (second, *_) = (bars.lines[2] for bars in ticks.containers)
    drawn = [segment for bars in (first, second) for segment in bars.get_segments()]
    expected = [(item.low[0], item.high[0]) for item in compared.evaluations if item.measure == "ticks"]
    assert [tuple(segment[:, 1]) for segment in drawn] == [pytest.approx(ends) for ends in expected]
    assert 0 < drawn[1][0, 0] - drawn[0][0, 0] < 0.02 * 10_000
