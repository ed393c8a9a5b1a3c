"""The import rule of the house: no arrow upwards, no circle between files or rooms; and no pickle anywhere."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMON = {"user_error", "argument_checks", "progress_view"}
"""What every room may use: files of their own at the top, which need no library but those of their kind."""
MAY_IMPORT = {
    "user_error": set(),
    "argument_checks": {"user_error"},
    "progress_view": set(),
    "activation_store": COMMON,
    "agent_zoo": COMMON | {"activation_store"},
    "analysis": COMMON | {"activation_store"},
    "representation": COMMON | {"activation_store", "agent_zoo", "analysis"},
    "reinforcement_learning": COMMON | {"activation_store", "agent_zoo"},
}
SCRIPTS_IN_ROOMS = {
    "analysis/proc_eval_result.py": {"command_line", "environment_check"},
    "activation_store/__main__.py": {"command_line", "environment_check"},
}
"""A stage script that lives in its room may do what scripts do, and so import what stands beside them."""
MAY_TRAIN = {f"representation/probes/{name}.py": {"torch"} for name in ("mlp", "logistic", "logistic_solver")}
"""Probes are networks of their own; whoever imports this file does so only where one is trained."""
ROOMS = set(MAY_IMPORT)
SCRIPTS = {path.stem for path in ROOT.glob("*.py")} - ROOMS
THE_GAME = {"nmmo", "pufferlib", "pettingzoo", "gymnasium"}
NOT_IN = {
    "activation_store": THE_GAME | {"torch"},
    "analysis": THE_GAME | {"torch"},
    "representation": THE_GAME,
}
"""Libraries that a room does without."""
FILES = [
    *(ROOT / f"{name}.py" for name in sorted(COMMON)),
    *(path for room in sorted(ROOMS) for path in sorted((ROOT / room).rglob("*.py"))),
]
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
    assert not imported(path) & NOT_IN.get(room, set())


def modules() -> dict[str, Path]:
    """Every module of the house, by its dotted name."""
    paths = [*FILES, *(ROOT / f"{script}.py" for script in SCRIPTS)]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imports(path: Path, known: set[str]) -> set[str]:
    """Modules of the house that a file imports, wherever in the file it does so."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & known
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found |= {full if full in known else str(node.module)} & known
    return found


def room_of(path: Path) -> str:
    """The sub-room that a file lies in; a file that lies loose in its room stands for itself."""
    name = path.relative_to(ROOT)
    return str(name.parent if len(name.parts) > 2 else name)


@pytest.mark.parametrize("of", ["files", "rooms"])
def test_there_is_no_circle(of: str) -> None:
    known = modules()
    arrows: dict[str, set[str]] = {}
    for name, path in known.items():
        node = room_of(path) if of == "rooms" else name
        targets = {room_of(known[each]) if of == "rooms" else each for each in imports(path, set(known))}
        arrows.setdefault(node, set()).update(targets - {node})
    graphlib.TopologicalSorter(arrows).prepare()  # raises CycleError, which names the circle
    assert len(arrows) > 20


@pytest.mark.parametrize("path", [*FILES, *(ROOT / f"{s}.py" for s in sorted(SCRIPTS))], ids=lambda path: path.name)
def test_nothing_is_pickled(path: Path) -> None:
    assert not imported(path) & {"pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}
    assert not re.search(r"torch\.(load|save)\(|allow_pickle=True", path.read_text())


@pytest.mark.parametrize(
    "command",
    [
        "train -a takru --no-track",
        "train -m replay -p policies -n takeru",
        "evaluate policies pvp -p takeru,hybrid_3M",
        "evaluate policies pvp --untrained takru",
        "extract_activations pve -p takeru",
        "extract_activations pve -p takeru_1M --layers lstm_hiden",
    ],
)
def test_wrong_names_are_refused_before_anything_heavy_is_loaded(command: str) -> None:
    script, *arguments = command.split()
    code = f"""
import sys, {script}, user_error
sys.argv = ["{script}.py", *{arguments!r}]
try:
    {script}.main()
except user_error.UserError as error:
    print(error, sorted({HEAVY!r} & set(sys.modules)), sep="|")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    message, loaded = done.stdout.strip().split("|")
    assert re.search(r"did you mean (takeru|takeru_1M|lstm_hidden or lstm_cell)\?$", message) and loaded == "[]"


@pytest.mark.parametrize("script", [*sorted(SCRIPTS - {"command_line"}), "analysis.proc_eval_result"])
def test_scripts_start_light(script: str) -> None:
    """What `--help` needs must not wait for libraries that only the work needs."""
    code = f"import sys, {script}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
