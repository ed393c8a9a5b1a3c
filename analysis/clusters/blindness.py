"""A meter of blindness: whether the listed features cover what clusters or components tell, in numbers and words."""

import math
from dataclasses import dataclass

from analysis.statistics.coverage import Coverage, Part
from common.number_text import share_text

TOO_SHORT = 0.2
"""The list of features is too short if the lower end of the interval of the uncovered share is above this.

Even where the list holds everything, a finite number of records does not suffice to find all of it: 0 to 8% remain in
planted dumps (docs/analysis.md, what the features cover).
"""

_ALL = 0.99
"""What is studied, such as many components, is all of what it is to tell about."""


@dataclass(frozen=True)
class Blindness:
    """How much of what clusters, codes or components tell is covered by all listed features together.

    Attributes:
        studied: what is studied, such as "clusters".
        left_out: those that cannot be computed from this dump.
        unit: what intervals resample, "life" or "episode".
        measures: about behaviour and about the state; none if they could not be measured.
        reason: why there are none, else "".
    """

    studied: str
    features: int
    left_out: tuple[str, ...]
    records: int
    unit: str
    units: int
    measures: tuple[Coverage, ...]
    reason: str

    @property
    def plural(self) -> str:
        """What intervals resample, in the plural."""
        return "episodes" if self.unit == "episode" else "lives"

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was measured in words; whether the list is too short comes last."""
        if not self.measures:
            return (f"Whether the listed features cover what {self.studied} tell is unknown: {self.reason}.",)
        short = [measure for measure in self.measures if measure.uncovered_low > TOO_SHORT]
        return *(_covered(self, measure) for measure in self.measures), *([_too_short(self, short)] if short else [])

    @property
    def table(self) -> list[str]:
        """The numbers behind the sentences, one line for each part of the targets; none if there are none."""
        if not self.measures:
            return []
        width = max(len(part.name) for measure in self.measures for part in measure.parts) + 2
        lines = [
            f"Variance explained in {self.plural} held out: by {self.studied}, by all {self.features} listed features, "
            "by both together",
            f"  ({self.records:,} records with a next tick, of {self.units:,} {self.plural})",
        ]
        for measure in self.measures:
            lines.append(_row(measure.about, measure, width + 2))
            lines += [_row(f"  {part.name}", part, width + 2) for part in measure.parts if len(measure.parts) > 1]
        missing = f"  Not in the list, since the dump lacks what they need: {', '.join(self.left_out)}"
        return [*lines, *([missing] if self.left_out else [])]


def _row(name: str, shares: Coverage | Part, width: int) -> str:
    values = (shares.studied, shares.listed, shares.together)
    return f"  {name:<{width}} {' '.join(f'{share:>6.1%}' for share in values)}"


def _covered(meter: Blindness, measure: Coverage) -> str:
    share = f"{share_text(measure.studied)}{_between(measure.studied_low, measure.studied_high)}"
    if not measure.reliable:
        return (
            f"What {meter.studied} tell about {measure.about} is not reliably more than nothing: {share} of its "
            f"variance in {meter.plural} held out."
        )
    covered = _between(1 - measure.uncovered_high, 1 - measure.uncovered_low)
    if measure.studied > _ALL:
        return (
            f"In {meter.plural} held out, all {meter.features} listed features together cover "
            f"{_of_all(1 - measure.uncovered)}{covered} of the variance of {measure.about}."
        )
    return (
        f"In {meter.plural} held out, {meter.studied} tell {share} of the variance of {measure.about}; all "
        f"{meter.features} listed features together cover {_of_all(1 - measure.uncovered)} of that{covered}."
    )


def _too_short(meter: Blindness, short: list[Coverage]) -> str:
    parts = " and ".join(
        f"{_of_all(measure.uncovered)} of what {meter.studied} tell about {measure.about}{_most(measure)}"
        for measure in short
    )
    verb = "is" if len(short) == 1 else "are"
    return (
        f"The list of features is too short: {parts} {verb} in none of them. A cluster or component without a "
        "surviving difference may still stand for something that is not in the list."
    )


def _most(measure: Coverage) -> str:
    if len(measure.parts) < 2:
        return ""
    return f" (most of all {max(measure.parts, key=lambda part: part.together - part.listed).name})"


def _between(low: float, high: float) -> str:
    return "" if math.isnan(low) or math.isnan(high) else f" ({_of_all(low)} to {_of_all(high)})"


def _of_all(share: float) -> str:
    """Write an estimated share; one beyond its limits by chance, as the limit."""
    return share_text(min(max(share, 0.0), 1.0))
