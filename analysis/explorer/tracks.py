"""What further runs of the dump say of each tick of a page, from clusters to circuits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.directions import DIRECTIONS_FILE, Direction
from activation_store.lives import places_of
from activation_store.reader import Progress
from activation_store.records import Records
from activation_store.schema import METADATA_FILE
from activation_store.sparse_dictionary import AUTOENCODERS, feature_name, read_dictionary
from analysis.dynamics.circuit_graph import CIRCUIT_SCRIPT, COLUMNS, GRAPH_FILE, CircuitGraph
from analysis.explorer.base import LeftOut, NothingOfThePage, Numbers, TickLabels, along, batches, labels_of, refuse
from analysis.explorer.behaviours import described, labels_of_behaviours
from analysis.explorer.content import Explored, axes_of, labels_of_ticks
from analysis.explorer.edits import FILMS_FILE, PlayedEdit, read_edits
from analysis.explorer.views import rows_in_view
from analysis.lives import places_among
from analysis.runs.cluster_run import LABELS_FILE, FinishedRun, read_run
from analysis.runs.dynamics_run import MOTION_FILE, Dynamics, read_dynamics
from analysis.runs.finished_files import EFFECTS_FILE, FinishedFiles, open_finished
from analysis.runs.saliency_maps import MAPS_FILE, SaliencyMaps, read_saliency
from common.files import sha256
from common.progress_view import Step
from common.user_error import UserError

SPARSE_FILE = "sparse.json"
HUNDRED, UNKNOWN = 100, -128
"""Correlations are stored in hundredths; what stands for an unknown one."""


@dataclass(frozen=True, eq=False)
class Track:
    """One thing that a run says of each of T ticks: a number, or the cluster that the tick is in."""

    run: str  # name of the run's folder
    name: str
    unit: str
    definition: str
    values: np.ndarray  # (T + S,) float32, or the labels of clusters, int64; of simulated ticks last
    clusters: tuple[dict[str, Any], ...] = ()  # as the run's summary describes them; none for numbers
    plane: np.ndarray | None = None
    """Places of the page's N points in the run's embedding, (N, 2) float32; NaN for those that are not in it."""
    axes: str = ""  # what its axes are called
    source: str = ""  # SHA-256 of the file that its direction or sparse feature is in; empty for clusters


@dataclass(frozen=True, eq=False)
class Overlay:
    """Saliency maps over the views of some ticks of a page."""

    maps: SaliencyMaps
    ticks: np.ndarray  # indices of the page's ticks that have a map, ascending, (M,) int64
    tiles: np.ndarray
    """Attribution of each tile of their views to what the policy computes in the same tick, (M, 225) float32."""
    entities: np.ndarray  # of the others in view, tick by tick, float32
    parts: np.ndarray
    """Share of each part of the observation, as in `PARTS`, in all |attribution|, (M, parts); NaN where unknown."""


@dataclass(frozen=True, eq=False)
class Motion:
    """A run of analyze_dynamics.py whose first K components are in a page."""

    dynamics: Dynamics
    tracks: tuple[int, ...]  # numbers of these components among the page's tracks
    labels: int | None  # number of the track of its behaviours; None where they are the page's own groups

    @property
    def tables(self) -> dict[str, np.ndarray]:
        """Correlations, whether their q is below 0.05, and Jacobians, by behaviour and lag, (B, L, K i, K j)."""
        shown, dynamics = (..., slice(len(self.tracks)), slice(len(self.tracks))), self.dynamics
        r = dynamics.r[shown]
        return {
            "r": np.where(np.isfinite(r), np.round(np.nan_to_num(r) * HUNDRED), UNKNOWN).astype(np.int8),
            "significant": dynamics.significant[shown],
            "jacobian": dynamics.jacobian[shown].astype(np.float32),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What the page says of it."""
        dynamics, shown = self.dynamics, self.dynamics.components[: len(self.tracks)]
        components = [
            {"name": one.component, "track": number, **vars(one)}
            for one, number in zip(shown, self.tracks, strict=True)
        ]
        return {
            "run": dynamics.path.resolve().name, "layer": dynamics.layer, "lags": dynamics.r.shape[1] - 1,
            "components": components, "labels": self.labels, "states": dynamics.states.tolist(),
            "agreement": dynamics.agreement,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Further:
    """What further runs say of the ticks of a page, and of edits of its policy."""

    tracks: tuple[Track, ...] = ()
    overlays: tuple[Overlay, ...] = ()
    edits: tuple[PlayedEdit, ...] = ()
    films: dict[str, str] = field(default_factory=dict)
    """Pages of twins, with and without the edit, by the run that edited."""
    motions: tuple[Motion, ...] = ()
    circuits: dict[str, CircuitGraph] = field(default_factory=dict)
    """Graphs by the run that found them."""

    def edited_by(self, edit: PlayedEdit) -> list[int]:
        """Return the places in `tracks` of the directions and sparse features that an edit is of."""
        return [
            i for i, track in enumerate(self.tracks) if track.name in edit.directions and track.source in edit.sources
        ]


@dataclass(frozen=True)
class _Score:
    name: str
    kind: str


@dataclass(frozen=True)
class _Sparse:
    """What is read of sparse.json."""

    scores: list[_Score] = field(default_factory=list)


def open_further(run: Path, dump: Path, others: Sequence[Path], simulated: Sequence[Path]) -> list[FinishedFiles]:
    """Open the runs that are shown beside a run, before anything that takes time.

    Raises:
        UserError: a run is unfinished or damaged, or of another dump, or two of what is shown have the same name.
    """
    names = [path.resolve().name for path in (run, *others, *simulated)]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"two of what is shown are called {repeated[0]}: give each once")
    own, opened = sha256(dump / METADATA_FILE), [open_finished(path) for path in others]
    for finished in opened:
        if EFFECTS_FILE not in finished and own not in finished.description().input.values():
            raise UserError(f"{finished.path} was not made from {dump}: a page is about one dump")
    return opened


def read_further(
    runs: Sequence[FinishedFiles], content: Explored, most: int, step: Step, left_out: LeftOut = refuse
) -> Further:
    """Read what further runs say of the ticks of a page.

    Args:
        runs: from `open_further`.
        most: maximum of numbers of one run: of sparse features those that vary most, of others the first.
        left_out: is called with a run that has maps of none of the page's ticks.

    Raises:
        UserError: a run is damaged, of another policy or of a kind that says nothing of ticks, or has maps of none of
            the page's ticks.
    """
    tracks: list[Track] = []
    overlays: list[Overlay] = []
    edits: list[PlayedEdit] = []
    films: dict[str, str] = {}
    motions: list[Motion] = []
    circuits: dict[str, CircuitGraph] = {}
    for finished in runs:
        path, name = finished.path, finished.path.resolve().name
        if EFFECTS_FILE in finished:  # of lives that were played for it, in no dump
            edits += read_edits(finished, content.seen.metadata.checkpoint_sha256)
            if FILMS_FILE in finished:
                films[name] = finished.read(FILMS_FILE).decode(errors="replace")
            continue
        with step(f"reading {name}") as report:
            if MOTION_FILE in finished:
                own, motion = _moving(finished, content, most, len(tracks), report)
                tracks += own
                motions.append(motion)
            elif GRAPH_FILE in finished:
                circuits[name] = read_circuit(path)
            elif LABELS_FILE in finished:
                tracks.append(_labels(path, content, report))
            elif SPARSE_FILE in finished:
                tracks += _features(finished, content, most, report)
            elif DIRECTIONS_FILE in finished:
                tracks += _read_outs(finished, finished.directions().directions[:most], content, report)
            elif MAPS_FILE in finished:
                try:
                    overlays.append(_overlay(read_saliency(path), content))
                except NothingOfThePage as error:
                    left_out(path, error)
            else:
                raise UserError(
                    f"{path} says nothing of single ticks: give a run with clusters, codes, features, directions, "
                    "saliency maps, circuits or interventions, or a dump of simulated lives"
                )
    return Further(tuple(tracks), tuple(overlays), tuple(edits), films, tuple(motions), circuits)


def read_circuit(path: Path) -> CircuitGraph:
    """Read a run of `analyze_dynamics.py --circuit`.

    Raises:
        UserError: it is no finished run of that kind, or damaged.
    """
    finished = open_finished(path, CIRCUIT_SCRIPT)
    _, graph = finished.read_json(GRAPH_FILE, CircuitGraph)
    if not _fits(graph):
        raise UserError(f"{path / GRAPH_FILE} is not as {CIRCUIT_SCRIPT} writes it: find the circuit again")
    return graph


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


def _labels(path: Path, content: Explored, report: Progress) -> Track:
    run = read_run(path, content.run.dump)
    labels = labels_of(run, lambda share: report(share / 2))
    kind = "code" if labels.rule.exact else "cluster"
    definition, label = _labelled(labels, kind, run.summary["layer"], content, report)
    return Track(
        run.name, f"{kind} of {run.name}", "", definition, label, tuple(run.summary["clusters"]),
        plane_of(run, content), axes_of(run),
    )  # fmt: skip


def _labelled(labels: TickLabels, kind: str, layer: str, content: Explored, report: Progress) -> tuple[str, np.ndarray]:
    """Say what labels are of, and label the page's ticks."""
    definition = f"{kind} of {layer}{'' if labels.rule.exact else ', propagated to ticks that the run left out'}"
    label, _ = labels_of_ticks(
        labels, content.run.dump, content.seen, content.simulated, lambda share: report(0.5 + share / 2)
    )
    return definition, label


def _moving(
    finished: FinishedFiles, content: Explored, most: int, first: int, report: Progress
) -> tuple[list[Track], Motion]:
    """Return the behaviours of a run of analyze_dynamics.py, unless the page is about them, and its components.

    Args:
        first: number of the first of these tracks.
    """
    dynamics, name = read_dynamics(finished.path, content.run.dump), finished.path.resolve().name
    components = [finished.directions().named(one.component) for one in dynamics.components[:most]]
    tracks: list[Track] = []
    if dynamics.path.resolve() != content.run.clusters.path.resolve():
        labels = labels_of_behaviours(dynamics, lambda share: report(share / 2))
        layers = " and ".join(dynamics.behaviour_layers)
        definition, label = _labelled(labels, "behaviour", layers, content, report)
        groups = tuple(described(dynamics, label))
        tracks.append(Track(name, f"behaviour of {name}", "", definition, label, groups))
    behaviours = first if tracks else None
    tracks += _read_outs(finished, components, content, report)
    numbers = range(first + len(tracks) - len(components), first + len(tracks))
    return tracks, Motion(dynamics, tuple(numbers), behaviours)


def plane_of(run: FinishedRun, content: Explored) -> np.ndarray | None:
    """Return the places of the points in another run's embedding, (N, 2) float32; None if none is in it."""
    own = {name: values[content.rows] for name, values in content.run.clusters.places.items()}
    place = places_among(own, run.clusters.places)
    if (place < 0).all():
        return None
    return np.where(place[:, None] < 0, np.float32(np.nan), run.embedding[place])


def _overlay(maps: SaliencyMaps, content: Explored) -> Overlay:
    rows = places_among(places_of(content.seen.records), maps.places)  # -1 where a tick has no map
    ticks = np.flatnonzero((rows >= 0) & np.isfinite(maps.value)[rows])  # not where an option of the target was illegal
    if not len(ticks):
        raise NothingOfThePage(f"{maps.path} has no map of this page's lives: draw more samples, or raise --max-ticks")
    owner, row = rows_in_view(content.seen)
    mapped = np.isin(owner, ticks)
    entities = maps.entities[rows[owner[mapped]], np.minimum(row[mapped], maps.entities.shape[1] - 1)]
    parts = maps.parts[rows[ticks]]
    shares = parts / np.maximum(np.nansum(parts, axis=1, keepdims=True), 1e-12)
    return Overlay(maps, ticks, np.nan_to_num(maps.tiles[rows[ticks]]), np.nan_to_num(entities), shares)


def _features(finished: FinishedFiles, content: Explored, most: int, report: Progress) -> list[Track]:
    """Return the strengths of the features, of the run's first autoencoder, that vary most."""
    from torch import from_numpy  # imported here: pages of other runs need no torch

    from agent_zoo.sparse_codes import SparseCoder

    _, scores = finished.read_json(SPARSE_FILE, _Sparse)
    name = next((score.name for score in scores.scores if score.kind in AUTOENCODERS), None)
    if name is None:
        raise UserError(f"{finished.path} holds no autoencoder, only baselines: train one to see its features")
    finished.read(file := f"{name}.safetensors")  # refuses one that was changed
    dictionary = read_dictionary(finished.path / file)
    layer, coder = dictionary.source.layer, SparseCoder(dictionary)

    def strengths(batch: Records) -> np.ndarray:
        return coder.strengths(from_numpy(batch.activations[layer])).numpy()

    count, total, squares = 0, np.zeros(dictionary.features), np.zeros(dictionary.features)
    for batch in batches(content.run.dump, places_of(content.seen.records), layer, lambda share: report(share / 2)):
        some = strengths(batch).astype(np.float64)
        count, total, squares = count + len(some), total + some.sum(axis=0), squares + np.square(some).sum(axis=0)
    variance = squares / count - np.square(total / count)
    varying = np.sort(np.argsort(-variance, kind="stable")[:most])
    values = everywhere(
        content, lambda batch: strengths(batch)[:, varying], layer, lambda share: report(0.5 + share / 2)
    )
    definition, run = f"strength of a sparse feature of {layer}", finished.path.resolve().name
    return [
        Track(run, feature_name(number), "", definition, values[:, i], source=finished.sha256[file])
        for i, number in enumerate(varying.tolist())
    ]


def _read_outs(
    finished: FinishedFiles, chosen: Sequence[Direction], content: Explored, report: Progress
) -> list[Track]:
    """Return the read-outs of some of the run's directions."""
    tracks: list[Track] = []
    for layer in dict.fromkeys(direction.layer for direction in chosen):
        own = [direction for direction in chosen if direction.layer == layer]
        values = everywhere(content, partial(_read_out, own), layer, report)
        tracks += [
            Track(
                finished.path.resolve().name, direction.name, direction.unit,
                f"{direction.source.kind}, read out of {layer}", values[:, i], source=finished.sha256[DIRECTIONS_FILE],
            )
            for i, direction in enumerate(own)
        ]  # fmt: skip
    return tracks


def _read_out(directions: Sequence[Direction], batch: Records) -> np.ndarray:
    """Return the read-outs of directions of one layer, (B, directions)."""
    return np.stack([direction.read_out(batch.activations[direction.layer]) for direction in directions], axis=1)


def everywhere(
    content: Explored, numbers: Numbers, layer: str, report: Progress, columns: tuple[str, ...] = ()
) -> np.ndarray:
    """Compute numbers at each tick of the page, simulated ones last, (T + S, numbers) float32; errors as `along`."""
    dumps = [(content.run.dump, content.seen), *((lives.dump, lives.seen) for lives in content.simulated)]
    parts = [along(dump, places_of(seen.records), numbers, report, layer, columns) for dump, seen in dumps]
    return np.concatenate(parts)
