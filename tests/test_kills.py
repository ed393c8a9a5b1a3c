"""Every command that writes is killed as it gives a file its name: the same command then ends as if nothing had been.

Files get their names by one function (`common/files.py`), so these are the moments at which something changes. The
whole process group is killed, in which workers are.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.files import PARTIAL_SUFFIX
from tests.command import ROOT, environment
from tests.fuzz import Bench
from tests.test_train import ONE_UPDATE, folders
from tests.tiny_policies import world_options
from tests.trained_world_model import arguments, trained_world_model

KILLED = """
import os, pathlib, runpy, signal, sys
left, script = int(sys.argv[1]), sys.argv[2]
sys.argv = sys.argv[2:]
sys.path.insert(0, os.getcwd())
rename, parent = pathlib.Path.replace, os.getpid()
def replace(self, target):
    global left
    if os.getpid() == parent:
        left -= 1
        if left == 0:
            os.killpg(0, 9)
        os.write(9, b".")
    return rename(self, target)
pathlib.Path.replace = replace
runpy.run_path(script, run_name="__main__")
"""


@dataclass(frozen=True)
class Writer:
    """A command that writes.

    Attributes:
        command: script and arguments, for a folder in which it writes.
        again: arguments that are added after a kill.
        resumed: the command for what is left, if it is another one.
        fresh: whether what the kill left has to be deleted first, as the command says.
    """

    name: str
    command: Callable[[Bench, Path], tuple[Any, ...]]
    again: tuple[str, ...] = ()
    fresh: bool = False
    resumed: Callable[[Bench, Path], tuple[Any, ...]] | None = None


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
    return "train_world_model.py", *arguments(bench["features_dump"], folder)


def train(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "train.py", "-n", "x", *ONE_UPDATE, *folders(folder, bench["small_world"].maps_dir)


def resume_training(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "train.py", "--resume", folder / "runs" / "x", "--no-track"


def convert(bench: Bench, folder: Path) -> tuple[Any, ...]:
    return "activation_store/__main__.py", "convert", bench["features_dump"].dump, folder / "new", "--format", "json"


WRITERS = (
    Writer("analyze", analyze), Writer("evaluate", evaluate), Writer("extract", extract, ("--resume",)),
    Writer("simulate", simulate, fresh=True), Writer("explore", explore), Writer("convert", convert, fresh=True),
    Writer("world model", world_model, ("--resume",)), Writer("train", train, resumed=resume_training),
)  # fmt: skip


def run(command: tuple[Any, ...], kill_at: int = 0) -> tuple[int, int, str]:
    """Run a command, or kill it; returns its exit code, the files that it named, and what it said last."""
    reading, writing = os.pipe()
    with subprocess.Popen(
        ["bash", "-c", f'exec 9>&{writing}; exec "$@"', "bash", sys.executable, "-c", KILLED, str(kill_at),
         *map(str, command)],
        cwd=ROOT, env=environment(), start_new_session=True, pass_fds=[writing], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        os.close(writing)
        said = process.communicate(timeout=600)[1]
    with os.fdopen(reading, "rb") as named:
        return process.returncode, len(named.read()), said[-2000:]


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(request, tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_a_command_that_was_killed_ends_as_one_that_was_not(
    writer: Writer, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, named, said = run(writer.command(bench, tmp_path / "whole"))
    assert code == 0, said
    moments = sorted({1, named // 2, named} - {0})
    for moment in moments:
        folder = tmp_path / f"killed_{moment}"
        command = writer.command(bench, folder)
        code, _, said = run(command, kill_at=moment)
        if code == 0 and moment > 1:
            continue  # it named fewer files: the first run had made what they share, such as maps
        assert code == -signal.SIGKILL, said
        begun = any(contents(folder)) if folder.exists() else False
        if writer.resumed and any(name.endswith("settings.json") for name in contents(folder)):
            command = writer.resumed(bench, folder)
        code, _, said = run((*command, *(writer.again if begun else ())))
        if writer.fresh and code == 2 and "delete it" in said:
            shutil.rmtree(folder)
            code, _, said = run(writer.command(bench, folder))
        assert code == 0, f"after a kill at file {moment} of {named}: {said}"
        assert contents(folder) == contents(tmp_path / "whole"), f"after a kill at file {moment} of {named}"
        assert not any(name.endswith(PARTIAL_SUFFIX) for name in contents(folder))
    with capsys.disabled():
        print(f"\n{writer.name}: killed at {len(moments)} of {named} files, ended well each time")
