"""Whether lives go to the side of the map that is their task, and how kinds of trainings differ in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.reader import read_dump, read_metadata
from analysis.features.choices import DIRECTIONS, STEPS
from analysis.features.observed import Observed, own_truth_columns
from analysis.features.ways import GOAL
from analysis.lives import lives_of
from analysis.statistics.over_trainings import OverTrainings, in_worlds, over_trainings
from analysis.training_runs.run import name_without_seed
from common.user_error import UserError

_STEPS = np.array([*STEPS.values(), (0, 0)])
"""A step to each of `DIRECTIONS` in rows and columns, and none for other tasks."""


@dataclass(frozen=True)
class WaysOfLives:
    """The lives of one policy.

    Attributes:
        world: of each life, (L,) str: the same for lives of other policies in the same episode.
        way: tiles that its steps led it towards its goal after the task was hidden, negative away from it, (L,).
        steps: ticks in which it could go there, (L,).
    """

    world: np.ndarray
    way: np.ndarray
    steps: np.ndarray

    def by_world(self) -> dict[str, float]:
        """Return the share of lives that go the right way in each world; lives that go neither way count half."""
        right = (np.sign(self.way) + 1) / 2
        return {world: float(right[self.world == world].mean()) for world in np.unique(self.world)}


def lives_of_dump(folder: Path) -> WaysOfLives:
    """Read the ways of the lives that outlive the first ticks, in which the task is shown or agents are moved.

    Raises:
        UserError: as `read_dump`; or the dump has no tasks to go to a side of the map.
    """
    metadata = read_metadata(folder)
    leave_out = ["tile", "entity", "inventory", "tables", "reward", "value", "log_probability"]
    columns = [*dict.fromkeys(["row", "col", *own_truth_columns(metadata)])]
    records = read_dump(folder, layers=[], columns=columns, leave_out=leave_out)
    goal = GOAL.compute(Observed(records, metadata))  # (B,)
    if not (goal < len(DIRECTIONS)).any():
        raise UserError(f"{folder} has no tasks to go to a side of the map, such as those of --curriculum two_ways")
    lives = lives_of(records)
    place = np.stack([records.columns["row"], records.columns["col"]], axis=1).astype(np.int64)[lives.order]  # (B, 2)
    step, same = np.diff(place, axis=0), np.diff(lives.index_in_order) == 0
    one_step = np.abs(step).sum(axis=1) <= 1  # a longer one is a move by the world
    counted = same & one_step & (records.step[lives.order][1:] > _first_tick(metadata.environment))
    towards = (step * _STEPS[goal[lives.order][1:]]).sum(axis=1) * counted
    life = lives.index_in_order[1:]
    way, steps = (np.bincount(life, weights, len(lives)) for weights in (towards, counted))
    first = lives.order[lives.starts]
    kept = (steps > 0) & (goal[first] < len(DIRECTIONS))
    worlds = {played["episode"]: f"{played['seed']} {played['episode_of_seed']}" for played in metadata.episodes}
    world = np.array([worlds[episode] for episode in records.episode[first].tolist()])
    return WaysOfLives(world[kept], way[kept], steps[kept])


def _first_tick(environment: Mapping[str, object]) -> int:
    """Return the first tick from which steps count: when the task is hidden, and agents were moved."""
    ticks = (environment.get("task_shown_for"), environment.get("interrupt"))
    return max((tick for tick in ticks if isinstance(tick, int)), default=0)


@dataclass(frozen=True)
class KindScore:
    """How often the lives of one kind of trainings go the right way.

    Attributes:
        share: mean over trainings.
        against: the kind that it is compared with; None for that kind itself.
        difference: of the shares.
    """

    kind: str
    trainings: int
    lives: int
    share: OverTrainings
    against: str | None
    difference: OverTrainings | None

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
