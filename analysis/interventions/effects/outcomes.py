"""The outcomes of lives: which have an unedited twin, their names and groups, and margins of what matters."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from activation_store.interventions import Arm, LivesTable, Outcome
from common.user_error import UserError

KL, KL_IN_PLAY = Outcome("kl", against="total").name, Outcome("kl", against="in_play").name
VALUE_CHANGE = Outcome("value_change", against="total").name
OFF_MANIFOLD, EDITED_TICKS, WITHIN_DATA = "off_manifold", "edited_ticks", "within_data"
SOUTH, EAST = "south", "east"
"""Where an agent's steps have led it in its life, in tiles per 100 ticks."""
FOLLOWS_SIDES = ("follows_lower", "follows_higher")
"""Measures: shares of ticks in which an option follows a donor of a lower value, and of a higher one; see `follows`."""
_BY_THEMSELVES = (*FOLLOWS_SIDES, "lasting", "planned")
"""Measures that are neither compared with the twin nor listed among changes at once."""

_SHARE, _PER_100_TICKS, _NATS, _SPREADS = "share", "per 100 ticks", "nats", "spreads"
_TILES = "tiles per 100 ticks"
_OF_ITS_TASK = "0 to 1"
_GROUPS = ("life", "needs", "path", "fights", "death", "other")
_IN_BEHAVIOUR = {
    "ticks": ("ticks lived", "", "life"),
    "level": ("highest level of skills", "", "life"),
    "reward": ("reward", "total", "life"),
    "task_progress": ("task progress", _OF_ITS_TASK, "life"),
    "meals": ("meals", _PER_100_TICKS, "needs"),
    "drinks": ("drinks", _PER_100_TICKS, "needs"),
    "towards_food": ("moves towards food", _SHARE, "needs"),
    SOUTH: ("way south", _TILES, "path"),
    EAST: ("way east", _TILES, "path"),
    "towards_goal": ("way towards its goal", _TILES, "path"),
    "right_way": ("goes the right way", _SHARE, "path"),
    "damage_dealt": ("damage dealt", _PER_100_TICKS, "fights"),
    "damage_taken": ("damage taken", _PER_100_TICKS, "fights"),
    "armour": ("defence worn after 100 ticks", "points", "fights"),
}
_WORDS = {name: (words, unit) for name, (words, unit, _) in _IN_BEHAVIOUR.items()} | {
    "kl": ("KL, all heads", _NATS),
    "value_change": ("change of the value", ""),
    OFF_MANIFOLD: ("distance from recorded states", "unedited = 1"),
    WITHIN_DATA: ("change within the span of recorded states", _SHARE),
    EDITED_TICKS: ("edited ticks", ""),
}
_AGAINST = {"total": ", in total", "in_play": ", in play", None: ""}


def title(outcome: str) -> str:
    """Return what an outcome is called in figures and text; unknown ones keep their name."""
    return _words(outcome)[0]


def largest_change(outcome: str) -> float:
    """Return the size that no effect on an outcome can exceed: 1 of a share and of progress; infinite of others."""
    return 1.0 if _words(outcome)[1] in (_SHARE, _OF_ITS_TASK) else math.inf


def title_with_unit(outcome: str) -> str:
    """Return the title of an outcome, with its unit in brackets if it has one."""
    name, unit = _words(outcome)
    return f"{name} ({unit})" if unit else name


def group(outcome: str) -> str:
    """Return the group that an outcome in behaviour is drawn in; "other" for those that not every run measures."""
    is_cause = Outcome.parse(outcome).measure == "died_of"
    return "death" if is_cause else _IN_BEHAVIOUR.get(outcome, ("", "", "other"))[2]


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
    known = {
        name: np.isfinite(values)
        for name, values in table.outcomes.items()
        if Outcome.parse(name).measure not in _BY_THEMSELVES
    }
    in_behaviour = [name for name, finite in known.items() if finite[unedited].any()]
    at_once = [name for name, finite in known.items() if finite.any() and name not in in_behaviour]
    return in_groups(in_behaviour), at_once


def _words(name: str) -> tuple[str, str]:
    """Return an outcome's title and unit."""
    outcome = Outcome.parse(name)
    plain = replace(outcome, against=None).name
    words, unit = _WORDS.get(plain, (plain, ""))
    match outcome.measure if outcome.of else None:
        case "died_of":
            words, unit = f"died: {outcome.of.replace('_', ' ')}", _SHARE
        case "kl":
            words, unit = f"KL of {outcome.of}", _NATS
        case "gain":
            words, unit = f"probability of {outcome.of.replace('/', ' ')}", "change"
        case "moved":
            words, unit = f"change along {outcome.of}", _SPREADS
    return words + _AGAINST[outcome.against], unit


FOLLOWS, BEND = "follows", "bend"
"""Names by which margins of shares that follow a variable, and of bends, are given."""


@dataclass(frozen=True)
class Margins:
    """Effects smaller than these do not matter."""

    spreads: float = math.nan
    """In standard deviations over lives of the unedited twin, for outcomes that are not named; NaN for none."""
    named: Mapping[str, float] = field(default_factory=dict)  # in the outcome's own unit, by outcome

    def of(self, outcome: str, spread: float = math.nan) -> float:
        """Return the margin of an outcome whose values have this spread over lives; NaN for none."""
        return self.named.get(outcome, self.spreads * spread)

    def check_outcomes(self, outcomes: Sequence[str]) -> None:
        """Refuse margins of outcomes that a run does not have.

        Raises:
            UserError: one of them is not among the outcomes.
        """
        if missing := [name for name in self.named if name not in outcomes]:
            raise UserError(
                f"--equivalent-within: this run has no {missing[0]!r}, only {', '.join(outcomes)}: "
                "report it with other margins (intervene.py report RUN --equivalent-within ...)"
            )


def margins(text: str) -> Margins:
    """Read --equivalent-within, such as "0.1", "ticks=10,meals=0.5" or "0.1,follows=0.05"; "" is no margin.

    Raises:
        UserError: a number is not above 0 and finite, or an outcome is unknown or named twice.
    """
    spreads, named = math.nan, dict[str, float]()
    for part in filter(None, (entry.strip() for entry in text.split(","))):
        name, equals, number = (side.strip() for side in part.rpartition("="))
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise UserError(f"--equivalent-within {text!r}: {number!r} is no number above 0")
        if name in named or (not equals and not math.isnan(spreads)):
            raise UserError(f"--equivalent-within {text!r}: {part!r} comes after another margin for the same")
        if not equals:
            spreads = value
        elif name in (FOLLOWS, BEND) or group(name) != "other":
            named[name] = value
        else:
            raise UserError(
                f"--equivalent-within {text!r}: {name!r} is no outcome in behaviour: give one that effects.tsv lists, "
                f"such as ticks, or {FOLLOWS} or {BEND}"
            )
    return Margins(spreads, named)


def equivalence_p(value: float, error: float, freedom: int, margin: float) -> float:
    """Return the p-value of an effect that is not within the margin; NaN without a margin or an error.

    The larger one of two one-sided t-tests, of an effect of at least the margin on either side (Schuirmann 1987,
    Journal of Pharmacokinetics and Biopharmaceutics 15, 657-680).
    """
    from scipy import stats

    if not (math.isfinite(margin) and math.isfinite(error) and error > 0 and freedom > 0):
        return math.nan
    return float(stats.t.sf((margin - abs(value)) / error, freedom))
