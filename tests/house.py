"""The structure of the code: its modules, their imports, and import cycles."""

import ast
import functools
import graphlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("common", "activation_store", "agent_zoo", "reinforcement_learning", "analysis")
"""From the ground upwards: each may import those before it."""

Arrows = dict[str, set[str]]


@functools.cache
def modules() -> dict[str, Path]:
    """Return every module of the rooms and every script, by its dotted name."""
    paths = [*ROOT.glob("*.py"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@functools.cache
def imported_names(path: Path) -> frozenset[str]:
    """Return the dotted names of everything that a file imports, at any place in the file."""
    result: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            result |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(result)


@functools.cache
def file_arrows() -> Arrows:
    """Return, for each module, the modules of this project that it imports."""
    known = set(modules())
    return {
        name: {_module_of(item, known) for item in imported_names(path)} & known - {name}
        for name, path in modules().items()
    }


def room_arrows() -> Arrows:
    """Return, for each sub-package, the others that it imports; a file directly in a package counts by itself."""
    known = modules()
    arrows: Arrows = {}
    for name, targets in file_arrows().items():
        room = _room_of(known[name])
        arrows.setdefault(room, set()).update({_room_of(known[target]) for target in targets} - {room})
    return arrows


def circle(arrows: Arrows) -> list[str]:
    """Return an import cycle, empty if there is none."""
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _module_of(name: str, known: set[str]) -> str:
    return name if name in known else name.rpartition(".")[0]


def _room_of(path: Path) -> str:
    name = path.relative_to(ROOT)
    return str(name.parent if len(name.parts) > 2 else name)
