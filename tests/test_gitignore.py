"""Output in the default folders is ignored by git; shipped files are not."""

import subprocess

import pytest

from tests.command import ROOT

WRITTEN_BY_DEFAULT = (
    "maps/128x128_256_0123456789ab/map1/map.npy",
    "runs/NAME/settings.json",
    "wandb/run-1/files/config.yaml",
    "policies/NAME.safetensors",
    "my_policies/NAME.safetensors",
    "policies/seed_1_NAME.replay.lzma",
    "policies/seed_1_NAME.gif",
    "policies/eval_pvp_1.json",
    "policies/.eval_pvp_1.episodes.jsonl",
    "policies/score_summary.tsv",
    "activation_data/NAME/activations.json",
    "analysis_results/NAME-sub10-c15/summary.txt",
    "agent_plots/NAME-p75/lives.json",
    "sweeps/NAME/trials.tsv",
    "task_embeddings/0123456789ab.safetensors",
    "demo/policies/demo_start_kit.safetensors",
)


def ignored(*paths: str) -> set[str]:
    command = ["git", "check-ignore", "--no-index", *paths]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines())


def test_default_results_are_ignored_and_nothing_that_is_shipped_is() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this copy of the project is not in git")
    tracked = done.stdout.splitlines()
    assert set(WRITTEN_BY_DEFAULT) - ignored(*WRITTEN_BY_DEFAULT) == set()
    assert "policies/results/eval_pvp_1.json" in tracked
    assert ignored(*tracked) == set()


def test_every_default_folder_is_listed_here() -> None:
    """A script with another default folder must be listed above."""
    from dataclasses import fields
    from pathlib import Path

    import agent_life_visualization
    import cluster_life_phase
    import compare_runs
    import evaluate
    import explore
    import extract_activations
    import import_policy
    import render_replay
    import train
    from analysis.clusters.settings import AnalysisSettings
    from analysis.probes.settings import ProbeSettings
    from reinforcement_learning.settings import EnvironmentSettings, TaskSettings

    of_scripts = [
        item.Arguments
        for item in (
            agent_life_visualization, cluster_life_phase, compare_runs, evaluate, explore, extract_activations,
            import_policy, render_replay, train,
        )
    ]  # fmt: skip
    kinds = [*of_scripts, AnalysisSettings, ProbeSettings, EnvironmentSettings, TaskSettings]
    defaults = {field.default for kind in kinds for field in fields(kind) if isinstance(field.default, Path)}
    folders = {str(item) for item in defaults} - {"config.yaml", "sweep.yaml"}
    assert folders == {item.split("/")[0] for item in WRITTEN_BY_DEFAULT} - {"demo", "wandb"}
