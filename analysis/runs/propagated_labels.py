"""Cluster labels for the records that a run left out, by a vote of the nearest labelled records.

The rule: project activations onto the principal components of the labelled ones, and let the nearest labelled records
vote (Euclidean, the run's own distances except for the components left out). Noise is a label like any other; the
nearer records win ties. The number of voters is the one that does best on held-out lives.

And points of a run that somebody selected in the explorer and saved to a file: they are labels to carry, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from activation_store.lives import places_of
from activation_store.reader import Progress, read_batches, read_dump, read_metadata
from activation_store.schema import IDENTITY, Records
from activation_store.selection import OBSERVATIONS, select
from analysis.lives import lives_of, places_among
from analysis.runs.cluster_run import ClusterRun, read_cluster_run, recorded_dump
from analysis.runs.codebook_rule import CODEBOOK_FILE, CodebookRule, read_codebook
from analysis.runs.finished_files import open_finished
from common.checked_json import in_shape, read_small_json
from common.progress_view import step
from common.user_error import UserError

if TYPE_CHECKING:
    from rich.console import Console
    from sklearn.neighbors import NearestNeighbors

    from analysis.runs.run_folder import RunFolder


SELECTION_KIND = "selection of points"
_ADVICE = "select points in the explorer and press Save"
COMPONENTS = 30
VOTERS = (1, 3, 5, 9, 15)
FOLDS = 5
_ONLY_ACTIVATIONS = [*OBSERVATIONS, "tables"]
_EARLIER_FIRST = 1e-6
"""Extra weight of a vote over that of the next neighbour: the nearer win ties, and nothing else changes."""


@dataclass(frozen=True)
class HeldOut:
    """How well a rule labels records of held-out lives."""

    voters: int  # of the rule, the best of `VOTERS` by balanced agreement
    agreement: float  # share of labelled records that get the run's own label
    balanced_agreement: float  # the mean of that share over labels, so that rare ones count as much as common ones
    commonest: float  # share of the most common label, which is the agreement of always predicting it
    records: int
    lives: int


@dataclass(frozen=True)
class CarryingRule:
    """A rule that labels records. N labelled records, C components."""

    exact: ClassVar[bool] = False
    """Whether it labels every record as the run would have."""

    mean: np.ndarray  # of the labelled activations, (units,) float32
    components: np.ndarray  # principal directions, (C, units) float32
    points: np.ndarray  # labelled activations along them, (N, C) float32
    label: np.ndarray
    voters: int  # number of nearest records that vote
    held_out: HeldOut | None  # accuracy on held-out lives; None if there is only one life
    states: str = "the activations; noise counts as a label"  # what they are, in words, and which count

    def labels_of(self, activations: np.ndarray) -> np.ndarray:
        """Label activations of the run's layer, (B, units) to (B,) int64."""
        return self.labels_along((activations - self.mean) @ self.components.T)

    def labels_along(self, projected: np.ndarray) -> np.ndarray:
        """Label points along the components, (B, C) to (B,) int64."""
        return _votes(self.label[self._neighbours.kneighbors(projected, return_distance=False)], (self.voters,))[0]

    @cached_property
    def _neighbours(self) -> "NearestNeighbors":
        return _nearest(self.points, self.voters)

    def in_words(self) -> str:
        """Return sentences that describe the rule and its accuracy."""
        rule = (
            f"Records that the run left out get the most common label of the {self.voters} nearest labelled records, "
            f"by distance along {len(self.components)} principal components of {self.states}."
        )
        if self.held_out is None:
            return f"{rule} With only one life, the accuracy of this rule is unknown."
        held_out = self.held_out
        return (
            f"{rule} On labelled records of lives that had no vote ({held_out.lives:,} lives, {held_out.records:,} "
            f"records) it gives the run's own label in {held_out.agreement:.1%} "
            f"({held_out.balanced_agreement:.1%} on average over labels; "
            f"always guessing the most common label: {held_out.commonest:.1%})."
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the rule as arrays."""
        return {"mean": self.mean, "components": self.components, "points": self.points, "label": self.label}

    def numbers(self) -> dict[str, Any]:
        """Return the rule's numbers for JSON."""
        held_out = asdict(self.held_out) if self.held_out else None
        return {"voters": self.voters, "components": len(self.components), "held_out": held_out}


Rule = CarryingRule | CodebookRule


@dataclass(frozen=True)
class PropagatedLabels:
    """A label for every record. B records."""

    places: dict[str, np.ndarray]
    """Identity of each record, the columns of `IDENTITY`, (B,) int64 each, in the order of the dump."""
    label: np.ndarray  # (B,) int64, cluster from 0 or `labels.NOISE`
    exact: np.ndarray  # whether the run itself labelled the record, (B,) bool
    rule: Rule

    def of(self, records: Records) -> tuple[np.ndarray, np.ndarray]:
        """Return `label` and `exact` of records, (B,) int64 and (B,) bool.

        Raises:
            ValueError: a record has no label.
        """
        place = places_among(places_of(records), self.places)
        if (place < 0).any():
            raise ValueError("a record has no label: labels must be propagated to its life first")
        return self.label[place], self.exact[place]


def fit_rule(run: ClusterRun, dump: Path, progress: Progress | None = None) -> Rule:
    """Fit a rule for labelling the remaining records to those that a run labelled; a semantic run has its codebook.

    Raises:
        UserError: the dump cannot be read, or lacks records that the run labelled.
    """
    finished = open_finished(run.path)
    if CODEBOOK_FILE in finished:
        return read_codebook(finished)
    labelled = labelled_records(run, dump, progress)
    return rule_from(labelled.activations[run.layer], run.label, lives_of(labelled).index)


def labelled_records(run: ClusterRun, dump: Path, progress: Progress | None) -> Records:
    """Read the activations of the records that a run labelled, in the run's order.

    Raises:
        UserError: the dump cannot be read, or lacks records that the run labelled.
    """
    records = read_dump(
        dump, subsample=run.subsample, layers=[run.layer], columns=[], leave_out=_ONLY_ACTIVATIONS, progress=progress
    )
    place = places_among(run.places, places_of(records))
    if (place < 0).any():
        raise UserError(f"{run.path} labels records that {dump} does not hold: analyse the dump again")
    return records.take(place)


def rule_from(activations: np.ndarray, label: np.ndarray, life: np.ndarray) -> CarryingRule:
    """Choose the number of voters by holding out lives, then let all labelled records vote.

    Activations of labelled records are (N, units) float32, labels and lives (N,) int64.
    """
    held_out = _hold_out(activations, label, life) if len(np.unique(life)) > 1 else None
    mean, components = _principal(activations)
    voters = held_out.voters if held_out else min(VOTERS[len(VOTERS) // 2], len(label))
    return CarryingRule(mean, components, (activations - mean) @ components.T, label, voters, held_out)


def propagate_labels(
    run: ClusterRun, dump: Path, rule: Rule, lives: Iterable[Sequence[int]] | None = None,
    progress: Progress | None = None,
) -> PropagatedLabels:  # fmt: skip
    """Label every record of a dump, or of some of its lives; memory holds only one batch of activations.

    Lives are each a slot, an agent and an episode; None for all.

    Raises:
        UserError: the dump cannot be read, or has no records of these lives.
    """
    metadata = read_metadata(dump)
    wanted = select(dump, metadata, layers=[run.layer], columns=[], leave_out=_ONLY_ACTIVATIONS, lives=lives)
    parts = [
        {**{name: getattr(batch, name) for name in IDENTITY}, "label": rule.labels_of(batch.activations[run.layer])}
        for batch in read_batches(dump, metadata, wanted, progress)
        if len(batch)
    ]
    if not parts:
        raise UserError(f"{dump} holds no record of the requested lives")
    places = {name: np.concatenate([part[name] for part in parts]) for name in (*IDENTITY, "label")}
    label = places.pop("label")
    place = places_among(places, run.places)
    exact = place >= 0
    label[exact] = run.label[place[exact]]
    return PropagatedLabels(places, label, exact | rule.exact, rule)


def label_records(
    run: ClusterRun, dump: Path, folder: "RunFolder", console: "Console", lives: Iterable[Sequence[int]] | None = None
) -> PropagatedLabels:
    """Fit a rule, label every record of a dump, or of some of its lives, and save the labels and the rule."""
    with step(console, "learning from the run's labels") as report:
        rule = fit_rule(run, dump, report)
    with step(console, "labelling the remaining records") as report:
        propagated = propagate_labels(run, dump, rule, lives, report)
    save_propagated(folder, propagated, run)
    return propagated


def save_propagated(folder: "RunFolder", propagated: PropagatedLabels, run: ClusterRun) -> None:
    """Write propagated_labels.npz, and the rule and its inputs to propagation_rule.npz and .json."""
    rule = propagated.rule
    folder.save_arrays("propagated_labels.npz", **propagated.places, label=propagated.label, exact=propagated.exact)
    folder.save_arrays("propagation_rule.npz", **rule.arrays())
    judged = {
        "rule": rule.in_words(), "layer": run.layer, **rule.numbers(), "records": len(propagated.label),
        "labelled_by_the_run": int(propagated.exact.sum()), "cluster_run": str(run.path),
        "cluster_labels_sha256": run.labels_sha256, "dump_metadata_sha256": run.dump_sha256,
    }  # fmt: skip
    folder.save_json("propagation_rule.json", judged)


def _hold_out(activations: np.ndarray, label: np.ndarray, life: np.ndarray) -> HeldOut:
    from sklearn.metrics import recall_score
    from sklearn.model_selection import GroupKFold

    lives = len(np.unique(life))
    given = np.empty((len(VOTERS), len(label)), np.int64)
    for others, held in GroupKFold(min(FOLDS, lives)).split(activations, groups=life):
        mean, components = _principal(activations[others])
        points, query = ((activations[rows] - mean) @ components.T for rows in (others, held))
        most = min(max(VOTERS), len(others))
        near = _nearest(points, most).kneighbors(query, return_distance=False)  # (held, most)
        given[:, held] = _votes(label[others][near], VOTERS)
    balanced = [float(recall_score(label, predicted, average="macro")) for predicted in given]
    best = int(np.argmax(balanced))
    _, counts = np.unique(label, return_counts=True)
    agreement = float((given[best] == label).mean())
    return HeldOut(VOTERS[best], agreement, balanced[best], float(counts.max() / len(label)), len(label), lives)


def _principal(activations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.decomposition import PCA

    # The full decomposition is exact, so no seed is needed.
    model = PCA(min(COMPONENTS, *activations.shape), svd_solver="covariance_eigh").fit(activations)
    return model.mean_.astype(np.float32), model.components_.astype(np.float32)


def _nearest(points: np.ndarray, neighbours: int) -> "NearestNeighbors":
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=min(neighbours, len(points))).fit(points)


def _votes(labels: np.ndarray, voters: tuple[int, ...]) -> np.ndarray:
    """Return the winning label for each number of voters: (B, neighbours) to (len(voters), B) int64."""
    names, number = np.unique(labels, return_inverse=True)
    number = number.reshape(labels.shape)
    count = np.zeros((len(labels), len(names)))
    winners = np.empty((labels.shape[1], len(labels)), np.int64)
    for place in range(labels.shape[1]):
        count[np.arange(len(labels)), number[:, place]] += 1 + _EARLIER_FIRST * (labels.shape[1] - place)
        winners[place] = names[count.argmax(axis=1)]
    return winners[[min(voter_count, labels.shape[1]) - 1 for voter_count in voters]]


@dataclass(frozen=True)
class _File:
    """The content of the file, as the explorer writes it."""

    kind: str
    run: str
    runKey: str  # SHA-256 of the run's labels
    folder: str  # of the run
    records: list[int]


@dataclass(frozen=True)
class Selection:
    """Selected points of a run."""

    run: ClusterRun
    dump: Path  # folder of the dump that the run was made from
    records: np.ndarray  # which of the run's records are selected, ascending, (N,) int64

    @property
    def places(self) -> dict[str, np.ndarray]:
        """Identity of the selected records, the columns of `IDENTITY`, (N,) int64 each."""
        return {name: column[self.records] for name, column in self.run.places.items()}

    def rule(self) -> CarryingRule:
        """Fit a rule that labels states of the run's layer: 1 where they are like the selected ones, 0 elsewhere.

        Raises:
            UserError: the dump cannot be read, or lacks records of the run.
        """
        labelled = labelled_records(self.run, self.dump, None)
        selected = np.zeros(len(self.run.label), np.int64)
        selected[self.records] = 1
        return rule_from(labelled.activations[self.run.layer], selected, lives_of(labelled).index)


def read_selection(path: Path, dump: Path | None = None) -> Selection:
    """Read a selection, and the labels of the run that it was made in.

    Args:
        dump: folder of the run's dump; by default where the run found it.

    Raises:
        UserError: the file is no selection, its run is no longer there or has changed, or was made from another dump.
    """
    content = in_shape(_File, read_small_json(path), f"{path} holds no selection", _ADVICE)
    if content.kind != SELECTION_KIND:
        raise UserError(f"{path} holds {content.kind!r}, no selection: {_ADVICE}")
    folder = Path(content.folder)
    if not folder.is_dir():
        raise UserError(f"{path} was selected in the run {folder}, which is not there: write its folder into the file")
    dump = dump or recorded_dump(folder, open_finished(folder).description())
    run = read_cluster_run(folder, dump)
    if run.labels_sha256 != content.runKey:
        raise UserError(f"{path} was selected in another run than {folder} is now: {_ADVICE}")
    records = np.unique(np.array(content.records, np.int64))
    if not len(records) or records[0] < 0 or records[-1] >= len(run.label):
        raise UserError(f"{path} must name records of {folder}, from 0 to {len(run.label) - 1}: {_ADVICE}")
    return Selection(run, dump, records)
