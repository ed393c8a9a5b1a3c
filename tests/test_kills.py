"""A command that was killed as it gave a file its name ends, when it is run again, as if nothing had been.

Files get their names by one function (`common/files.py`), so these are the moments at which something changes. What a
kill leaves behind is the folder as it is at that moment, so the command runs once, and its folder is copied at each.
"""

import itertools
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from common.files import PARTIAL_SUFFIX
from tests.command import ROOT, environment, python, run_here
from tests.fuzz import Bench
from tests.planted_dynamics import planted_dynamics_run
from tests.planted_training_runs import plant_run
from tests.recorded_features import POLICY, UNITS, sparse_arguments
from tests.test_train import ONE_UPDATE, folders
from tests.tiny_policies import world_options
from tests.trained_world_model import arguments, trained_world_model

COMPILATION = """
import os, pathlib, subprocess, sys
from reinforcement_learning import compiled_game

sources, cache, moment = sys.argv[1:]
name = moment.rpartition(" ")[2]
owner = {"run": subprocess, "": None}.get(name, pathlib.Path)
def kill(*arguments, **options):
    if moment.startswith("after"):
        act(*arguments, **options)
    os.killpg(0, 9)
if owner:
    act = getattr(owner, name)
    setattr(owner, name, kill)
compiled_game._SOURCES = pathlib.Path(sources)
print(compiled_game._ensure(pathlib.Path(cache), retry=False))
"""
"""Compiles other sources than the game's, into another cache, and is killed as the compiler runs or a name is given."""


@dataclass(frozen=True)
class Writer:
    """A command that writes."""

    script: str
    options: Callable[[Bench, Path], Sequence[object]]  # for a folder in which it writes
    again: tuple[str, ...] = ()  # options that are added after a kill
    fresh: bool = False  # whether what the kill left has to be deleted first, as the command says
    adds: bool = False  # whether the command adds to what is there, as a sweep does trials
    resumed: Callable[[Bench, Path], Sequence[object]] | None = None  # options for what is left, if they are others

    def command(self, bench: Bench, folder: Path) -> tuple[object, ...]:
        return self.script, *self.options(bench, folder)


def copied(source: Path, folder: Path) -> Path:
    return folder if folder.exists() else shutil.copytree(source, folder)


def compare(bench: Bench, folder: Path) -> Sequence[object]:
    runs = folder.with_name("trainings")
    if not runs.exists():
        for name in ("a_1", "a_2", "b_1", "b_2"):
            plant_run(runs, name, int(name[-1]), {"lives/ticks": float}, updates=3)
    return *sorted((runs / "runs").iterdir()), "--output-dir", folder


def panel(bench: Bench, folder: Path) -> Sequence[object]:
    recorded = bench["features_dump"]
    if not folder.exists():
        planted_dynamics_run(folder / "run", recorded.dump, UNITS)
    return folder / "run", "--dump", recorded.dump, "--policy", recorded.policies / f"{POLICY}.safetensors"


def sweep(bench: Bench, folder: Path) -> Sequence[object]:
    """A trial, and another one after a kill, whose settings Optuna chooses; trainings are processes of their own."""
    folder.mkdir(exist_ok=True)
    space = {"train.learning_rate": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-1}}
    file = folder / "space.yaml"
    file.write_text(
        yaml.safe_dump({"method": "bayes", "metric": {"name": "loss/entropy", "goal": "minimize"}, "parameters": space})
    )
    return (
        "-m", "sweep", "-n", "tuned", *ONE_UPDATE, "--sweep-config", file, "--sweeps-dir",
        folder / "sweeps", "--sweep-runs", 1, *folders(folder, bench["small_world"].maps_dir),
    )  # fmt: skip


STORE = "activation_store/__main__.py"
LESS = ("--permutations", 99, "--bootstraps", 99)
WRITERS = {
    "analyze": Writer("analyze_activations.py", lambda bench, folder: (
        bench["features_dump"].dump, "--projection", "pca", *LESS, "--output-dir", folder,
    )),
    "evaluate": Writer("evaluate.py", lambda bench, folder: (
        copied(bench["three_policies"], folder), "pvp", "-n", 5, "--num-envs", 1, *world_options(bench["small_world"]),
    )),
    "extract": Writer("extract_activations.py", lambda bench, folder: (
        "pve", "-p", "kit", "-n", 5, "--max-steps", 5, "--format", "parquet", "-o", folder, "--policies-dir",
        bench["three_policies"], "--maps-dir", bench["maps"].parent, "--num-envs", 1, "--map-seed",
        bench["small_world"].map_seed,
    ), ("--resume",)),
    "simulate": Writer("simulate.py", lambda bench, folder: (
        copied(trained_world_model(bench.factory, bench["features_dump"]), folder / "small"), "-n", 40, "--ticks", 4,
        "--dump", bench["features_dump"].dump, "-o", folder / "dumps",
    ), fresh=True),
    "explore": Writer("explore.py", lambda bench, folder: (
        copied(bench["analysed"].run, folder), "--dump", bench["analysed"].dump,
    )),
    "convert": Writer(STORE, lambda bench, folder: (
        "convert", bench["features_dump"].dump, folder / "new", "--format", "json",
    ), fresh=True),
    "world model": Writer("train_world_model.py", lambda bench, folder: (
        arguments(bench["features_dump"], folder, "--records", 300)
    ), ("--resume",)),
    "train": Writer(
        "train.py", lambda bench, folder: ("-n", "x", *ONE_UPDATE, *folders(folder, bench["small_world"].maps_dir)),
        resumed=lambda bench, folder: ("--resume", folder / "runs" / "x", "--no-track"),
    ),
    "export": Writer(STORE, lambda bench, folder: ("export", bench["features_dump"].dump, folder / "one.parquet")),
    "panel": Writer("panel.py", panel),
    "sparse": Writer("train_sparse_autoencoder.py", lambda bench, folder: (
        sparse_arguments(bench["features_dump"], folder, "--kind", "topk")
    ), ("--resume",)),
    "intervene": Writer("intervene.py", lambda bench, folder: (
        "-p", POLICY, "--policies-dir", bench["features_dump"].policies, "--maps-dir", bench["maps"].parent, "--edit",
        "clear", "--episodes", 2, "--controls", 1, "--share", 0.5, "--workers", 1, "--max-steps", 16, "-o", folder,
    ), ("--resume",)),
    "saliency": Writer("saliency.py", lambda bench, folder: (
        bench["features_dump"].dump, "--policies-dir", bench["features_dump"].policies, "--samples", 2, "--ticks", 2,
        "--lags", 1, "--check-states", 8, "--output-dir", folder,
    )),
    "probes": Writer("train_probes.py", lambda bench, folder: (
        bench["features_dump"].dump, "--targets", "self_food,tick", "--probes", "linear", "--inputs",
        "lstm_hidden,observation", "--resamples", 100, "--output-dir", folder,
    )),
    "sweep": Writer("train.py", sweep, adds=True),
    "lives": Writer("agent_life_visualization.py", lambda bench, folder: (
        bench["recording"].dump, "--output", folder,
    )),
    "phases": Writer("cluster_life_phase.py", lambda bench, folder: (
        bench["analysed"].dump, "--cluster-dir", bench["analysed"].run, "--min-lifespan", 20, "--permutations", 99,
        "--bootstraps", 100, "--output", folder,
    )),
    "semantic": Writer("semantic_clusters.py", lambda bench, folder: (
        "fit", bench["recording"].dump, "--subsample", 4, *LESS, "--codes", 3, "--steps", 100, "--states", 32,
        "--layer", "action_decoder", "-o", folder,
    )),
    "compare": Writer("compare_runs.py", compare),
    "film": Writer("render_replay.py", lambda bench, folder: (
        bench["recording"].replay, "-o", folder / "page.html",
    )),
}  # fmt: skip


def run(command: tuple[object, ...], folder: Path, copies: Path | None = None) -> tuple[int, str]:
    """Run a command that writes into `folder`, in this process; returns its exit code and what it said last.

    Args:
        copies: an empty folder for `folder` as it is each time before a file gets its name: so a kill would leave it.
    """
    rename, named = Path.replace, itertools.count(1)

    def replace(self: Path, target: Path) -> Path:
        assert copies
        copy = copies / str(next(named))
        if folder.exists():
            shutil.copytree(folder, copy, symlinks=True)
        else:
            copy.mkdir()
        return rename(self, target)

    with pytest.MonkeyPatch.context() as patch:
        if copies:
            patch.setattr(Path, "replace", replace)
        done = run_here(*map(str, command))
    return done.returncode, done.stderr[-2000:]


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


ELSEWHERE = {
    "share.py": "the hub's client writes; tests/test_share.py",
    "study.py": "its stages are these commands; tests/test_study.py stops it",
    "import_policy.py": "writes one file, as export does",
    "analyze_dynamics.py": "keeps and continues its parts as saliency.py does; tests/test_analyze_dynamics.py stops it",
}
"""Scripts that are not killed here, and why."""


def test_every_script_is_killed() -> None:
    killed = {writer.script for writer in WRITERS.values()}
    assert {path.name for path in ROOT.glob("*.py")} - killed == ELSEWHERE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_command_that_was_killed_ends_as_one_that_was_not(
    name: str, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer, folder, killed = WRITERS[name], tmp_path / "written", tmp_path / "killed"
    killed.mkdir()
    code, printed = run(writer.command(bench, folder), folder, killed)
    assert code == 0, printed
    whole, named = contents(folder), len(list(killed.iterdir()))
    goes_on = writer.again or writer.fresh or writer.adds or writer.resumed
    # A command that starts over has most to overwrite after a late kill; one that goes on may stumble over little.
    moments = sorted({1 if goes_on else named, named // 2, named} - {0})
    for moment in moments:
        shutil.rmtree(folder)
        left = contents(killed / str(moment))
        if left:
            (killed / str(moment)).rename(folder)
        command = writer.command(bench, folder)
        if writer.resumed and any(path.endswith("settings.json") for path in left):
            command = (writer.script, *writer.resumed(bench, folder))
        code, printed = run((*command, *(writer.again if left else ())), folder)
        if writer.fresh and code == 2 and "delete it" in printed:
            shutil.rmtree(folder)
            code, printed = run(writer.command(bench, folder), folder)
        assert code == 0, f"after a kill at file {moment} of {named}: {printed}"
        lost, more = whole - contents(folder), contents(folder) - whole
        assert not lost and (writer.adds or not more), f"after a kill at file {moment} of {named}: {lost} {more}"
        assert not any(path.endswith(PARTIAL_SUFFIX) for path in contents(folder))
    with capsys.disabled():
        print(f"\n{name}: killed at {len(moments)} of {named} files, ended well each time")


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["after run", "before replace", "before rename", "after rename"])
def test_a_compilation_of_the_game_that_was_killed_is_made_anew(moment: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    sources, cache = tmp_path / "sources", tmp_path / "cache"
    sources.mkdir()
    (sources / "short.py").write_text("def double(number):\n    return 2 * number\n")
    (sources / "short.pxd").write_text("cpdef int double(int number)\n")

    def compiled(moment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", COMPILATION, *map(str, (sources, cache, moment))]
        return subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, start_new_session=True
        )

    assert compiled(moment).returncode == -signal.SIGKILL
    done = compiled("")
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    if moment == "after rename":  # nobody compiles then, and whoever does next removes the rest
        shutil.rmtree(folder)
        assert compiled("").stdout == done.stdout
    assert {path.name for path in cache.iterdir()} == {folder.name, "lock"}
    assert {path.suffix for path in folder.iterdir()} == {".so", ""} and "damaged" not in done.stderr
    loaded = python("-c", "import short; print(short.double(21), short.__file__)", PYTHONPATH=str(folder))
    assert loaded.stdout.startswith(f"42 {folder}")
