"""Choose the ticks of a replay to show, and the agent to follow."""

from analysis.replays.replay import Replay
from common.user_error import UserError

_NAMES_SHOWN = 5


def ticks_between(replay: Replay, start: int, end: int | None, skip: int) -> range:
    """Return the ticks to draw.

    Args:
        end: last tick; None for the replay's last.
        skip: draw one tick in this many, from 1 (all).

    Raises:
        UserError: `start` or `end` is not in the replay.
    """
    last = replay.ticks - 1
    end = last if end is None else end
    if start > last or end > last:
        raise UserError(f"the replay ends at tick {last}: choose --start and --end up to it")
    return range(start, end + 1, skip)


def player_called(wanted: str, replay: Replay) -> int:
    """Return the column of the player with this name or number.

    Raises:
        UserError: there is none.
    """
    players = replay.players
    for column, (name, number) in enumerate(zip(players.names, players.ids.tolist(), strict=True)):
        if wanted in (name, str(number)):
            return column
    some = ", ".join(players.names[:_NAMES_SHOWN])
    raise UserError(f"--follow {wanted}: there is no such agent; there are {len(players)}, such as {some}")
