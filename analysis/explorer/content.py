"""The data of the explorer: an analysis run's points, and every tick of their lives."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from activation_store.lives import number_lives, places_of
from activation_store.reader import Progress, read_dump, read_identity, read_metadata
from analysis.explorer.simulated import Simulated, along, read_simulated
from analysis.features import Feature, feature_matrix, features_named
from analysis.features.observed import Observed, own_truth_columns
from analysis.features.ways import GOAL
from analysis.labels import NOISE
from analysis.life.endings import DONE, KILLS
from analysis.life.timeline import Timeline, timeline_of
from analysis.lives import Lives, lives_of, places_among
from analysis.runs.finished_run import FinishedRun
from analysis.runs.propagated_labels import CarryingRule, PropagatedLabels, Rule, fit_rule, propagate_labels
from analysis.statistics.circular_shift import TimeCourse, age_of, time_course
from analysis.statistics.inference import FEWEST_EPISODES
from analysis.statistics.shifts import SharedShifts, random_shifts, shared_shifts
from common.user_error import UserError

Step = Callable[[str], AbstractContextManager[Progress]]
"""Shows that a step is running and yields a callback for the share done."""

_FEWEST_PERMUTATIONS = 99
_NEIGHBOURS, _LOOKED_THROUGH = 6, 64
"""Neighbours of a point in other lives, among how many of its nearest points they are looked for."""
_MOST_SHIFTS = 6_000_000  # roughly the bytes in the page


_AXES = {"umap": "UMAP", "tsne": "t-SNE", "pca": "component"}


def axes_of(run: FinishedRun) -> str:
    """Return what the axes of a run's embedding are called."""
    arguments = run.clusters.arguments
    return "plane" if "codes" in arguments else _AXES.get(str(arguments.get("projection", "umap")), "dimension")


@dataclass(frozen=True, eq=False)
class Explored:
    """N points, T ticks, F features, L lives.

    Attributes:
        seen: every tick of the points' lives, in the order of `timeline`.
        timeline: the agents' state at those ticks, by life, then tick.
        rows: indices of the points among the run's records, ascending, (N,) int64.
        place: index of the tick of each point, (N,) int64.
        propagated: a label for every tick, and the rule behind it.
        features: columns of `values`.
        values: of the points, (N, F) float64.
        lives_of_run: number of lives in the run; more than L if some are left out.
        simulated: lives that world models simulated, which go on from these ticks.
    """

    run: FinishedRun
    seen: Observed
    timeline: Timeline
    rows: np.ndarray
    place: np.ndarray
    propagated: PropagatedLabels
    features: tuple[Feature, ...]
    values: np.ndarray
    lives_of_run: int
    simulated: tuple[Simulated, ...] = ()

    @cached_property
    def tick_labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The cluster of each tick, simulated ones last, (T + S,) int64; whether the run itself labelled it, bool."""
        label, own = self.propagated.of(self.seen.records)
        simulated = self.simulated_labels(self.run.clusters.layer, self.propagated.rule)
        return np.concatenate([label, simulated]), np.pad(own, (0, len(simulated)))

    def simulated_labels(self, layer: str, rule: Rule) -> np.ndarray:
        """Label the simulated ticks by a rule of a layer, (S,) int64."""
        parts = [along(lives.dump, lives.seen, layer, rule.labels_of, lambda _: None) for lives in self.simulated]
        return np.concatenate([np.empty(0), *parts]).astype(np.int64)

    @cached_property
    def lives(self) -> Lives:
        """Which life each point belongs to, as the run's statistics number lives."""
        return lives_of(self.seen.records.take(self.place))

    @cached_property
    def life_keys(self) -> list[list[int]]:
        """Slot, agent and episode of each life that was read."""
        keys, _ = number_lives(places_of(self.seen.records))
        return keys.tolist()

    @cached_property
    def neighbours(self) -> np.ndarray:
        """The points of other lives whose states are most alike, nearest first, (N, K) int64; -1 where there are fewer.

        Distances are those of the rule that labels ticks; K is 0 where that is a codebook.
        """
        from sklearn.neighbors import NearestNeighbors

        rule, life = self.propagated.rule, self.lives.index
        if not isinstance(rule, CarryingRule):
            return np.empty((len(self.rows), 0), np.int64)
        states = rule.points[self.rows]
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

    @property
    def whole(self) -> bool:
        """Whether all lives of the run are included."""
        return len(self.lives) == self.lives_of_run

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


def explored(run: FinishedRun, most_ticks: int, step: Step, simulated: Sequence[Path] = ()) -> Explored:
    """Read every tick of a run's lives, or of a random sample of its lives drawn with the run's seed.

    Args:
        most_ticks: maximum to read, of each dump; above it, whole lives are left out.
        simulated: dumps of lives that go on from these ticks.

    Raises:
        UserError: as `activation_store.reader.read_dump`; the run names features that do not exist or records that
            are not in the dump; or no life is short enough. As `read_simulated`.
    """
    metadata = read_metadata(run.dump)
    features = features_named(feature["name"] for feature in run.summary["features"])
    lives_of_run, _ = number_lives(run.clusters.places)
    chosen = _chosen_lives(run, lives_of_run, most_ticks)
    columns = [*own_truth_columns(metadata), *(name for name in (DONE, KILLS) if name in metadata.columns)]
    with step(f"reading {run.dump.name}") as report:
        read = read_dump(
            run.dump, layers=[], columns=columns, leave_out=["tables"], lives=chosen.tolist(), progress=report
        )
    with step("extracting events"):
        timeline = timeline_of(read, metadata)
    records = timeline.records
    place = places_among(run.clusters.places, places_of(records))
    rows = np.flatnonzero(place >= 0)
    if not len(rows) or (len(chosen) == len(lives_of_run) and len(rows) < len(place)):
        raise UserError(f"{run.clusters.path} labels records that {run.dump} does not hold: analyse the dump again")
    with step("computing features"):
        values = feature_matrix(records.take(place[rows]), metadata, features, records)
    with step("labelling the ticks that the run left out") as report:
        rule = fit_rule(run.clusters, run.dump, lambda share: report(share / 2))
        propagated = propagate_labels(
            run.clusters, run.dump, rule, chosen.tolist(), lambda share: report(0.5 + share / 2)
        )
    parts = []
    for dump in simulated:
        with step(f"reading {dump.name}") as report:
            parts.append(read_simulated(dump, run.dump, records, most_ticks, report))
    return Explored(
        run, Observed(records, metadata), timeline, rows, place[rows], propagated, features, values, len(lives_of_run),
        tuple(parts),
    )  # fmt: skip


def _chosen_lives(run: FinishedRun, lives: np.ndarray, most_ticks: int) -> np.ndarray:
    """Return the lives to read, (L, 3): all of them, or a random sample with at most `most_ticks` ticks in total."""
    of_dump, life = number_lives(read_identity(run.dump))
    ticks = dict(zip(map(tuple, of_dump.tolist()), np.bincount(life).tolist(), strict=True))
    drawn = np.random.default_rng(run.seed).permutation(lives)
    kept = drawn[np.cumsum([ticks.get(tuple(life), 0) for life in drawn.tolist()]) <= most_ticks]
    if not len(kept):
        raise UserError(f"--max-ticks {most_ticks} is less than one life of {run.dump}: increase it")
    return kept
