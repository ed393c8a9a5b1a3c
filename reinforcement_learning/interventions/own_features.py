"""Features of an agent's own body by name, for conditions on edits and for variables that edits erase."""

from collections.abc import Sequence

import numpy as np

from argument_checks import did_you_mean
from user_error import UserError

_OWN = "self_"
_TICK = "tick"


def check_feature(name: str, columns: Sequence[str], said: str) -> None:
    """Refuse a feature that does not exist.

    Args:
        name: `tick` for the tick of the episode, or `self_` and a column of the agent's own row in the game.
        columns: of an entity's row in the game.
        said: what the user wrote, for the message, such as `--while 'self_food < 30'`.

    Raises:
        UserError: there is no such feature.
    """
    known = [_TICK, *(_OWN + column for column in columns)]
    if name not in known:
        raise UserError(f"{said}: there is no feature {name!r}{did_you_mean(name, known)}")


def feature_values(name: str, rows: np.ndarray, columns: Sequence[str], tick: int) -> np.ndarray:
    """Return the true values of a feature, whether or not the policy sees it.

    Args:
        name: as in `check_feature`.
        rows: the agents' own rows in the game, (B, columns).
        columns: of the rows.
        tick: of the episode, from 0.

    Returns:
        (B,) integers.
    """
    if name == _TICK:
        return np.full(len(rows), tick)
    return rows[:, list(columns).index(name.removeprefix(_OWN))]
