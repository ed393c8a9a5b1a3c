"""What comes of simulated lives, and how that differs between simulations of the same starts with the same dice."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from activation_store.schema import OPTIONS
from analysis.sparse.scores import RESAMPLES, Estimate, Units
from analysis.statistics.resampling import draws_of
from analysis.tables import tab_separated
from analysis.world_model.imagination import MOVE_HEAD, ImaginedTick, Number
from analysis.world_model.scene import MOVES, VITALS
from common.files import write_text

Outcomes = dict[str, np.ndarray]
"""What came of L simulated lives: outcome -> (L,)."""
Row = dict[str, str | int | float | Estimate]
"""A line of a table, by the names of its columns; an estimate called X takes three: X, X_low and X_high."""


def concatenated(parts: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Join one or more parts of the same columns."""
    parts = list(parts)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class OutcomeSums:
    """Adds up the outcomes of a batch of lives, tick by tick."""

    def __init__(self, lives: int, vitals: Sequence[int], targets: Mapping[str, Number] | None = None):
        """Begin.

        Args:
            vitals: places of health, food and water in a scene's own row.
            targets: further numbers of a tick, (S,) each, whose means over ticks are outcomes.
        """
        self._targets, self._vitals = targets or {}, list(vitals)
        self._ticks, self._way = np.zeros(lives), np.zeros((lives, 2))
        self._sums: dict[str, np.ndarray] = {}
        self._last: dict[str, np.ndarray] = {}
        self._first: dict[str, np.ndarray] = {}

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
        return {**self._first, **means, **self._last, **ways, "ticks lived": self._ticks}


def group_of(name: str, outcomes: Outcomes, better: Estimate | None = None) -> Row:
    """Return the mean outcomes of some lives, which have a name in common.

    Their value is the mean over lives of the mean over ticks, their vitals are those of the last tick.

    Args:
        better: value above that of the policy's own lives from the same starts; None where that is not compared.
    """
    better = better or Estimate(float("nan"))
    return {
        "group": name, "value": float(outcomes["value"].mean()), "better": better.value, "low": better.low,
        "high": better.high, **{vital: float(outcomes[f"{vital} in the last tick"].mean()) for vital in VITALS},
        "ticks": float(outcomes["ticks lived"].mean()), "lives": len(outcomes["value"]),
    }  # fmt: skip


def steps_of(outcomes: Outcomes, steps: int) -> list[Row]:
    """Return the mean outcomes of interpolated starts by their place on the way."""
    places = [{name: values[number::steps] for name, values in outcomes.items()} for number in range(steps)]
    return [group_of(f"{number} of {steps}", some) for number, some in enumerate(places, 1)]


def over_lives(origin: np.ndarray, seed: int) -> Units:
    """Return lives as units of resampling, given the number of each record's, (B,)."""
    index = np.unique(origin, return_inverse=True)[1]
    count = int(index.max()) + 1
    draws = draws_of(count, RESAMPLES, seed)
    return Units("life", index, draws.astype(np.float64))


def effects(before: Outcomes, after: Outcomes, units: Units) -> list[Row]:
    """Compare two simulations from the same starts; intervals are over the recorded lives that they go on from."""
    rows = list[Row]()
    for name, values in before.items():
        change, lives = units.mean(after[name] - values), units.draws.shape[1]
        rows.append({
            "outcome": name, "before": float(values.mean()), "after": float(after[name].mean()),
            "difference": change.value, "low": change.low, "high": change.high, "lives": lives,
        })  # fmt: skip
    return rows


def columns_of(row: Mapping[str, object]) -> dict[str, object]:
    """Return the columns that a row takes in a file."""
    columns = dict[str, object]()
    for name, value in row.items():
        if isinstance(value, Estimate):
            columns |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        else:
            columns[name] = value
    return columns


def write_table(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows with the same columns as tab-separated lines under their names, whole or not at all."""
    write_text(path, tab_separated(list(map(columns_of, rows)), digits=10))
