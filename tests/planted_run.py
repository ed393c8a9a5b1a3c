"""Analysis runs with planted clusters: made by the stage itself, with a planted plane in place of UMAP and HDBSCAN.

The results of UMAP and HDBSCAN depend on the processor. Tests of code that uses runs need clusters, noise and a plane
that are the same everywhere. tests/test_analyze_activations.py tests UMAP and HDBSCAN themselves on planted behaviours.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from activation_store.lives import places_of
from activation_store.reader import read_dump
from activation_store.records import Records
from activation_store.schema import METADATA_FILE
from activation_store.selection import Subsample
from analysis.clusters.projection import Clustering, Projection
from analysis.clusters.settings import AnalysisSettings
from analysis.labels import NOISE, largest_first
from analysis.runs.propagated_labels import SELECTION_KIND
from analysis.runs.run_folder import RunFolder
from common.files import sha256, write_bytes, write_json
from tests.command import run_well

CLUSTERS = 5
_BOUT = 4
_GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))


class PlantedPlane:
    """The position in the plane and the cluster of each activation vector of a dump.

    Agents cycle through clusters and noise, `_BOUT` ticks in each. A cluster is a disc of well-separated points; the
    discs are on a circle, far apart.
    """

    def __init__(self, dump: Path, subsample: int, layer: str = "action_decoder") -> None:
        kept = AnalysisSettings(dump, subsample=subsample).thinning
        records = read_dump(dump, layers=[layer], subsample=kept)
        turn = (records.tick // _BOUT + records.agent_id) % (CLUSTERS + 1)
        labels = largest_first(np.where(turn == CLUSTERS, NOISE, turn))
        place = np.empty(len(labels))
        for label in np.unique(labels):
            place[labels == label] = np.arange((labels == label).sum())
        distance = 3 * np.sqrt(place.max() + 1)
        around = 2 * np.pi * np.arange(CLUSTERS + 1) / (CLUSTERS + 1)
        self.centres = distance * np.stack([np.cos(around), np.sin(around)], axis=1)  # of the clusters, and of noise
        angle = place * _GOLDEN_ANGLE
        sunflower = np.sqrt(place)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        points = (self.centres[labels] + sunflower).astype(np.float32)  # noise is -1, the last centre
        rows = records.activations[layer]
        self._point_of = {row.tobytes(): point for row, point in zip(rows, points, strict=True)}

    def project(self, activations: np.ndarray, *_: object, **__: object) -> Projection:
        # States that the dump does not hold, as those of a Gaussian, lie where their first two units say.
        points = np.stack([self._point_of.get(row.tobytes(), row[:2]) for row in activations])
        return Projection("umap", points, ("UMAP 1", "UMAP 2"))

    def labels(self, points: np.ndarray, *_: object, **__: object) -> np.ndarray:
        nearest = np.square(points[:, None] - self.centres).sum(axis=2).argmin(axis=1)
        return np.where(nearest == CLUSTERS, NOISE, nearest)

    def clusters(self, points: np.ndarray, *_: object) -> Clustering:
        no_tree = np.empty(0, [("parent", int), ("child", int), ("lambda_val", float), ("child_size", int)])
        return Clustering(points, self.labels(points), no_tree)


def planted_run(dump: Path, results: Path, subsample: int, *options: object) -> Path:
    """Analyse a dump with planted clusters; returns the run's folder in `results`."""
    plane = PlantedPlane(dump, subsample)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("analysis.clusters.outputs", "analysis.clusters.projection"):
            patch.setattr(f"{module}.project", plane.project)
            patch.setattr(f"{module}.hdbscan_clusters", plane.clusters)
        patch.setattr("analysis.clusters.projection.hdbscan_labels", plane.labels)
        run_well("analyze_activations.py", dump, "--subsample", subsample, "--output-dir", results, *options)
    (folder,) = results.iterdir()
    return folder


def labelled_run(
    path: Path, dump: Path, label_of: Callable[[Records], np.ndarray], kept: Subsample, layer: str = "action_decoder",
    **arguments: object,
) -> Path:  # fmt: skip
    """Write a run that holds nothing but labels of the kept records."""
    records = read_dump(dump, subsample=kept, layers=[])
    message = {
        "layer": layer,
        "subsample": kept.every,
        "skip_first": kept.skip_first,
        "seed": kept.seed,
        "dump": str(dump),
    }
    described = {"input": {METADATA_FILE: sha256(dump / METADATA_FILE)}, "arguments": {**message, **arguments}}
    with RunFolder(path, described) as folder:
        folder.save_arrays("cluster_labels.npz", **places_of(records), label=label_of(records))
    return path


def saved_selection(path: Path, run: Path, **changes: object) -> Path:
    """Write a selection of the first two records of a run, or another one, as the explorer saves it."""
    key = sha256(run / "cluster_labels.npz")
    content = {"kind": SELECTION_KIND, "run": run.name, "runKey": key, "folder": str(run), "records": [0, 1]}
    write_json(path, content | changes)
    return path


def rewrite(run: Path, name: str, content: bytes) -> None:
    """Change a file of a finished run, and let its DONE.json vouch for the change."""
    write_bytes(run / name, content)
    done = json.loads((run / "DONE.json").read_text())
    done["files"][name] = {"sha256": sha256(run / name), "bytes": len(content)}
    write_json(run / "DONE.json", done)
