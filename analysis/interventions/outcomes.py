"""The outcomes of lives: which of them can be compared with an unedited twin, what they are called, how they group."""

from collections.abc import Sequence

import numpy as np

from activation_store.interventions import IN_PLAY, LASTING, PLANNED, TOTAL, Arm, LivesTable, compared

KL_OF_HEAD, GAIN, MOVED = (compared(name, TOTAL) for name in ("kl/", "gain/", "moved/"))
DEATH = "died_of/"
KL, VALUE_CHANGE = compared("kl", TOTAL), compared("value_change", TOTAL)
KL_IN_PLAY = compared("kl", IN_PLAY)
OFF_MANIFOLD, EDITED_TICKS = "off_manifold", "edited_ticks"
PLANNED_TOTAL = compared(PLANNED, TOTAL)
WITHIN_DATA = "within_data"
SOUTH, EAST = "south", "east"
"""Where an agent was at the end of its life from where it was at the start, in tiles per 100 ticks."""
FOLLOWS_SIDES = ("follows_lower/", "follows_higher/")
"""Shares of ticks in which an option follows a donor of a lower value, and of a higher one; see `follows`."""

_SHARE, _PER_100_TICKS, _NATS, _SPREADS = "share", "per 100 ticks", "nats", "spreads"
_TILES = "tiles per 100 ticks"
_WORDS = {
    "ticks": ("ticks lived", ""),
    "level": ("highest level of skills", ""),
    "reward": ("reward", "total"),
    "task_progress": ("task progress", "0 to 1"),
    "meals": ("meals", _PER_100_TICKS),
    "drinks": ("drinks", _PER_100_TICKS),
    "towards_food": ("moves towards food", _SHARE),
    SOUTH: ("way south", _TILES),
    EAST: ("way east", _TILES),
    "damage_dealt": ("damage dealt", _PER_100_TICKS),
    "damage_taken": ("damage taken", _PER_100_TICKS),
    "kl": ("KL, all heads", _NATS),
    "value_change": ("change of the value", ""),
    OFF_MANIFOLD: ("distance from recorded states", "unedited = 1"),
    WITHIN_DATA: ("change within the span of recorded states", _SHARE),
    EDITED_TICKS: ("edited ticks", ""),
}
_GROUPS = ("life", "needs", "path", "fights", "death", "other")
_GROUP_OF = {
    **dict.fromkeys(("ticks", "level", "reward", "task_progress"), "life"),
    **dict.fromkeys(("meals", "drinks", "towards_food"), "needs"),
    **dict.fromkeys((SOUTH, EAST), "path"),
    **dict.fromkeys(("damage_dealt", "damage_taken"), "fights"),
}


def title(outcome: str) -> str:
    """Return what an outcome is called in figures and text; unknown ones keep their name."""
    return _words(outcome)[0]


def title_with_unit(outcome: str) -> str:
    """Return the title of an outcome, with its unit in brackets if it has one."""
    name, unit = _words(outcome)
    return f"{name} ({unit})" if unit else name


def is_known_outcome(outcome: str) -> bool:
    """Tell whether this is the name of an outcome in behaviour that every run measures."""
    return outcome in _GROUP_OF or outcome.startswith(DEATH)


def group(outcome: str) -> str:
    """Return the group that an outcome in behaviour is drawn in."""
    return "death" if outcome.startswith(DEATH) else _GROUP_OF.get(outcome, "other")


def in_groups(outcomes: Sequence[str]) -> list[str]:
    """Return outcomes group by group; within a group, known ones first."""
    known = list(_WORDS)
    return sorted(
        outcomes,
        key=lambda name: (_GROUPS.index(group(name)), known.index(name) if name in known else len(known), name),
    )


def split_outcomes(table: LivesTable, arms: Sequence[Arm]) -> tuple[list[str], list[str]]:
    """Return the outcomes in behaviour, and those at once, which exist only for lives that are being edited.

    Outcomes at once are differences between the edited and the unedited state of the same tick already, so no twin has
    them. An outcome without any value is neither, nor are the two sides of shares, planned displacements and what is
    left of edits, which are studied by themselves.
    """
    unedited = np.isin(table.arm, [arm.name for arm in arms if arm.kind == "unedited"]) | ~table.edited
    elsewhere = (*FOLLOWS_SIDES, LASTING, PLANNED_TOTAL, compared(PLANNED, IN_PLAY))
    known = {name: np.isfinite(values) for name, values in table.outcomes.items() if not name.startswith(elsewhere)}
    in_behaviour = [name for name, finite in known.items() if finite[unedited].any()]
    at_once = [name for name, finite in known.items() if finite.any() and name not in in_behaviour]
    return in_groups(in_behaviour), at_once


def _words(outcome: str) -> tuple[str, str]:
    """Return an outcome's title and unit."""
    first, _, rest = outcome.partition("/")
    for comparison, said in ((TOTAL, "in total"), (IN_PLAY, "in play")):
        if first.endswith(comparison):
            name, unit = _words(outcome.replace(comparison, "", 1))
            return f"{name}, {said}", unit
    if outcome.startswith(DEATH):
        return f"died: {rest.replace('_', ' ')}", _SHARE
    if outcome.startswith("kl/"):
        return f"KL of {rest}", _NATS
    if outcome.startswith("gain/"):
        return f"probability of {rest.replace('/', ' ')}", "change"
    if outcome.startswith("moved/"):
        return f"change along {rest}", _SPREADS
    return _WORDS.get(outcome, (outcome, ""))
