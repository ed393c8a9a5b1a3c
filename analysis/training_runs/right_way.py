"""Whether lives go where their task is, a side of the map or water, and how kinds of trainings differ in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.columns import TRUTH
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import DumpMetadata, Records
from analysis.features.choices import DIRECTIONS, GOAL, STEPS
from analysis.features.observed import Observed, own_truth_columns
from analysis.lives import Lives, lives_of
from analysis.statistics.over_trainings import OverTrainings, in_worlds, over_trainings
from analysis.training_runs.run import name_without_seed
from common.user_error import UserError

_PROGRESS = f"{TRUTH}task_progress"
_STEPS = np.array([*STEPS.values(), (0, 0)])
"""A step to each of `DIRECTIONS` in rows and columns, and none for other tasks."""


@dataclass(frozen=True)
class WaysOfLives:
    """The lives of one policy."""

    world: np.ndarray  # of each life, (L,) str: the same for lives of other policies in the same episode
    way: np.ndarray
    """Tiles that its steps led it towards its goal after the task was hidden, negative away from it, (L,). If the goal
    is water: the best share of the way that it had gone before its last tick, 0 to 1."""
    to_water: bool = False  # whether the goal is water

    def by_world(self) -> dict[str, float]:
        """Return the share of lives that go the right way in each world; lives that go neither way count half.

        Of lives on the way to water, the share that arrive there.
        """
        right = self.way >= 1 if self.to_water else (np.sign(self.way) + 1) / 2
        return {world: float(right[self.world == world].mean()) for world in np.unique(self.world)}


def lives_of_dump(folder: Path) -> WaysOfLives:
    """Read the ways of the lives that outlive the first ticks, in which the task is shown or agents are moved.

    Raises:
        UserError: as `read_dump`; or the dump has no tasks to go to a side of the map or to water.
    """
    metadata = read_metadata(folder)
    leave_out = ["tile", "entity", "inventory", "tables", "reward", "value", "log_probability"]
    of_tasks = [name for name in (_PROGRESS,) if name in metadata.columns]
    columns = [*dict.fromkeys(["row", "col", *of_tasks, *own_truth_columns(metadata)])]
    records = read_dump(folder, layers=[], columns=columns, leave_out=leave_out)
    lives = lives_of(records)
    first = lives.order[lives.starts]
    to_water = any("GoToWater" in str(task) for task in metadata.environment.get("tasks", ()))
    if to_water and _PROGRESS in records.columns:
        last = lives.order[lives.starts + lives.lengths - 1]
        way, kept = records.columns[_PROGRESS][last], records.step[last] > _first_tick(metadata.environment)
    else:
        way, kept = _towards_sides(folder, records, metadata, lives)
    worlds = {played["episode"]: f"{played['seed']} {played['episode_of_seed']}" for played in metadata.episodes}
    world = np.array([worlds[episode] for episode in records.episode[first].tolist()])
    return WaysOfLives(world[kept], way[kept], to_water)


def _towards_sides(
    folder: Path, records: Records, metadata: DumpMetadata, lives: Lives
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tiles that each life's steps led it towards its side, (L,), and whether it took any, (L,) bool."""
    goal = GOAL.compute(Observed(records, metadata))  # (B,)
    if not (goal < len(DIRECTIONS)).any():
        raise UserError(f"{folder} has no tasks to go to a side of the map or to water, such as those of two_ways")
    place = np.stack([records.columns["row"], records.columns["col"]], axis=1).astype(np.int64)[lives.order]  # (B, 2)
    step, same = np.diff(place, axis=0), np.diff(lives.index_in_order) == 0
    one_step = np.abs(step).sum(axis=1) <= 1  # a longer one is a move by the world
    counted = same & one_step & (records.step[lives.order][1:] > _first_tick(metadata.environment))
    towards = (step * _STEPS[goal[lives.order][1:]]).sum(axis=1) * counted
    life = lives.index_in_order[1:]
    way, steps = (np.bincount(life, weights, len(lives)) for weights in (towards, counted))
    return way, (steps > 0) & (goal[lives.order[lives.starts]] < len(DIRECTIONS))


def _first_tick(environment: Mapping[str, object]) -> int:
    """Return the first tick from which steps count: when the task is hidden, and agents were moved."""
    ticks = (environment.get("task_shown_for"), environment.get("interrupt"))
    return max((tick for tick in ticks if isinstance(tick, int)), default=0)


@dataclass(frozen=True)
class KindScore:
    """How often the lives of one kind of trainings go the right way."""

    kind: str
    trainings: int
    lives: int
    share: OverTrainings  # mean over trainings
    against: str | None  # the kind that it is compared with; None for that kind itself
    difference: OverTrainings | None  # of the shares

    def row(self) -> dict[str, object]:
        """Return the numbers by name, for a table."""
        numbers: dict[str, object] = {"kind": self.kind, "trainings": self.trainings, "lives": self.lives}
        for name, estimate in (("share", self.share), ("difference", self.difference)):
            for part in ("value", "low", "high", "p"):
                if (name, part) != ("share", "p"):
                    numbers[name if part == "value" else f"{name}_{part}"] = estimate and getattr(estimate, part)
        return numbers | {"against": self.against}

    def cells(self) -> tuple[str, ...]:
        """Return the numbers as text, for the terminal."""
        compared = (
            self.against or "",
            _shown(self.difference, "+"),
            f"{self.difference.p:.2g}" if self.difference else "",
        )
        return self.kind, str(self.trainings), f"{self.lives:,}", _shown(self.share), *compared


def _shown(estimate: OverTrainings | None, sign: str = "") -> str:
    if estimate is None:
        return ""
    interval = f" ({estimate.low:{sign}.2f} to {estimate.high:{sign}.2f})" if np.isfinite(estimate.low) else ""
    return f"{estimate.value:{sign}.2f}{interval}"


def score_kinds(dumps: Mapping[str, WaysOfLives], against: str | None, confidence: float) -> list[KindScore]:
    """Return the scores of all kinds, in the order in which they were given.

    Args:
        dumps: the lives of each training by its name; names that differ in a number at their end are of one kind.
        against: the kind that others are compared with; None for the last one.

    Raises:
        UserError: there is no such kind, or trainings share some of their worlds, but not all.
    """
    kinds: dict[str, list[WaysOfLives]] = {}
    for name, lives in dumps.items():
        kinds.setdefault(name_without_seed(name), []).append(lives)
    reference = against or list(kinds)[-1]
    if reference not in kinds:
        raise UserError(f"--against {reference}: the kinds of trainings are {', '.join(kinds)}")
    shares = {kind: [lives.by_world() for lives in trainings] for kind, trainings in kinds.items()}
    scores = []
    for kind, trainings in kinds.items():
        other = kind != reference
        values, worlds = in_worlds([shares[kind]])
        compared = over_trainings(*in_worlds([shares[kind], shares[reference]]), confidence) if other else None
        count = sum(len(lives.way) for lives in trainings)
        share = over_trainings(values, worlds, confidence)
        scores.append(KindScore(kind, len(trainings), count, share, reference if other else None, compared))
    return scores
