"""Checks of user input: numbers, seeds, lists of names, unknown names and conditions.

A check of one value is a pair: whether it passes, and a description of the allowed values.
"""

import difflib
import operator
import re
from collections.abc import Callable, Iterable

import numpy as np

from common.user_error import UserError

LARGEST_NUMBER = 10**15
"""More than any machine can count up to."""

FASTEST_REGROWTH = 40
"""Of eaten food, as a multiple of the game's rate: food then grows back in every tick."""
SEEDS = 2**32
"""Seeds are below this, a limit that numpy, scikit-learn and UMAP all accept."""
MOST_MAP_SEED = 2**30
"""Beyond about 1.7e9, the game's noise loses digits, and its maps are striped."""

Allowed = tuple[bool, str]

_NAMES_SUGGESTED = 3
_GAME_WORDS = {
    "hunger": "food", "hungry": "food", "thirst": "water", "thirsty": "water", "hp": "health", "life": "health",
    "money": "gold", "coins": "gold", "time": "tick", "age": "tick", "clock": "tick",
}  # fmt: skip
"""What the game calls what people may ask for."""
COMPARISONS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq, "!=": operator.ne
}  # fmt: skip
"""Ways to compare values with a number."""
_CONDITION = re.compile(r"\s*([A-Za-z_]\w*)\s*(<=|>=|==|!=|<|>)\s*(-?\d+(?:\.\d+)?)\s*")


def check(arguments: object, **allowed: Allowed) -> None:
    """Refuse the first argument whose value is not allowed; keywords are field names."""
    for name, (passes, values) in allowed.items():
        if not passes:
            raise UserError(f"--{name.replace('_', '-')} is {getattr(arguments, name)}: must be {values}")


def at_least(value: float | None, least: int) -> Allowed:
    """Check a number that may be None; what no machine could count up to is a slip, too."""
    if value is not None and value > LARGEST_NUMBER:
        return False, f"{least} to {LARGEST_NUMBER}"
    return value is None or value >= least, f"{least} or more"


def between(value: float, least: float, most: float) -> Allowed:
    """Check a number with a minimum and a maximum."""
    return least <= value <= most, f"{least} to {most}"


def regrowth_value(value: float | None) -> Allowed:
    """Check how fast food grows back; None stands for as in training."""
    return between(1 if value is None else value, 0, FASTEST_REGROWTH)


def seed_value(value: int) -> Allowed:
    """Check a seed."""
    return between(value, 0, SEEDS - 1)


def check_file_name(name: str, option: str = "-n") -> None:
    """Refuse a name of a policy, run or sweep, given by an option, that is not a valid file name.

    Raises:
        UserError: names the characters that are allowed.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UserError(f"{option} {name!r} cannot name a file: use letters, digits, '.', '_' and '-'")


def result_name(name: str | None) -> Allowed:
    """Check a `--name` of results, which lie in the folder of `-o`; None stands for a name made of the settings."""
    allowed = name is None or re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+=-]*", name)
    return bool(allowed), "a file's name, of letters, digits and . _ + = -; the folder that it lies in is -o"


def split(names: str | None) -> tuple[str, ...]:
    """Split a comma-separated list of names; None and empty names give nothing."""
    return tuple(name.strip() for name in (names or "").split(",") if name.strip())


def nearest(name: str, known: Iterable[str], most: int = _NAMES_SUGGESTED) -> list[str]:
    """Return the known names closest to an unknown one, which may be an everyday word for what they are about."""
    known, word = list(known), _GAME_WORDS.get(name.lower().removeprefix("self_"), name).lower()
    parts = [candidate for candidate in known if word and (word in candidate.lower() or candidate.lower() in word)]
    near = difflib.get_close_matches(name if word == name.lower() else word, known, most)
    return list(dict.fromkeys([*parts, *near]))[:most]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the known names closest to an unknown one, or "".

    Returns:
        Such as "; did you mean takeru_10M?", to append to a sentence.
    """
    suggestions = nearest(name, known)
    return f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""


def parts_of(text: str, option: str) -> tuple[str, str, float]:
    """Split a condition into what is compared, how, and with which number.

    Args:
        text: such as `self_food < 30`.
        option: where the user wrote it, such as `--while`; begins the message.

    Raises:
        UserError: it has another form.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise UserError(
            f"{option} {text!r}: must be a feature, one of <, <=, >, >=, == and !=, and a number, such as "
            "'self_food < 30'"
        )
    feature, comparison, number = match.groups()
    return feature, comparison, float(number)
