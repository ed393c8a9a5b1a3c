"""What has happened since earlier ticks of the agent's life. Needs every tick from spawn on."""

import numpy as np

from analysis.features.feature import YES_OR_NO, Compute, Feature
from analysis.features.observed import Observed
from analysis.lives import Lives

LOOKING_BACK = 10
"""Ticks that `displacement` looks back."""


def earlier(values: np.ndarray, lives: Lives, ticks: int) -> np.ndarray:
    """Return each record's value `ticks` earlier, or at the life's first record: (B,) of every tick to (B,)."""
    return later(values, lives, -ticks)


def later(values: np.ndarray, lives: Lives, ticks: int) -> np.ndarray:
    """Return each record's value `ticks` later, or at the life's last record: (B,) of every tick to (B,)."""
    first = np.repeat(lives.starts, lives.lengths)
    last = first + np.repeat(lives.lengths, lives.lengths) - 1
    shifted = np.empty_like(values)
    shifted[lives.order] = values[lives.order][np.clip(np.arange(len(values)) + ticks, first, last)]
    return shifted


def ticks_since(happened: np.ndarray, lives: Lives) -> np.ndarray:
    """Return ticks since something last happened, or since the life's first record: (B,) bool to (B,) int64."""
    place = np.arange(len(happened))
    latest = np.maximum.accumulate(np.where(happened[lives.order], place, np.repeat(lives.starts, lives.lengths)))
    ticks = np.empty(len(happened), np.int64)
    ticks[lives.order] = place - latest
    return ticks


def _whole(seen: Observed, name: str) -> np.ndarray:
    return seen.own(name).astype(np.int64)


def change(name: str) -> Compute:
    """Return a function that computes a feature: the change of a column of the agent's own row since a tick before."""
    return lambda seen: _whole(seen, name) - earlier(_whole(seen, name), seen.lives, 1)


def was_replenished(now: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return where food or water was replenished between the tick before and now, (B,) bool."""
    # Every tick uses some up, so a value that did not fall was replenished, even if it was full before and after.
    return (now > 0) & (now >= before)


def _replenished(name: str) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        now = _whole(seen, name)
        return ticks_since(was_replenished(now, earlier(now, seen.lives, 1)), seen.lives)

    return compute


def _moved(seen: Observed, ticks: int) -> np.ndarray:
    apart = [np.abs(_whole(seen, axis) - earlier(_whole(seen, axis), seen.lives, ticks)) for axis in ("row", "col")]
    return np.maximum(*apart)


OVER_TIME = tuple(
    Feature(name, unit, definition, compute, over_time=True)
    for name, unit, definition, compute in (
        *(
            (f"{own}_change", unit, f"Change of the agent's {own} since the previous tick; 0 at spawn.", change(own))
            for own, unit in (("health", "points"), ("food", "points"), ("water", "points"), ("gold", "gold"))
        ),
        (
            "ticks_since_eating", "ticks",
            "Ticks since the agent last ate foilage or a ration, seen as food that did not fall; ticks since spawn if "
            "never.", _replenished("food"),
        ),
        (
            "ticks_since_drinking", "ticks",
            "Ticks since the agent last drank or ate a ration, seen as water that did not fall; ticks since spawn if "
            "never.", _replenished("water"),
        ),
        (
            "distance_to_spawn", "tiles", "Tiles to where the agent spawned, counting a diagonal step as one.",
            lambda seen: _moved(seen, len(seen)),
        ),
        (
            "displacement", "tiles",
            f"Tiles to where the agent was {LOOKING_BACK} ticks ago, or to where it spawned if it is younger.",
            lambda seen: _moved(seen, LOOKING_BACK),
        ),
        (
            "ticks_standing_still", "ticks", "Ticks since the agent arrived on the tile that it stands on.",
            lambda seen: ticks_since(_moved(seen, 1) > 0, seen.lives),
        ),
        (
            "has_moved", YES_OR_NO, "The agent is on a different tile than in the previous tick.",
            lambda seen: _moved(seen, 1) > 0,
        ),
    )
)  # fmt: skip
