"""Everything that a run knows of the dictionaries of one layer."""

from dataclasses import dataclass

from representation.sparse_autoencoder.fitting import Fitted
from representation.sparse_autoencoder.report import (
    ComparisonRow,
    ScoreRow,
    StabilityRow,
    are_compared,
    comparison_row,
    score_row,
    stability_row,
)
from representation.sparse_autoencoder.scores import Estimate, Units, Usage
from representation.sparse_autoencoder.splicing import SplicedRun
from representation.sparse_autoencoder.stability import Stability


@dataclass(frozen=True, eq=False)
class Tested:
    """Everything that is known of the dictionaries of one layer.

    Attributes:
        fitted: the dictionaries, by name.
        usages: of the test states, by name.
        units: of intervals over the test states.
        spliced: what splicing in changes; None if nothing was spliced.
        stabilities: by the names of an autoencoder and its other seed.
    """

    fitted: dict[str, Fitted]
    usages: dict[str, Usage]
    units: Units
    spliced: SplicedRun | None
    stabilities: dict[tuple[str, str], Stability]

    def scores(self) -> list[ScoreRow]:
        """Return a row for each dictionary."""
        return [
            score_row(each, self.usages[name], self.spliced.score(name) if self.spliced else None)
            for name, each in self.fitted.items()
        ]

    def comparisons(self) -> list[ComparisonRow]:
        """Return a row for each autoencoder and baseline."""
        return [
            comparison_row(own, other, self._less(own, other), self.spliced)
            for own in self.fitted.values()
            for other in self.fitted.values()
            if are_compared(own, other)
        ]

    def stability(self) -> list[StabilityRow]:
        """Return a row for each pair of seeds."""
        return [stability_row(*names, found) for names, found in self.stabilities.items()]

    def _less(self, own: Fitted, other: Fitted) -> Estimate:
        """How much less of the variance an autoencoder leaves unexplained."""
        first, second = self.usages[own.entry.name], self.usages[other.entry.name]
        return self.units.mean(second.error - first.error, first.deviation)
