"""The tables of a validation: each quantity of each edit, and how often signs agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from representation.world_model.at_once import SIDES, ComparedEdit, mean_change
from representation.world_model.intervened import QUANTITIES, STYLES, Made
from representation.world_model.options import DIRECTIONS

HEADS = ("edit", "made", "quantity", "predicted", "replayed", "simulated", "in the game", "same sign")
"""Of the table that is printed; see `shown`."""
GROUPS = {
    "value": ("value",),
    "moves": tuple(f"probability of {name}" for name in DIRECTIONS),
    "attack style": tuple(f"probability of {name}" for name in STYLES),
}
"""Quantities that are summed up together."""


@dataclass(frozen=True)
class Validated:
    """How an edit changes one quantity at once, with 95% intervals: over recorded lives, in the game over episodes.

    Attributes:
        run: folder of the intervention.
        edit: what was edited, with its dose.
        made: in every tick or once.
        quantity: the value, or the probability of an option.
        predicted: by the gradient on recorded ticks.
        predicted_low, predicted_high: its interval.
        replayed: in full on recorded ticks.
        replayed_low, replayed_high: its interval.
        simulated: in full in simulated ticks.
        simulated_low, simulated_high: its interval.
        real: in the game.
        real_low, real_high: its interval; NaN where all episodes agree.
        predicted_agrees: whether both have the same sign; empty where the game's interval does not exclude 0.
        replayed_agrees: likewise.
        simulated_agrees: likewise.
        lives: recorded lives with a simulated change.
        episodes: played in the game.
    """

    run: str
    edit: str
    made: Made
    quantity: str
    predicted: float
    predicted_low: float
    predicted_high: float
    replayed: float
    replayed_low: float
    replayed_high: float
    simulated: float
    simulated_low: float
    simulated_high: float
    real: float
    real_low: float
    real_high: float
    predicted_agrees: str
    replayed_agrees: str
    simulated_agrees: str
    lives: int
    episodes: int


@dataclass(frozen=True)
class SignAgreement:
    """In how many changes the sign is that of the game, among those whose interval in the game excludes 0.

    Attributes:
        made: in every tick or once.
        quantities: value, moves or attack style.
        side: predicted, replayed or simulated.
        changes: that the game shows for sure.
        of: all of them.
        agree: share with the same sign.
        other_edits: the same share if each real change is compared with what this side says of the edits of the other
            runs: what agrees whatever is edited; NaN with a single run.
        correlation: Pearson's r of all changes with those in the game; NaN of fewer than three.
    """

    made: Made
    quantities: str
    side: str
    changes: int
    of: int
    agree: float
    other_edits: float
    correlation: float


def validated_rows(edits: Sequence[ComparedEdit], seed: int) -> list[Validated]:
    """Return a row for each edit and quantity; the seed is that of resamples."""
    return [_row(edit, place, name, seed) for edit in edits for place, name in enumerate(QUANTITIES)]


def _row(edit: ComparedEdit, place: int, name: str, seed: int) -> Validated:
    real = edit.game.changes[name]
    sure = real.low > 0 or real.high < 0
    numbers: dict[str, Any] = {"real": real.value, "real_low": real.low, "real_high": real.high}
    for side in SIDES:
        found = mean_change(edit, side, place, seed)
        numbers |= {side: found.value, f"{side}_low": found.low, f"{side}_high": found.high}
        numbers[f"{side}_agrees"] = _word(found.value, real.value) if sure else ""
    known = np.isfinite(edit.changes["simulated"][:, place])
    lives = len(np.unique(edit.life[known]))
    return Validated(
        run=edit.run, edit=edit.edits.name, made=edit.game.made, quantity=name, lives=lives,
        episodes=edit.game.episodes, **numbers,
    )  # fmt: skip


def _word(found: float, real: float) -> str:
    return ("yes" if np.sign(found) == np.sign(real) else "no") if np.isfinite(found) else ""


def shown(row: Validated) -> list[str]:
    """Return the cells of a row as it is printed, under `HEADS`."""
    cells = [row.edit, row.made, row.quantity, f"{row.predicted:+.2g}", f"{row.replayed:+.2g}"]
    for side in ("simulated", "real"):
        value, low, high = (getattr(row, f"{side}{end}") for end in ("", "_low", "_high"))
        cells.append(f"{value:+.2g} ({low:+.2g} to {high:+.2g})")
    agree = [side for side in SIDES if getattr(row, f"{side}_agrees") == "yes"]
    return [*cells, ", ".join(agree) or "none" if row.predicted_agrees else "not sure"]


def sign_agreement(rows: Sequence[Validated]) -> list[SignAgreement]:
    """Sum up all rows by how edits were made, quantities and side."""
    found = []
    for how in dict.fromkeys(row.made for row in rows):
        for group, names in GROUPS.items():
            some = [row for row in rows if row.made == how and row.quantity in names]
            found += [_agreement(some, how, group, side) for side in SIDES]
    return found


def _agreement(rows: Sequence[Validated], how: Made, group: str, side: str) -> SignAgreement:
    told = [getattr(row, f"{side}_agrees") == "yes" for row in rows if getattr(row, f"{side}_agrees")]
    others = [
        _word(getattr(other, side), row.real) == "yes"
        for row in rows
        for other in rows
        if getattr(row, f"{side}_agrees") and other.run != row.run and other.quantity == row.quantity
    ]
    pairs = np.array([(getattr(row, side), row.real) for row in rows])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    varies = len(pairs) > 2 and bool((np.ptp(pairs, axis=0) > 0).all())
    correlation = float(np.corrcoef(pairs.T)[0, 1]) if varies else float("nan")
    return SignAgreement(how, group, side, len(told), len(rows), _share(told), _share(others), correlation)


def _share(flags: Sequence[bool]) -> float:
    return float(np.mean(flags)) if flags else float("nan")
