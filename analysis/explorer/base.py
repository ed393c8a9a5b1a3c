"""What a page is about: the points of a run, and how every tick of their lives gets a label."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.lives import Places, number_lives, places_of
from activation_store.reader import Progress, read_batches, read_metadata
from activation_store.recording import check_recorded
from activation_store.records import Records
from activation_store.schema import IDENTITY
from activation_store.selection import OBSERVATIONS, select
from analysis.lives import places_among
from analysis.runs.cluster_run import ClusterRun, FinishedRun
from analysis.runs.propagated_labels import CarryingRule, Rule, fit_rule
from common.progress_view import Step
from common.user_error import UserError

LeftOut = Callable[[Path, "NothingOfThePage"], None]
"""Called with a run or dump that says nothing of a page's lives; raises if it was named for the page."""
Numbers = Callable[[Records], np.ndarray]
"""Computes numbers from records, (B, numbers), or one of each, (B,)."""


class NothingOfThePage(UserError):
    """A run or dump that belongs to the page's, but says nothing of the lives in it."""


def refuse(path: Path, error: NothingOfThePage) -> None:
    """Leave nothing out."""
    raise error


@dataclass(frozen=True, eq=False)
class TickLabels:
    """Labels of ticks: a run's own where it has them, a rule's elsewhere."""

    run: ClusterRun  # the labels that it gave
    rule: Rule
    by_rule: Callable[[Path, Places, Progress], np.ndarray]  # labels ticks of any dump of the policy, (T,) int64
    word: str = "cluster"  # what a group is called

    def of(self, dump: Path, places: Places, report: Progress) -> tuple[np.ndarray, np.ndarray]:
        """Return labels of ticks of the run's dump, (T,) int64, and whether each is the run's own, (T,) bool."""
        return self.with_own(self.by_rule(dump, places, report), places)

    def with_own(self, label: np.ndarray, places: Places) -> tuple[np.ndarray, np.ndarray]:
        """Put the run's own labels over those of the rule; returns as `of`."""
        place = places_among(places, self.run.places)
        own = place >= 0
        return np.where(own, self.run.label[place], label), own | self.rule.exact


Base = tuple[FinishedRun, TickLabels, np.ndarray]
"""The run that a page is about, its labels, and the states of its N records where distances say how much alike they
are, (N, C); C is 0 where none do."""


def cluster_base(run: FinishedRun, step: Step) -> Base:
    """Return a run of clusters or codes as the base of a page; errors as `fit_rule`."""
    with step("learning from the run's labels") as report:
        labels = labels_of(run, report)
    rule = labels.rule
    states = rule.points if isinstance(rule, CarryingRule) else np.empty((len(run.clusters.label), 0))
    return run, labels, states


def labels_of(run: FinishedRun, report: Progress) -> TickLabels:
    """Return the labels of a run, and fit the rule for other ticks; errors as `fit_rule`."""
    rule, layer = fit_rule(run.clusters, run.dump, report), run.clusters.layer

    def by_rule(dump: Path, places: Places, report: Progress) -> np.ndarray:
        return along(dump, places, lambda batch: rule.labels_of(batch.activations[layer]), report, layer).astype(
            np.int64
        )

    return TickLabels(run.clusters, rule, by_rule)


def along(
    dump: Path, places: Places, numbers: Numbers, report: Progress, layer: str, columns: tuple[str, ...] = ()
) -> np.ndarray:
    """Compute numbers of some ticks of a dump, (T, numbers) float32 or (T,).

    Args:
        numbers: computes them from a layer's activations, and from columns.

    Raises:
        UserError: the dump does not hold the layer.
    """
    parts = [
        (places_of(batch), numbers(batch).astype(np.float32)) for batch in batches(dump, places, layer, report, columns)
    ]
    there = {name: np.concatenate([part[name] for part, _ in parts]) for name in IDENTITY}
    return np.concatenate([values for _, values in parts])[places_among(places, there)]


def batches(
    dump: Path, places: Places, layer: str, report: Progress, columns: tuple[str, ...] = ()
) -> Iterator[Records]:
    """Read a layer's activations, and columns, in the lives of some ticks; errors as `along`."""
    metadata = read_metadata(dump)
    check_recorded(dump, metadata, layer)
    lives, _ = number_lives(places)
    nothing_else = [*OBSERVATIONS, "tables"]
    wanted = select(dump, metadata, layers=[layer], columns=list(columns), leave_out=nothing_else, lives=lives.tolist())
    yield from (batch for batch in read_batches(dump, metadata, wanted, report) if len(batch))
