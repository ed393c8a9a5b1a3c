"""The import rules: no import upwards, no cycle between files or packages; and no pickle anywhere."""

import functools
import re
from pathlib import Path

import pytest

from tests.command import python
from tests.house import ROOMS, ROOT, circle, file_arrows, imported_names, modules, room_arrows

TORCH = {"torch", "captum", "agent_zoo"}
THE_GAME = {"nmmo", "pufferlib", "pettingzoo", "gymnasium", "reinforcement_learning"}
WITHOUT: dict[str, set[str]] = {"common": TORCH | THE_GAME, "activation_store": TORCH | THE_GAME, "agent_zoo": set()}
"""Libraries and rooms that the lower rooms must not import."""
GROUND = {"features", "statistics", "figures", "pages", "runs", "recorded"}
"""Folders of `analysis/` that questions share; `recorded` runs policies on what was recorded."""
QUESTIONS: dict[str, set[str]] = {
    "clusters": set(),
    "life": set(),
    "replays": set(),
    "evaluation": set(),
    "training_runs": {"evaluation"},
    "findings": set(),
    "explorer": {"torch", "clusters", "life", "replays", "interventions", "dynamics"},
    "probes": {"torch", "life"},
    "dynamics": {"torch", "clusters", "interventions"},
    "attribution": {"torch", "clusters", "life", "replays"},
    "sparse": {"torch", "explorer", "replays"},
    "codes": {"torch", "clusters", "life", "replays", "dynamics", "sparse"},
    "interventions": {"torch", "game", "evaluation", "replays"},
    "world_model": {"torch", "game", "sparse", "interventions", "dynamics", "attribution"},
}
"""Each question: whether it may import torch, or the game, and which other questions."""
READ_FILES_ALONE = ("effects", "page")
"""Folders of `analysis/interventions/` that need neither torch nor the game."""
SCRIPTS_IN_ROOMS = (
    "analysis/proc_eval_result.py", "analysis/score_ways.py", "activation_store/__main__.py",
    "agent_zoo/half_precision.py",
)  # fmt: skip
"""Stage scripts inside a room: two at the paths of the original, and `python -m activation_store`."""
LOOSE_FILES = 22
PICKLES = {"pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}
HEAVY = {"torch", "nmmo", "pufferlib", "umap", "hdbscan", "numba", "sklearn", "scipy", "matplotlib", "wandb", "optuna"}
LIGHT = ("numpy", "tyro", "pydantic", "yaml", "orjson", "rich.live", "pyarrow.parquet")
"""What scripts may load as they start; loaded once for all of them."""

FILES = sorted(path.relative_to(ROOT) for path in modules().values())
SCRIPTS = {path.stem for path in FILES if len(path.parts) == 1}
IN_ANALYSIS = [path for path in FILES if path.parts[0] == "analysis"]


def libraries(path: Path) -> set[str]:
    """Top-level names of everything that a file imports."""
    return {name.partition(".")[0] for name in imported_names(ROOT / path)}


def permitted(path: Path) -> set[str]:
    """What a file of `analysis/` may import of torch, the game and the questions."""
    folder = path.parts[1]
    if len(path.parts) == 2:
        loose = {
            "proc_eval_result.py": {"evaluation"}, "score_ways.py": {"training_runs"}, "matrix_products.py": {"torch"},
        }  # fmt: skip
        return loose.get(folder, set())
    if folder in GROUND:
        return {"recorded": {"torch"}, "figures": {"features"}}.get(folder, set())
    alone = folder == "interventions" and path.parts[2] in READ_FILES_ALONE
    return QUESTIONS[folder] - {"torch", "game"} if alone else QUESTIONS[folder]


def test_there_is_something_to_check() -> None:
    assert {"train", "extract_activations", "analyze_activations"} <= SCRIPTS
    assert len(FILES) > 200 and len(IN_ANALYSIS) > 100
    assert {path.parts[1] for path in IN_ANALYSIS if len(path.parts) > 2} == GROUND | set(QUESTIONS)


@pytest.mark.parametrize("path", [path for path in FILES if len(path.parts) > 1], ids=str)
def test_imports_go_downwards(path: Path) -> None:
    room = path.parts[0]
    above = {*ROOMS[ROOMS.index(room) + 1 :], "tests", "benchmarks", *SCRIPTS} | WITHOUT.get(room, set())
    assert not libraries(path) & above - {room}


@pytest.mark.parametrize("path", IN_ANALYSIS, ids=str)
def test_an_analysis_imports_what_its_row_permits(path: Path) -> None:
    may = permitted(path)
    assert "torch" in may or not libraries(path) & TORCH
    assert "game" in may or not libraries(path) & THE_GAME
    others = {name.split(".")[1] for name in imported_names(ROOT / path) if name.startswith("analysis.")}
    assert not others & {*GROUND, *QUESTIONS} - GROUND - may - {path.parts[1]}


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES if len(path.parts) > 1}), ids=str)
def test_a_room_has_few_loose_files(folder: Path) -> None:
    assert sum(path.parent == folder and path.name != "__init__.py" for path in FILES) <= LOOSE_FILES


def test_no_files_and_no_rooms_import_each_other_in_a_circle_and_one_would_be_found() -> None:
    assert circle(file_arrows()) == []
    assert circle(room_arrows()) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_nothing_is_pickled(path: Path) -> None:
    assert not libraries(path) & PICKLES
    assert not re.search(r"torch\.(load|save)\(|allow_pickle=True", (ROOT / path).read_text())


WRONG_NAMES = (
    "train -a takru --no-track",
    "train -m replay -p policies -n takeru",
    "evaluate policies pvp -p takeru,hybrid_10M",
    "evaluate policies pvp --untrained takru",
    "extract_activations pve -p takeru",
    "extract_activations pve -p takeru_10M --layers lstm_hiden",
)
STARTED = [*sorted(SCRIPTS), "analysis.proc_eval_result", "analysis.score_ways"]
PAGES = "analysis.explorer.page.build"
START_EACH = f"""
import importlib, os, sys
for light in {LIGHT!r}:
    importlib.import_module(light)
assert not {HEAVY!r} & set(sys.modules)
for command in sys.argv[1:]:
    if process := os.fork():
        os.waitpid(process, 0)
        continue
    script, *arguments = command.split()
    module, message = importlib.import_module(script), ""
    if arguments:
        from common import user_error
        sys.argv = [f"{{script}}.py", *arguments]
        try:
            module.main()
        except user_error.UserError as error:
            message = error
    print(command, message, *sorted({HEAVY!r} & set(sys.modules)), sep="|")
    sys.exit()
"""


@functools.cache
def started() -> dict[str, list[str]]:
    """Each command's message and the heavy libraries that it loaded, in processes of their own."""
    lines = (line.split("|") for line in python("-c", START_EACH, *WRONG_NAMES, *STARTED, PAGES).stdout.splitlines())
    return {command: rest for command, *rest in lines}


@pytest.mark.parametrize("command", WRONG_NAMES)
def test_wrong_names_are_refused_before_anything_heavy_is_loaded(command: str) -> None:
    message, *loaded = started()[command]
    assert re.search(r"did you mean (takeru|takeru_10M|lstm_hidden or lstm_cell)\?$", message) and not loaded


def test_pages_are_built_without_what_agents_are_trained_with() -> None:
    assert not {"torch", "nmmo", "pufferlib"} & set(started()[PAGES])


@pytest.mark.parametrize("script", STARTED)
def test_scripts_start_light(script: str) -> None:
    """`--help` must not import libraries that only the work needs."""
    assert started()[script] == [""]
