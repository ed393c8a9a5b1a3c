"""Smallest effects that matter, as users give them, and the test that an effect is smaller."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis.interventions.effects.outcomes import is_known_outcome
from common.user_error import UserError

FOLLOWS, BEND = "follows", "bend"
"""Names by which margins of shares that follow a variable, and of bends, are given."""


@dataclass(frozen=True)
class Margins:
    """Effects smaller than these do not matter.

    Attributes:
        spreads: in standard deviations over lives of the unedited twin, for outcomes that are not named; NaN for none.
        named: in the outcome's own unit, by outcome.
    """

    spreads: float = math.nan
    named: Mapping[str, float] = field(default_factory=dict)

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
        elif name in (FOLLOWS, BEND) or is_known_outcome(name):
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
