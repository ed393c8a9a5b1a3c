"""Features of agents that edits name: the tick, and the columns of an agent's own row in the game."""

from collections.abc import Sequence

import numpy as np

from common.argument_checks import did_you_mean
from common.user_error import UserError

OWN = "self_"
TICK = "tick"
GOAL = "goal"
"""A column after those of the game, where agents play: the side of the map that an agent's task is to go to, 0 to 3 for
north, south, east and west; -1 for another task."""


def check_feature(prefix: str, feature: str, columns: Sequence[str]) -> None:
    """Refuse a feature that agents do not have.

    Args:
        feature: its name, `tick`, or `self_` and a column.
    """
    known = [TICK, *(OWN + column for column in columns)]
    if feature not in known:
        raise UserError(f"{prefix}: there is no feature {feature!r}{did_you_mean(feature, known)}")


def feature_values(feature: str, rows: np.ndarray, columns: Sequence[str], tick: int | np.ndarray) -> np.ndarray:
    """Return the true values of a feature, (B,).

    Args:
        rows: the agents' own rows in the game, (B, columns).
        tick: of the episode, from 0; or (B,).
    """
    if feature == TICK:
        return np.full(len(rows), tick)
    return rows[:, list(columns).index(feature.removeprefix(OWN))]
