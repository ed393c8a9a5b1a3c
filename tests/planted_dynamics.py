"""Small finished runs of analyze_dynamics.py, circuits too, and of saliency.py with made-up numbers, for readers."""

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.directions import Direction, Source, write_directions
from activation_store.lives import places_of
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import METADATA_FILE
from analysis.dynamics.circuit_graph import GRAPH_FILE, Box, CircuitGraph, Line
from analysis.runs.run_folder import RunFolder
from common.files import sha256

LAYER, UNITS, COMPONENTS, BEHAVIOURS, LAGS, TICKS = "lstm_cell", 4, 2, 2, 2, 6


def planted_dynamics_run(path: Path, dump: Path, units: int = UNITS, layer: str = LAYER) -> Path:
    """Write a run whose six ticks are the first ones of a dump."""
    places = _places(dump)
    source = Source("independent component", path.name, dump.name, read_metadata(dump).policy, None)
    random = np.random.default_rng(0)
    matrices = (BEHAVIOURS, LAGS, COMPONENTS, COMPONENTS)
    with RunFolder(path, {"arguments": {"dump": str(dump)}, "seed": 0, "input": _input(dump)}) as folder:
        folder.save_arrays("states.npz", mean=np.zeros(units), spread=np.ones(units))
        label = np.arange(TICKS) % BEHAVIOURS
        folder.save_arrays(
            "motion.npz", r=random.uniform(-1, 1, matrices), q=random.random(matrices), behaviour=label,
            jacobian_records=np.arange(4), jacobians=random.normal(size=(4, *matrices[1:])),
        )  # fmt: skip
        for name in ("behaviour_labels.npz", "cluster_labels.npz"):
            folder.save_arrays(name, **places, label=label)
        components = [
            {"component": f"ic_{number}", "explained": 0.5, "stability": 0.9, "features": "none"} for number in (1, 2)
        ]
        behaviours = {"sizes": [3, 3], "agreement": [0.5], "differences": ["more", "less"]}
        output = {"policy": "planted", "layer": layer, "components": components, "behaviours": behaviours}
        folder.save_json("summary.json", output)
        directions = [
            Direction(f"ic_{number}", layer, np.ones(units, np.float32), 0.0, "spreads", 0.0, 1.0, 6, 2, 1, source)
            for number in (1, 2)
        ]
        write_directions(path / "directions.safetensors", directions)
    return path


def planted_saliency_run(path: Path, dump: Path, sanity: dict[str, Any] | None = None) -> Path:
    """Write maps of the same ticks: two samples of three ticks each."""
    with RunFolder(path, {"arguments": {"of": "value", "method": "gradient"}, "seed": 0, "input": _input(dump)}) as out:
        shapes = {"tiles": 225, "entities": 3, "own": 5, "inventory": 1}
        maps = {name: np.ones((TICKS, LAGS, width)) for name, width in shapes.items()}
        out.save_arrays(
            "maps.npz", **_places(dump), **maps, sample=np.repeat([0, 1], 3), value=np.ones(TICKS),
            task=np.ones((TICKS, LAGS)),
        )  # fmt: skip
        out.save_json("sanity.json", {"failures": [], "checks": {}} if sanity is None else sanity)
    return path


def planted_circuit(path: Path, dump: Path) -> Path:
    """Write the graph of a circuit: one source, one gate, one unit and one logit."""
    with RunFolder(path, {"arguments": {"circuit": "ic_1"}, "seed": 0, "input": _input(dump)}) as out:
        names = ("task", "candidate", "unit 3", "read-out")
        boxes = [[Box(name, None if name == "read-out" else 1.0, 0.9, 1.1)] for name in names]
        lines = [Line(number, start, end, 1.0) for number, (start, end) in enumerate(itertools.pairwise(names))]
        logit = Box("Move: north", 0.5, 0.4, 0.6, 0.1)
        graph = CircuitGraph("ic_1", LAYER, 8, 20, [*boxes, [logit]], [*lines, Line(3, "read-out", logit.name, 0.5)])
        out.save_json(GRAPH_FILE, asdict(graph))
    return path


def _places(dump: Path) -> dict[str, np.ndarray]:
    records = read_dump(dump, layers=[], columns=[], leave_out=["tile", "entity", "inventory", "tables"])
    return {name: item[:TICKS] for name, item in places_of(records).items()}


def _input(dump: Path) -> dict[str, str]:
    return {METADATA_FILE: sha256(dump / METADATA_FILE)}
