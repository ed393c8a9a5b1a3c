"""The import rules: no import upwards, no cycle between files or packages; and no pickle anywhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOMS, ROOT, circle, file_arrows, imported_names, modules, room_arrows

COMMON = {"user_error", "argument_checks", "progress_view"}
"""Top-level files that every package may use; they import nothing of this project except each other."""
MAY_IMPORT: dict[str, set[str]] = {
    "activation_store": set(),
    "agent_zoo": {"activation_store"},
    "analysis": {"activation_store"},
    "representation": {"activation_store", "agent_zoo", "analysis"},
    "reinforcement_learning": {"activation_store", "agent_zoo"},
}
THE_GAME = {"nmmo", "pufferlib", "pettingzoo", "gymnasium"}
NOT_IN = {
    "activation_store": THE_GAME | {"torch"},
    "analysis": THE_GAME | {"torch"},
    "representation": THE_GAME,
}
"""Libraries that a package must not import."""
SCRIPTS_IN_ROOMS = {
    "analysis/proc_eval_result.py": {"command_line", "environment_check"},
    "activation_store/__main__.py": {"command_line", "environment_check"},
    "agent_zoo/half_precision.py": {"command_line", "environment_check"},
}
"""A stage script inside a package may import the same as top-level scripts."""
PICKLES = {"pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}
HEAVY = {"torch", "nmmo", "pufferlib", "umap", "hdbscan", "numba", "sklearn", "scipy", "matplotlib", "wandb", "optuna"}

FILES = sorted(path.relative_to(ROOT) for path in modules().values())
SCRIPTS = {path.stem for path in FILES if len(path.parts) == 1} - COMMON


def libraries(path: Path) -> set[str]:
    """Top-level names of everything that a file imports."""
    return {name.partition(".")[0] for name in imported_names(ROOT / path)}


def test_there_is_something_to_check() -> None:
    assert {"train", "extract_activations", "analyze_activations"} <= SCRIPTS
    assert len(FILES) > 200 and set(MAY_IMPORT) == set(ROOMS)


@pytest.mark.parametrize("path", [path for path in FILES if len(path.parts) > 1], ids=str)
def test_imports_go_downwards(path: Path) -> None:
    room = path.parts[0]
    allowed = MAY_IMPORT[room] | {room} | SCRIPTS_IN_ROOMS.get(str(path), set())
    upwards = libraries(path) & ({*ROOMS, "tests", "benchmarks"} | SCRIPTS) - allowed
    assert not upwards, f"{path} imports {upwards}"
    assert not libraries(path) & NOT_IN.get(room, set())


@pytest.mark.parametrize("name", sorted(COMMON))
def test_what_every_room_uses_needs_no_room(name: str) -> None:
    assert not libraries(Path(f"{name}.py")) & ({*ROOMS, "tests", "benchmarks"} | SCRIPTS)


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circle(file_arrows()) == []


def test_no_rooms_import_each_other_in_a_circle() -> None:
    assert circle(room_arrows()) == []


def test_a_circle_would_be_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_nothing_is_pickled(path: Path) -> None:
    assert not libraries(path) & PICKLES
    assert not re.search(r"torch\.(load|save)\(|allow_pickle=True", (ROOT / path).read_text())


@pytest.mark.parametrize(
    "command",
    [
        "train -a takru --no-track",
        "train -m replay -p policies -n takeru",
        "evaluate policies pvp -p takeru,hybrid_3M",
        "evaluate policies pvp --untrained takru",
        "extract_activations pve -p takeru",
        "extract_activations pve -p takeru_3M --layers lstm_hiden",
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
    assert re.search(r"did you mean (takeru|takeru_3M|lstm_hidden or lstm_cell)\?$", message) and loaded == "[]"


@pytest.mark.parametrize("script", [*sorted(SCRIPTS - {"command_line"}), "analysis.proc_eval_result"])
def test_scripts_start_light(script: str) -> None:
    """`--help` must not import libraries that only the work needs."""
    code = f"import sys, {script}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
