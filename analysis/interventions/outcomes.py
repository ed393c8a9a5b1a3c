"""The outcomes of lives: which of them can be compared with an unedited twin, what they are called, how they group."""

from collections.abc import Sequence

import numpy as np

from activation_store.interventions import Arm, LivesTable

KL_OF_HEAD = "kl/"
GAIN = "gain/"
DEATH = "died_of/"
MOVED = "moved/"
KL, VALUE_CHANGE, OFF_MANIFOLD, EDITED_TICKS = "kl", "value_change", "off_manifold", "edited_ticks"

_TITLES = {
    "ticks": "ticks lived",
    "reward": "reward, total",
    "task_progress": "task progress, 0 to 1",
    "meals": "meals per 100 ticks",
    "drinks": "drinks per 100 ticks",
    "towards_food": "moves towards food, share",
    "damage_dealt": "damage dealt per 100 ticks",
    "damage_taken": "damage taken per 100 ticks",
    KL: "KL, all heads, nats",
    VALUE_CHANGE: "change of the value",
    OFF_MANIFOLD: "distance from recorded states, ratio",
    EDITED_TICKS: "edited ticks",
}
_GROUPS = ("life", "needs", "fights", "death", "other")
_GROUP_OF = {
    **dict.fromkeys(("ticks", "reward", "task_progress"), "life"),
    **dict.fromkeys(("meals", "drinks", "towards_food"), "needs"),
    **dict.fromkeys(("damage_dealt", "damage_taken"), "fights"),
}


def title(outcome: str) -> str:
    """Return what an outcome is called in figures and text, with its unit; unknown ones keep their name."""
    if outcome.startswith(DEATH):
        return f"died: {outcome.removeprefix(DEATH).replace('_', ' ')}, share"
    if outcome.startswith(KL_OF_HEAD):
        return f"KL of {outcome.removeprefix(KL_OF_HEAD)}, nats"
    if outcome.startswith(GAIN):
        head, _, option = outcome.removeprefix(GAIN).partition("/")
        return f"probability of {head} {option}"
    if outcome.startswith(MOVED):
        return f"change along {outcome.removeprefix(MOVED)}, spreads"
    return _TITLES.get(outcome, outcome)


def group(outcome: str) -> str:
    """Return the group that an outcome in behaviour is drawn in."""
    return "death" if outcome.startswith(DEATH) else _GROUP_OF.get(outcome, "other")


def in_groups(outcomes: Sequence[str]) -> list[str]:
    """Return outcomes group by group; within a group, known ones first."""
    known = list(_TITLES)
    return sorted(
        outcomes,
        key=lambda name: (_GROUPS.index(group(name)), known.index(name) if name in known else len(known), name),
    )


def split_outcomes(table: LivesTable, arms: Sequence[Arm]) -> tuple[list[str], list[str]]:
    """Return the outcomes in behaviour, and those at once, which exist only for lives that are being edited.

    Outcomes at once are differences between the edited and the unedited state of the same tick already, so no twin has
    them. An outcome without any value is neither.
    """
    unedited = np.isin(table.arm, [arm.name for arm in arms if arm.kind == "unedited"]) | ~table.edited
    known = {name: np.isfinite(values) for name, values in table.outcomes.items()}
    in_behaviour = [name for name, finite in known.items() if finite[unedited].any()]
    at_once = [name for name, finite in known.items() if finite.any() and name not in in_behaviour]
    return in_groups(in_behaviour), at_once
