"""What further runs of a dump say of its ticks: clusters or codes, sparse features, read-outs, saliency maps; edits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.directions import DIRECTIONS_FILE, Direction
from activation_store.lives import places_of
from activation_store.reader import Progress
from activation_store.schema import METADATA_FILE
from activation_store.sparse_dictionary import AUTOENCODERS, feature_name, read_dictionary
from analysis.explorer.content import Explored, Step, axes_of
from analysis.explorer.edits import FILMS_FILE, PlayedEdit, read_edits
from analysis.explorer.simulated import Numbers, along, batches
from analysis.interventions.effects.run_file import EFFECTS_FILE
from analysis.lives import places_among
from analysis.runs.cluster_run import LABELS_FILE
from analysis.runs.dynamics_run import MOTION_FILE, read_dynamics
from analysis.runs.finished_files import FinishedFiles, open_finished
from analysis.runs.finished_run import FinishedRun, read_run
from analysis.runs.propagated_labels import fit_rule, propagate_labels
from analysis.runs.saliency_maps import MAPS_FILE, SaliencyMaps, read_saliency
from common.files import sha256
from common.user_error import UserError

SPARSE_FILE = "sparse.json"


@dataclass(frozen=True, eq=False)
class Track:
    """One thing that a run says of each of T ticks: a number, or the cluster that the tick is in.

    Attributes:
        run: name of the run's folder.
        values: (T + S,) float32, or the labels of clusters, int64; of simulated ticks last.
        clusters: as the run's summary describes them; none for numbers.
        plane: places of the page's N points in the run's embedding, (N, 2) float32; NaN for those that are not in it.
        axes: what its axes are called.
        source: SHA-256 of the file that its direction or sparse feature is in; empty for clusters.
    """

    run: str
    name: str
    unit: str
    definition: str
    values: np.ndarray
    clusters: tuple[dict[str, Any], ...] = ()
    plane: np.ndarray | None = None
    axes: str = ""
    source: str = ""


@dataclass(frozen=True, eq=False)
class Overlay:
    """Saliency maps over the views of some ticks of a page.

    Attributes:
        ticks: indices of the page's ticks that have a map, ascending, (M,) int64.
        tiles: attribution of each tile of their views to what the policy computes in the same tick, (M, 225) float32.
    """

    maps: SaliencyMaps
    ticks: np.ndarray
    tiles: np.ndarray


@dataclass(frozen=True, eq=False)
class Matrix:
    """How far each of K components of a run moves the others a tick later.

    Attributes:
        tracks: numbers of the components among the page's tracks, (K,).
        moved: mean over states of d component i / d component j a tick earlier, (K i, K j).
    """

    run: str
    tracks: tuple[int, ...]
    moved: np.ndarray

    @property
    def most(self) -> float:
        """The largest |derivative| between two different components, or of all where there is only one."""
        between = ~np.eye(len(self.tracks), dtype=bool) if len(self.tracks) > 1 else True
        return float(np.abs(self.moved).max(where=between, initial=1e-12))


@dataclass(frozen=True, eq=False)
class Further:
    """What further runs say of the ticks of a page, and of edits of its policy."""

    tracks: tuple[Track, ...] = ()
    overlays: tuple[Overlay, ...] = ()
    edits: tuple[PlayedEdit, ...] = ()
    films: dict[str, str] = field(default_factory=dict)
    """Pages of twins, with and without the edit, by the run that edited."""
    matrices: tuple[Matrix, ...] = ()

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


def open_further(run: FinishedRun, others: Sequence[Path], simulated: Sequence[Path]) -> list[FinishedFiles]:
    """Open the runs that are shown beside a run, before anything that takes time.

    Raises:
        UserError: a run is unfinished or damaged, or of another dump, or two of what is shown have the same name.
    """
    names = [path.resolve().name for path in (run.clusters.path, *others, *simulated)]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"two of what is shown are called {repeated[0]}: give each once")
    dump, opened = sha256(run.dump / METADATA_FILE), [open_finished(path) for path in others]
    for finished in opened:
        if EFFECTS_FILE not in finished and dump not in finished.description().input.values():
            raise UserError(f"{finished.path} was not made from {run.dump}: a page is about one dump")
    return opened


def read_further(runs: Sequence[FinishedFiles], content: Explored, most: int, step: Step) -> Further:
    """Read what further runs say of the ticks of a page.

    Args:
        runs: from `open_further`.
        most: maximum of numbers of one run: of sparse features those that vary most, of others the first.

    Raises:
        UserError: a run is damaged, of another policy or of a kind that says nothing of ticks, or has maps of none of
            the page's ticks.
    """
    tracks: list[Track] = []
    overlays: list[Overlay] = []
    edits: list[PlayedEdit] = []
    films: dict[str, str] = {}
    matrices: list[Matrix] = []
    for finished in runs:
        path, name = finished.path, finished.path.resolve().name
        if EFFECTS_FILE in finished:  # of lives that were played for it, in no dump
            edits += read_edits(finished, content.seen.metadata.checkpoint_sha256)
            if FILMS_FILE in finished:
                films[name] = finished.read(FILMS_FILE).decode(errors="replace")
            continue
        with step(f"reading {name}") as report:
            if MOTION_FILE in finished:
                read_outs = _read_outs(finished, content, most, report)
                matrices += _matrix(path, content, read_outs, len(tracks))
                tracks += read_outs
            elif LABELS_FILE in finished:
                tracks.append(_labels(path, content, report))
            elif SPARSE_FILE in finished:
                tracks += _features(finished, content, most, report)
            elif DIRECTIONS_FILE in finished:
                tracks += _read_outs(finished, content, most, report)
            elif MAPS_FILE in finished:
                overlays.append(_overlay(read_saliency(path), content))
            else:
                raise UserError(
                    f"{path} says nothing of single ticks: give a run with clusters, codes, features, directions, "
                    "saliency maps or interventions, or a dump of simulated lives"
                )
    return Further(tuple(tracks), tuple(overlays), tuple(edits), films, tuple(matrices))


def _labels(path: Path, content: Explored, report: Progress) -> Track:
    run = read_run(path, content.run.dump)
    rule = fit_rule(run.clusters, run.dump, lambda share: report(share / 2))
    labels = propagate_labels(run.clusters, run.dump, rule, content.life_keys, lambda share: report(0.5 + share / 2))
    label = np.concatenate([labels.of(content.seen.records)[0], content.simulated_labels(run.clusters.layer, rule)])
    kind, layer = "code" if rule.exact else "cluster", run.summary["layer"]
    definition = f"{kind} of {layer}{'' if rule.exact else ', propagated to ticks that the run left out'}"
    clusters = tuple(run.summary["clusters"])
    return Track(
        run.name, f"{kind} of {run.name}", "", definition, label, clusters, plane_of(run, content), axes_of(run)
    )


def plane_of(run: FinishedRun, content: Explored) -> np.ndarray | None:
    """Return the places of the points in another run's embedding, (N, 2) float32; None if none is in it."""
    own = {name: values[content.rows] for name, values in content.run.clusters.places.items()}
    place = places_among(own, run.clusters.places)
    if (place < 0).all():
        return None
    return np.where(place[:, None] < 0, np.float32(np.nan), run.embedding[place])


def _overlay(maps: SaliencyMaps, content: Explored) -> Overlay:
    rows = maps.rows_at(places_of(content.seen.records))
    ticks = np.flatnonzero((rows >= 0) & np.isfinite(maps.value)[rows])  # not where an option of the target was illegal
    if not len(ticks):
        raise UserError(f"{maps.path} has no map of the lives in this page: draw more samples, or raise --max-ticks")
    return Overlay(maps, ticks, np.nan_to_num(maps.tiles[rows[ticks], 0]))


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

    def strengths(states: np.ndarray) -> np.ndarray:
        return coder.strengths(from_numpy(states)).numpy()

    count, total, squares = 0, np.zeros(dictionary.features), np.zeros(dictionary.features)
    for batch in batches(content.run.dump, content.seen, layer, lambda share: report(share / 2)):
        some = strengths(batch.activations[layer]).astype(np.float64)
        count, total, squares = count + len(some), total + some.sum(axis=0), squares + np.square(some).sum(axis=0)
    variance = squares / count - np.square(total / count)
    varying = np.sort(np.argsort(-variance, kind="stable")[:most])
    values = _along(content, layer, lambda states: strengths(states)[:, varying], lambda share: report(0.5 + share / 2))
    definition, run = f"strength of a sparse feature of {layer}", finished.path.resolve().name
    return [
        Track(run, feature_name(number), "", definition, values[:, i], source=finished.sha256[file])
        for i, number in enumerate(varying.tolist())
    ]


def _read_outs(finished: FinishedFiles, content: Explored, most: int, report: Progress) -> list[Track]:
    """Return the read-outs of the run's first directions."""
    chosen = finished.directions().directions[:most]
    tracks: list[Track] = []
    for layer in dict.fromkeys(direction.layer for direction in chosen):
        own = [direction for direction in chosen if direction.layer == layer]
        values = _along(content, layer, partial(_stacked, own), report)
        tracks += [
            Track(
                finished.path.resolve().name, direction.name, direction.unit,
                f"{direction.source.kind}, read out of {layer}", values[:, i], source=finished.sha256[DIRECTIONS_FILE],
            )
            for i, direction in enumerate(own)
        ]  # fmt: skip
    return tracks


def _matrix(path: Path, content: Explored, tracks: Sequence[Track], first: int) -> Iterator[Matrix]:
    """Yield what moves what among the components that the page shows, where the run measured it."""
    dynamics = read_dynamics(path, content.run.dump)
    numbers = {track.name: first + i for i, track in enumerate(tracks)}
    shown = [i for i, component in enumerate(dynamics.components) if component.component in numbers]
    known = dynamics.states * np.isfinite(dynamics.jacobian[:, -1]).all(axis=(1, 2))  # of each behaviour, (B,)
    if dynamics.jacobian.shape[1] > 1 and shown and known.any():
        weighted = np.nan_to_num(dynamics.jacobian[:, 1]) * (known / known.sum())[:, None, None]  # (B, K, K)
        names = (numbers[dynamics.components[i].component] for i in shown)
        yield Matrix(path.resolve().name, tuple(names), weighted.sum(axis=0)[np.ix_(shown, shown)])


def _stacked(directions: Sequence[Direction], states: np.ndarray) -> np.ndarray:
    """Return the read-outs of states, (B, units) to (B, directions)."""
    return np.stack([direction.read_out(states) for direction in directions], axis=1)


def _along(content: Explored, layer: str, numbers: Numbers, report: Progress) -> np.ndarray:
    """Compute numbers from a layer's activations at each tick of the page, simulated ones last, (T + S, numbers)."""
    dumps = [(content.run.dump, content.seen), *((lives.dump, lives.seen) for lives in content.simulated)]
    return np.concatenate([along(dump, seen, layer, numbers, report) for dump, seen in dumps])
