"""Circuits of directions, from runs of `analyze_dynamics.py --circuit`."""

from dataclasses import dataclass
from pathlib import Path

from activation_store.schema import METADATA_FILE
from analysis.dynamics.circuits.graph import GRAPH_FILE, CircuitGraph
from analysis.runs.finished_files import open_finished

CIRCUIT_SCRIPT = "analyze_dynamics.py"


@dataclass(frozen=True)
class PanelCircuit:
    """The graph of a circuit, and where it is from."""

    path: Path
    dump_sha256: str  # of the metadata of the dump that it was made from
    graph: CircuitGraph


def read_circuit(path: Path) -> PanelCircuit:
    """Read a run of `analyze_dynamics.py --circuit`.

    Raises:
        UserError: it is no finished run of that kind, or damaged.
    """
    finished = open_finished(path, CIRCUIT_SCRIPT)
    _, graph = finished.read_json(GRAPH_FILE, CircuitGraph)
    return PanelCircuit(path, finished.description().input.get(METADATA_FILE, ""), graph)
