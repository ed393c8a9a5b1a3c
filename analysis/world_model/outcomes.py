"""What comes of simulated lives, and how that differs between simulations of the same starts with the same dice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.schema import OPTIONS
from analysis.sparse.scores import RESAMPLES, Estimate, Units
from analysis.statistics.resampling import draws_of
from analysis.tables import tab_separated
from analysis.world_model.imagination import MOVE_HEAD, ImaginedTick, Number
from analysis.world_model.scene import MOVES, VITALS
from common.files import write_text


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What came of L simulated lives."""

    origin: np.ndarray  # number of the recorded life that each went on from, (L,) int64
    values: Mapping[str, np.ndarray]  # outcome -> (L,)

    @staticmethod
    def joined(parts: Sequence["Outcomes"]) -> "Outcomes":
        """Concatenate the outcomes of several batches."""
        names = parts[0].values
        return Outcomes(
            np.concatenate([part.origin for part in parts]),
            {name: np.concatenate([part.values[name] for part in parts]) for name in names},
        )


@dataclass(frozen=True)
class Effect:
    """How an outcome differs between two simulations, with the 95% interval of the difference over recorded lives."""

    outcome: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    lives: int


class OutcomeSums:
    """Adds up the outcomes of a batch of lives, tick by tick."""

    def __init__(self, origin: np.ndarray, vitals: Sequence[int], targets: Mapping[str, Number] | None = None):
        """Begin.

        Args:
            vitals: places of health, food and water in a scene's own row.
            targets: further numbers of a tick, (S,) each, whose means over ticks are outcomes.
        """
        self._targets = targets or {}
        self._origin, self._vitals = origin, list(vitals)
        self._ticks = np.zeros(len(origin))
        self._sums: dict[str, np.ndarray] = {}
        self._last: dict[str, np.ndarray] = {}
        self._first: dict[str, np.ndarray] = {}
        self._way = np.zeros((len(origin), 2))

    def add(self, tick: ImaginedTick, alive: np.ndarray) -> None:
        """Add a tick of the lives that are not over, (S,) bool."""
        value = tick.choices.value.detach().double().numpy()
        moves = tick.choices.log_probabilities[MOVE_HEAD].detach().double().exp().numpy()  # (S, 5)
        vitals = 100 * tick.scene.own[:, self._vitals].detach().double().numpy()
        means = {"value": value} | {
            f"probability of {name}": moves[:, place] for place, name in enumerate(OPTIONS["Move.Direction"])
        }
        means |= {name: target(tick).detach().double().numpy() for name, target in self._targets.items()}
        last = {f"{name} in the last tick": vitals[:, place] for place, name in enumerate(VITALS)}
        if not self._first:
            self._first = {"value in the first tick": value.copy()}
            self._sums = {name: np.zeros(len(alive)) for name in means}
            self._last = {name: array.copy() for name, array in last.items()}
        self._ticks += alive
        self._way[alive] += np.array(MOVES)[tick.following.move.argmax(dim=1).numpy()][alive]
        for name, array in means.items():
            self._sums[name][alive] += array[alive]
        for name, array in last.items():
            self._last[name][alive] = array[alive]

    def finish(self) -> Outcomes:
        """Return what came of the lives; values and probabilities are means over each life's ticks."""
        means = {name: array / self._ticks for name, array in self._sums.items()}
        way = 100 * self._way / self._ticks[:, None]
        ways = {f"tiles {name} in 100 ticks": way[:, place] for place, name in enumerate(("south", "east"))}
        return Outcomes(self._origin, {**self._first, **means, **self._last, **ways, "ticks lived": self._ticks})


@dataclass(frozen=True)
class GroupOutcomes:
    """Mean outcomes of some simulated lives."""

    group: str  # what they have in common
    value: float  # mean over lives of the mean over ticks
    better: float  # value above that of the policy's own lives from the same starts, NaN where that is not compared
    low: float
    high: float
    health: float  # in the last tick
    food: float
    water: float
    ticks: float
    lives: int


def group_of(
    name: str, outcomes: Outcomes, own: Outcomes | None, seed: int, chosen: np.ndarray | None = None
) -> GroupOutcomes:
    """Return the mean outcomes of some lives.

    Args:
        own: what came of the policy's own lives from the same starts; None if that is not compared.
        chosen: which lives, (L,) bool; None for all.
    """
    kept = {outcome: values if chosen is None else values[chosen] for outcome, values in outcomes.values.items()}
    better = Estimate(float("nan"))
    if own is not None:
        better = over_lives(outcomes.origin, seed).mean(kept["value"] - own.values["value"])
    health, food, water = (float(kept[f"{vital} in the last tick"].mean()) for vital in VITALS)
    return GroupOutcomes(
        name, float(kept["value"].mean()), better.value, better.low, better.high, health, food, water,
        float(kept["ticks lived"].mean()), len(kept["value"]),
    )  # fmt: skip


def steps_of(outcomes: Outcomes, steps: int, seed: int) -> list[GroupOutcomes]:
    """Return the mean outcomes of interpolated starts by their place on the way."""
    place = np.arange(len(outcomes.origin)) % steps
    return [group_of(f"{number + 1} of {steps}", outcomes, None, seed, place == number) for number in range(steps)]


def over_lives(origin: np.ndarray, seed: int) -> Units:
    """Return lives as units of resampling, given the number of each record's, (B,)."""
    index = np.unique(origin, return_inverse=True)[1]
    count = int(index.max()) + 1
    draws = draws_of(count, RESAMPLES, seed)
    return Units("life", index, draws.astype(np.float64))


def effects(before: Outcomes, after: Outcomes, seed: int) -> list[Effect]:
    """Compare two simulations from the same starts; intervals are over the recorded lives that they go on from."""
    units = over_lives(before.origin, seed)
    rows = []
    for name, values in before.values.items():
        change, later = units.mean(after.values[name] - values), float(after.values[name].mean())
        lives = units.draws.shape[1]
        rows.append(Effect(name, float(values.mean()), later, change.value, change.low, change.high, lives))
    return rows


def columns_of(row: Any) -> dict[str, Any]:
    """Return a data class's fields by name; an estimate called X takes three columns: X, X_low and X_high."""
    columns: dict[str, Any] = {}
    for name, value in vars(row).items():
        if isinstance(value, Estimate):
            columns |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        else:
            columns[name] = value
    return columns


def write_table(path: Path, rows: Sequence[Any]) -> None:
    """Write data classes of one kind as tab-separated lines under the names of their columns, whole or not at all."""
    write_text(path, tab_separated(list(map(columns_of, rows)), digits=10))
