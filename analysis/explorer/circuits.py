"""Circuits of directions, from runs of `analyze_dynamics.py --circuit`."""

import math
from dataclasses import dataclass
from pathlib import Path

from analysis.dynamics.circuits.graph import COLUMNS, GRAPH_FILE, CircuitGraph
from analysis.runs.finished_files import open_finished
from common.user_error import UserError

CIRCUIT_SCRIPT = "analyze_dynamics.py"


@dataclass(frozen=True)
class CircuitRun:
    """The graph of a circuit, and the run that it is from."""

    name: str  # of the run
    graph: CircuitGraph


def read_circuit(path: Path) -> CircuitRun:
    """Read a run of `analyze_dynamics.py --circuit`.

    Raises:
        UserError: it is no finished run of that kind, or damaged.
    """
    finished = open_finished(path, CIRCUIT_SCRIPT)
    _, graph = finished.read_json(GRAPH_FILE, CircuitGraph)
    if not _fits(graph):
        raise UserError(f"{path / GRAPH_FILE} is not as {CIRCUIT_SCRIPT} writes it: find the circuit again")
    return CircuitRun(path.resolve().name, graph)


def _fits(graph: CircuitGraph) -> bool:
    """Tell whether there is a box at both ends of each line, and every number is one."""
    names = [{box.name for box in column} for column in graph.boxes]
    numbers = [
        number for column in graph.boxes for box in column for number in (box.value, box.low, box.high, box.random)
    ]
    return (
        len(names) == len(COLUMNS)
        and all(names)
        and all(0 <= line.column < len(names) - 1 for line in graph.lines)
        and all(line.start in names[line.column] and line.end in names[line.column + 1] for line in graph.lines)
        and all(math.isfinite(number) for number in numbers if number is not None)
        and all(math.isfinite(line.share) for line in graph.lines)
    )
