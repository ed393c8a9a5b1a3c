"""Conditions that users write, such as `self_food < 30`: a name, a comparison and a number."""

import operator
import re
from collections.abc import Callable

import numpy as np

from common.user_error import UserError

COMPARISONS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq, "!=": operator.ne
}  # fmt: skip
"""Ways to compare values with a number."""

_CONDITION = re.compile(r"\s*([A-Za-z_]\w*)\s*(<=|>=|==|!=|<|>)\s*(-?\d+(?:\.\d+)?)\s*")


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
