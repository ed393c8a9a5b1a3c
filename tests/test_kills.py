"""A command that was killed as it gave a file its name ends, when it is run again, as if nothing had been.

Files get their names by one function (`common/files.py`), so these are the moments at which something changes. What a
kill leaves behind is the folder as it is at that moment, so the command runs once, and its folder is copied at each.
"""

import inspect
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.files import PARTIAL_SUFFIX
from tests.command import ROOT, environment, python
from tests.fuzz import Bench
from tests.planted_dynamics import planted_dynamics_run
from tests.planted_training_runs import plant_run
from tests.recorded_features import POLICY, UNITS, sparse_arguments
from tests.test_train import ONE_UPDATE, folders
from tests.tiny_policies import world_options
from tests.trained_world_model import arguments, trained_world_model

COPYING = """
import os, pathlib, runpy, shutil, sys
folder, copies, script = map(pathlib.Path, sys.argv[1:4])
sys.argv = sys.argv[3:]
sys.path.insert(0, os.getcwd())
rename, parent, named = pathlib.Path.replace, os.getpid(), 0
def replace(self, target):
    global named
    if os.getpid() == parent:
        named += 1
        if folder.exists():
            shutil.copytree(folder, copies / str(named), symlinks=True)
        else:
            (copies / str(named)).mkdir()
    return rename(self, target)
if copies.is_dir():
    pathlib.Path.replace = replace
runpy.run_path(str(script), run_name="__main__")
"""
"""Runs a command, and keeps its folder as it is each time before a file gets its name: so a kill would leave it."""

COMPILATION = """
import os, pathlib, subprocess, sys
from reinforcement_learning import compiled_game

sources, cache, moment = sys.argv[1:]
owner, name = {"run": (subprocess, "run"), "": (None, "")}.get(moment[6:], (pathlib.Path, moment[6:]))
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

    name: str
    command: Callable[[Bench, Path], tuple[Any, ...]]  # script and arguments, for a folder in which it writes
    again: tuple[str, ...] = ()  # arguments that are added after a kill
    fresh: bool = False  # whether what the kill left has to be deleted first, as the command says
    adds: bool = False  # whether the command adds to what is there, as a sweep does trials
    resumed: Callable[[Bench, Path], tuple[Any, ...]] | None = None
    """The command for what is left, if it is another one."""


def analyze(bench: Bench, folder: Path) -> tuple[Any, ...]:
    quick = ("--projection", "pca", "--permutations", 99, "--bootstraps", 99)
    return "analyze_activations.py", bench["features_dump"].dump, *quick, "--output-dir", folder


def evaluate(bench: Bench, folder: Path) -> tuple[Any, ...]:
    if not folder.exists():
        shutil.copytree(bench["three_policies"], folder)
    return "evaluate.py", folder, "pvp", "-n", 5, "--num-envs", 1, *world_options(bench["small_world"])


def extract(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return (
        "extract_activations.py", "pve", "-p", "kit", "-n", 5, "--max-steps", 5, "--format", "parquet", "-o", folder,
        "--policies-dir", bench["three_policies"], "--maps-dir", bench["maps"].parent, "--num-envs", 1,
        "--map-seed", bench["small_world"].map_seed,
    )  # fmt: skip


def simulate(bench: Bench, folder: Path) -> tuple[Any, ...]:
    recorded = bench["features_dump"]
    if not folder.exists():
        shutil.copytree(trained_world_model(bench.factory, recorded), folder / "small")
    return "simulate.py", folder / "small", "-n", 40, "--ticks", 4, "--dump", recorded.dump, "-o", folder / "dumps"


def explore(bench: Bench, folder: Path) -> tuple[Any, ...]:
    if not folder.exists():
        shutil.copytree(bench["analysed"].run, folder)
    return "explore.py", folder, "--dump", bench["analysed"].dump


def world_model(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "train_world_model.py", *arguments(bench["features_dump"], folder, "--records", 300)


def train(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "train.py", "-n", "x", *ONE_UPDATE, *folders(folder, bench["small_world"].maps_dir)


def resume_training(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "train.py", "--resume", folder / "runs" / "x", "--no-track"


def convert(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "activation_store/__main__.py", "convert", bench["features_dump"].dump, folder / "new", "--format", "json"


def export(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "activation_store/__main__.py", "export", bench["features_dump"].dump, folder / "one.parquet"


def panel(bench: Bench, folder: Path) -> tuple[Any, ...]:
    recorded = bench["features_dump"]
    if not folder.exists():
        planted_dynamics_run(folder / "run", recorded.dump, UNITS)
    policy = recorded.policies / f"{POLICY}.safetensors"
    return "panel.py", folder / "run", "--dump", recorded.dump, "--policy", policy


def sparse(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "train_sparse_autoencoder.py", *sparse_arguments(bench["features_dump"], folder, "--kind", "topk")


def intervene(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return (
        "intervene.py", "-p", POLICY, "--policies-dir", bench["features_dump"].policies, "--maps-dir",
        bench["maps"].parent, "--edit", "clear", "--episodes", 2, "--controls", 1, "--share", 0.5, "--workers", 1,
        "--max-steps", 16, "-o", folder,
    )  # fmt: skip


def saliency(bench: Bench, folder: Path) -> tuple[Any, ...]:
    recorded, quick = bench["features_dump"], ("--samples", 2, "--ticks", 2, "--lags", 1, "--check-states", 8)
    return "saliency.py", recorded.dump, "--policies-dir", recorded.policies, *quick, "--output-dir", folder


def probes(bench: Bench, folder: Path) -> tuple[Any, ...]:
    quick = ("--targets", "self_food,tick", "--probes", "linear", "--inputs", "lstm_hidden,observation")
    return "train_probes.py", bench["features_dump"].dump, *quick, "--resamples", 100, "--output-dir", folder


def lives(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "agent_life_visualization.py", bench["recording"].dump, "--output", folder


def phases(bench: Bench, folder: Path) -> tuple[Any, ...]:
    quick = ("--min-lifespan", 20, "--permutations", 99, "--bootstraps", 100)
    analysed = bench["analysed"]
    return "cluster_life_phase.py", analysed.dump, "--cluster-dir", analysed.run, *quick, "--output", folder


def semantic(bench: Bench, folder: Path) -> tuple[Any, ...]:
    quick = ("--subsample", 4, "--permutations", 99, "--bootstraps", 99, "--codes", 3, "--steps", 100, "--states", 32)
    return "semantic_clusters.py", "fit", bench["recording"].dump, *quick, "--layer", "action_decoder", "-o", folder


def compare(bench: Bench, folder: Path) -> tuple[Any, ...]:
    runs = folder.with_name("trainings")
    if not runs.exists():
        for name in ("a_1", "a_2", "b_1", "b_2"):
            plant_run(runs, name, int(name[-1]), {"lives/ticks": float}, updates=3)
    return "compare_runs.py", *sorted((runs / "runs").iterdir()), "--output-dir", folder


def film(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "render_replay.py", bench["recording"].replay, "-o", folder / "page.html"


def sweep(bench: Bench, folder: Path) -> tuple[Any, ...]:
    """Two trials, whose settings Optuna chooses; the trainings themselves are processes of their own."""
    folder.mkdir(exist_ok=True)
    space = {"train.learning_rate": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-1}}
    file = folder / "space.yaml"
    file.write_text(
        yaml.safe_dump({"method": "bayes", "metric": {"name": "loss/entropy", "goal": "minimize"}, "parameters": space})
    )
    return (
        "train.py", "-m", "sweep", "-n", "tuned", *ONE_UPDATE, "--sweep-config", file, "--sweeps-dir",
        folder / "sweeps", "--sweep-runs", 2, *folders(folder, bench["small_world"].maps_dir),
    )  # fmt: skip


WRITERS = (
    Writer("analyze", analyze), Writer("evaluate", evaluate), Writer("extract", extract, ("--resume",)),
    Writer("simulate", simulate, fresh=True), Writer("explore", explore), Writer("convert", convert, fresh=True),
    Writer("world model", world_model, ("--resume",)), Writer("train", train, resumed=resume_training),
    Writer("export", export), Writer("panel", panel), Writer("sparse", sparse, ("--resume",)),
    Writer("intervene", intervene, ("--resume",)), Writer("saliency", saliency), Writer("probes", probes),
    Writer("sweep", sweep, adds=True), Writer("lives", lives), Writer("phases", phases), Writer("semantic", semantic),
    Writer("compare", compare), Writer("film", film),
)  # fmt: skip


def run(command: tuple[Any, ...], folder: Path, copies: Path) -> tuple[int, str]:
    """Run a command that writes into `folder`; returns its exit code and what it said last.

    Args:
        copies: folder for copies of `folder`; where it does not exist, none are kept.
    """
    done = python("-c", COPYING, folder, copies, *command, code=None, timeout=600)
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
    killed = "".join(inspect.getsource(writer.command) for writer in WRITERS)
    missing = {path.name for path in ROOT.glob("*.py") if f'"{path.name}"' not in killed}
    assert missing == ELSEWHERE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_a_command_that_was_killed_ends_as_one_that_was_not(
    writer: Writer, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, killed = tmp_path / "written", tmp_path / "killed"
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
        if writer.resumed and any(name.endswith("settings.json") for name in left):
            command = writer.resumed(bench, folder)
        code, printed = run((*command, *(writer.again if left else ())), folder, tmp_path / "none")
        if writer.fresh and code == 2 and "delete it" in printed:
            shutil.rmtree(folder)
            code, printed = run(writer.command(bench, folder), folder, tmp_path / "none")
        assert code == 0, f"after a kill at file {moment} of {named}: {printed}"
        lost, more = whole - contents(folder), contents(folder) - whole
        assert not lost and (writer.adds or not more), f"after a kill at file {moment} of {named}: {lost} {more}"
        assert not any(name.endswith(PARTIAL_SUFFIX) for name in contents(folder))
    with capsys.disabled():
        print(f"\n{writer.name}: killed at {len(moments)} of {named} files, ended well each time")


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
