"""The import rule of the house: three floors, no circle, no arrow upwards; and no pickle anywhere."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "user_error": set(),
    "activation_store": {"user_error"},
    "agent_zoo": {"user_error"},
    "analysis": {"user_error", "activation_store"},
    "reinforcement_learning": {"user_error", "activation_store", "agent_zoo"},
}
SCRIPTS_IN_ROOMS = {
    "analysis/proc_eval_result.py": {"command_line"},
    "activation_store/__main__.py": {"command_line"},
}
"""A stage script that lives in its room may do what scripts do, and so import what stands beside them."""
MAY_TRAIN = {f"analysis/probes/{name}.py": {"torch"} for name in ("mlp", "logistic", "logistic_solver")}
"""Probes are networks of their own; whoever imports this file does so only where one is trained."""
ROOMS = set(MAY_IMPORT)
SCRIPTS = {path.stem for path in ROOT.glob("*.py")} - ROOMS
OF_THE_GAME = {"nmmo", "pufferlib", "torch", "pettingzoo", "gymnasium"}
FILES = [ROOT / "user_error.py", *(path for room in sorted(ROOMS) for path in sorted((ROOT / room).rglob("*.py")))]
HEAVY = {"torch", "nmmo", "pufferlib", "umap", "hdbscan", "numba", "sklearn", "scipy", "matplotlib", "wandb"}


def imported(path: Path) -> set[str]:
    """Top-level names of all modules that a file imports, wherever in the file it does so."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names.add((node.module or "").split(".")[0])
    return names


def test_there_is_something_to_check() -> None:
    assert {"train", "extract_activations", "analyze_activations"} <= SCRIPTS
    assert len(FILES) > 30


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards(path: Path) -> None:
    name = path.relative_to(ROOT)
    room = name.parts[0].removesuffix(".py")
    allowed = MAY_IMPORT[room] | {room} | SCRIPTS_IN_ROOMS.get(str(name), set())
    upwards = imported(path) & (ROOMS | SCRIPTS | {"tests", "benchmarks"}) - allowed
    assert not upwards, f"{path} imports {upwards}"
    if room in ("analysis", "activation_store"):
        assert not imported(path) & OF_THE_GAME - MAY_TRAIN.get(str(name), set()), (
            f"{path} needs the game or torch to read files"
        )


@pytest.mark.parametrize("path", [*FILES, *(ROOT / f"{s}.py" for s in sorted(SCRIPTS))], ids=lambda path: path.name)
def test_nothing_is_pickled(path: Path) -> None:
    assert not imported(path) & {"pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}
    assert not re.search(r"torch\.(load|save)\(|allow_pickle=True", path.read_text())


@pytest.mark.parametrize("script", [*sorted(SCRIPTS - {"command_line"}), "analysis.proc_eval_result"])
def test_scripts_start_light(script: str) -> None:
    """What `--help` needs must not wait for libraries that only the work needs."""
    code = f"import sys, {script}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
