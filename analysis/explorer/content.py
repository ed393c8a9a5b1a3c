"""The data of the explorer: an analysis run's points, and every tick of their lives, recorded and simulated.

Simulated lives go on from ticks of the page: what a world model expects there, beside what happened.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.lives import number_lives, places_of
from activation_store.reader import Progress, read_dump, read_identity, read_metadata
from activation_store.schema import METADATA_FILE, SOURCE_DUMP, STARTS, DumpMetadata, Records
from analysis.explorer.base import Base, LeftOut, NothingOfThePage, TickLabels, refuse
from analysis.features import Feature, feature_matrix, features_named
from analysis.features.choices import GOAL
from analysis.features.observed import Observed, own_truth_columns
from analysis.labels import NOISE
from analysis.life.events import DONE, KILLS
from analysis.life.timeline import Timeline, columns_used, timeline_of
from analysis.lives import Lives, lives_of, places_among
from analysis.runs.cluster_run import FinishedRun
from analysis.statistics.circular_shift import TimeCourse, age_of, time_course
from analysis.statistics.inference import FEWEST_EPISODES
from analysis.statistics.shifts import SharedShifts, random_shifts, shared_shifts
from common.files import sha256
from common.progress_view import Step
from common.user_error import UserError

_FEWEST_PERMUTATIONS = 99
_NEIGHBOURS, _LOOKED_THROUGH = 6, 64
"""Neighbours of a point in other lives, among how many of its nearest points they are looked for."""
_MOST_SHIFTS = 6_000_000  # roughly the bytes in the page


@dataclass(frozen=True, eq=False)
class Simulated:
    """Lives that a world model simulated, each from a tick of a page on. L lives."""

    dump: Path
    seen: Observed
    timeline: Timeline  # of the lives, one after the other
    begins: np.ndarray  # index of the page's tick that each life begins with, (L,) int64

    @property
    def name(self) -> str:
        """Name of the dump's folder, which says how its lives were edited."""
        return self.dump.resolve().name

    @property
    def edits(self) -> str:
        """What was done in them, in words."""
        described, edits = self.seen.metadata.environment["simulated"], []
        for edit in described.get("edits", ()):
            names = [edit.get(kind, ()) for kind in ("directions", "features", "r_squared")]
            words = [str(edit["edit"]), *(str(name).rpartition("/")[2] for some in names for name in some)]
            dose = edit.get("dose")
            edits.append(" ".join(words) + (f", dose {dose:+g}" if isinstance(dose, int | float) else ""))
        until = f" until tick {described['until_tick']}" if "until_tick" in described else ""
        first = ", first moves given" if described.get("moves") else ""
        return (" and ".join(edits) + until if edits else "unedited") + first

    @property
    def behind(self) -> np.ndarray:
        """How many ticks after the first one of its life each tick is, (S,) int64."""
        lengths = self.timeline.lives.lengths
        return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def is_simulated(path: Path) -> bool:
    """Whether a folder is a dump of simulated lives; `UserError` if it is one that cannot be read."""
    return (path / METADATA_FILE).exists() and read_metadata(path).origin == "simulated"


def read_simulated(dump: Path, source: Path, ticks: Records, most: int, report: Progress) -> Simulated:
    """Read the simulated lives that go on from ticks of a page.

    Args:
        source: the recorded dump of the page, which it must have been simulated from.
        ticks: of the page.
        most: maximum of simulated ticks to read; above it, the last lives are left out.

    Raises:
        UserError: as `read_dump`; its lives were simulated from another dump, from no single ticks, or from none of the
            page.
    """
    metadata = read_metadata(dump)
    described: Any = metadata.environment.get("simulated")
    if not isinstance(described, dict) or described.get(SOURCE_DUMP) != sha256(source / METADATA_FILE):
        raise UserError(f"{dump} was not simulated from {source}: simulate from it, with --dump {source}")
    lives, starts = _starts(dump, metadata)
    begins = places_among(_without_slot(starts), _without_slot(places_of(ticks)))
    kept = np.flatnonzero(begins >= 0)[: max(1, most // max(1, int(described.get("ticks", 1))))]
    if not len(kept):
        raise NothingOfThePage(f"{dump} has no life from a tick of this page on: simulate more, or raise --max-ticks")
    read = read_dump(
        dump, layers=[], columns=columns_used(metadata), leave_out=["tables"], lives=lives[kept].tolist(),
        progress=report,
    )  # fmt: skip
    timeline = timeline_of(read, metadata)
    there, _ = number_lives(places_of(timeline.records))  # (L, 3), in the order of the timeline
    place = {tuple(life): int(begin) for life, begin in zip(lives[kept].tolist(), begins[kept], strict=True)}
    return Simulated(
        dump, Observed(timeline.records, metadata), timeline, np.array([place[tuple(life)] for life in there.tolist()])
    )


def _starts(dump: Path, metadata: DumpMetadata) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return slot, agent and episode of each simulated life, (L, 3), and the recorded ticks that they go on from."""
    if not all(STARTS in episode for episode in metadata.episodes):
        raise UserError(f"{dump} does not say which ticks its lives go on from: simulate it again, without --from")
    try:
        rows = [(episode["episode"], np.array(episode[STARTS], np.int64)) for episode in metadata.episodes]
        starts = np.concatenate([start.reshape(-1, 3) for _, start in rows])
        slots = np.concatenate([np.arange(len(start)) for _, start in rows])
        episodes = np.repeat([int(number) for number, _ in rows], [len(start) for _, start in rows])
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{dump / METADATA_FILE} is damaged: copy the dump or simulate it again") from error
    named = dict(zip(("episode", "agent_id", "tick"), starts.T, strict=True))
    return np.stack([slots, slots + 1, episodes], axis=1), named


def _without_slot(places: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the identity of ticks without the slot, which follows from the episode."""
    return {**places, "env_id": np.zeros_like(places["tick"])}


_AXES = {"umap": "UMAP", "tsne": "t-SNE", "pca": "component"}


def axes_of(run: FinishedRun) -> str:
    """Return what the axes of a run's embedding are called."""
    arguments = run.clusters.arguments
    return "plane" if "codes" in arguments else _AXES.get(str(arguments.get("projection", "umap")), "dimension")


@dataclass(frozen=True, eq=False)
class Explored:
    """N points, T ticks, F features, L lives."""

    run: FinishedRun
    seen: Observed  # every tick of the points' lives, in the order of `timeline`
    timeline: Timeline  # the agents' state at those ticks, by life, then tick
    rows: np.ndarray  # indices of the points among the run's records, ascending, (N,) int64
    place: np.ndarray  # index of the tick of each point, (N,) int64
    labels: TickLabels  # how ticks are labelled
    tick_labels: tuple[np.ndarray, np.ndarray]
    """The label of each tick, simulated ones last, (T + S,) int64; whether the run itself gave it, bool."""
    states: np.ndarray  # of the points, where distances say how much alike they are, (N, C); C is 0 where none do
    features: tuple[Feature, ...]  # columns of `values`
    values: np.ndarray  # of the points, (N, F) float64
    lives_of_run: int  # number of lives in the run; more than L if some are left out
    whole: bool  # whether all lives of the dump were read, those without points too, so that killers are known
    simulated: tuple[Simulated, ...] = ()  # lives that world models simulated, which go on from these ticks

    @cached_property
    def lives(self) -> Lives:
        """Which life each point belongs to, as the run's statistics number lives."""
        return lives_of(self.seen.records.take(self.place))

    @cached_property
    def neighbours(self) -> np.ndarray:
        """The points of other lives whose states are most alike, nearest first, (N, K) int64; -1 where there are fewer.

        K is 0 where no distances say so.
        """
        from sklearn.neighbors import NearestNeighbors

        states, life = self.states, self.lives.index
        if not states.shape[1]:
            return np.empty((len(states), 0), np.int64)
        model = NearestNeighbors(n_neighbors=min(_LOOKED_THROUGH, len(states))).fit(states)
        near = model.kneighbors(states, return_distance=False)
        other = life[near] != life[:, None]
        order = np.argsort(~other, axis=1, kind="stable")[:, :_NEIGHBOURS]
        return np.where(np.take_along_axis(other, order, 1), np.take_along_axis(near, order, 1), -1)

    @cached_property
    def categories(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """The options of each of the run's categorical features, and which of them holds at each point, (N,) int64.

        `NOISE` where none does. Goals are among them where they differ, also if the run was made without them.
        """
        held = {}
        for choice, places in self.by_choice.items():
            if choice:
                options = tuple(self.features[place].name.removeprefix(f"{choice}_") for place in places)
                columns = self.values[:, places]
                held[choice] = options, np.where(columns.any(axis=1), columns.argmax(axis=1), NOISE)
        goals = GOAL.compute(Observed(self.seen.records.take(self.place), self.seen.metadata))
        if len(set(goals.tolist())) > 1:
            held[GOAL.name] = tuple(GOAL.options), goals
        return held

    @property
    def by_choice(self) -> dict[str, list[int]]:
        """The columns of `values` of each categorical feature; those of no such feature first, under ""."""
        groups: dict[str, list[int]] = {"": []}
        for i, feature in enumerate(self.features):
            groups.setdefault(feature.choice, []).append(i)
        return {choice: places for choice, places in groups.items() if places}

    @cached_property
    def shifts(self) -> np.ndarray:
        """The shift in records of each life's labels in each permutation of the run's test, (M + 1, L) int64.

        The first row is zero. With very many lives there are fewer permutations than in the run.
        """
        return random_shifts(self.lives, self._permutations, self.run.seed)

    @cached_property
    def shared_shifts(self) -> SharedShifts | None:
        """The shifts of whole episodes; None if there are too few episodes for that test."""
        episode = self.seen.records.episode[self.place]
        if len(np.unique(episode)) < FEWEST_EPISODES:
            return None
        return shared_shifts(self.lives, episode, self._permutations, self.run.seed)

    @cached_property
    def time_course(self) -> TimeCourse:
        """The part of the points' features that tick and age explain."""
        tick = self.seen.records.tick[self.place]
        return time_course(self.values, tick, age_of(tick, self.lives))

    @property
    def _permutations(self) -> int:
        return min(self.run.permutations, max(_FEWEST_PERMUTATIONS, _MOST_SHIFTS // len(self.lives)))


def explored(
    base: Base, most_ticks: int, step: Step, simulated: Sequence[Path] = (), left_out: LeftOut = refuse
) -> Explored:
    """Read every tick of a run's lives, or of a random sample of its lives drawn with the run's seed.

    Args:
        most_ticks: maximum to read, of each dump; above it, whole lives are left out.
        simulated: dumps of lives that go on from these ticks.
        left_out: is called with one of these that has none.

    Raises:
        UserError: as `activation_store.reader.read_dump`; the run names features that do not exist or records that
            are not in the dump; or no life is short enough. As `read_simulated`.
    """
    run, labels, states = base
    metadata = read_metadata(run.dump)
    features = features_named(feature["name"] for feature in run.summary["features"])
    lives_of_run, _ = number_lives(run.clusters.places)
    of_dump, life = number_lives(read_identity(run.dump))
    ticks = dict(zip(map(tuple, of_dump.tolist()), np.bincount(life).tolist(), strict=True))
    drawn = np.random.default_rng(run.seed).permutation(lives_of_run)
    chosen = drawn[np.cumsum([ticks.get(tuple(life), 0) for life in drawn.tolist()]) <= most_ticks]
    if not len(chosen):
        raise UserError(f"--max-ticks {most_ticks} is less than one life of {run.dump}: increase it")
    columns = [*own_truth_columns(metadata), *(name for name in (DONE, KILLS) if name in metadata.columns)]
    whole = sum(ticks.values()) <= most_ticks
    with step(f"reading {run.dump.name}") as report:
        read = read_dump(
            run.dump, layers=[], columns=columns, leave_out=["tables"], lives=None if whole else chosen.tolist(),
            progress=report,
        )  # fmt: skip
    with step("extracting events"):
        timeline = timeline_of(read, metadata)
        if whole:  # a run has no record of some short lives, and in one of them an agent may have killed another
            timeline = timeline.of(chosen)
    records = timeline.records
    place = places_among(run.clusters.places, places_of(records))
    rows = np.flatnonzero(place >= 0)
    if not len(rows) or (len(chosen) == len(lives_of_run) and len(rows) < len(place)):
        raise UserError(f"{run.clusters.path} labels records that {run.dump} does not hold: analyse the dump again")
    with step("computing features"):
        values = feature_matrix(records.take(place[rows]), metadata, features, records)
    parts = []
    for dump in simulated:
        try:
            with step(f"reading {dump.name}") as report:
                parts.append(read_simulated(dump, run.dump, records, most_ticks, report))
        except NothingOfThePage as error:
            left_out(dump, error)
    seen = Observed(records, metadata)
    with step("labelling the ticks that the run left out") as report:
        tick_labels = labels_of_ticks(labels, run.dump, seen, parts, report)
    return Explored(
        run, seen, timeline, rows, place[rows], labels, tick_labels, states[rows], features, values,
        len(lives_of_run), whole, tuple(parts),
    )  # fmt: skip


def labels_of_ticks(
    labels: TickLabels, dump: Path, seen: Observed, simulated: Sequence[Simulated], report: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Label the ticks of a page, simulated ones last: (T + S,) int64, and whether the run itself did, (T + S,) bool."""
    label, own = labels.of(dump, places_of(seen.records), report)
    others = [labels.by_rule(lives.dump, places_of(lives.seen.records), report) for lives in simulated]
    label = np.concatenate([label, *others])
    return label, np.pad(own, (0, len(label) - len(own)))
