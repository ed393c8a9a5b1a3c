"""What attributions are before and after an event, with intervals over samples."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from analysis.figures.style import category_colour, new_figure, style, title
from analysis.materials import MATERIAL_NAMES
from analysis.statistics.resampling import Estimate
from representation.attribution.found import ENTITY_KINDS, PARTS, Found
from representation.attribution.intervals import OverSamples

_MATERIALS = 6
_FEWEST_STATES = 10
"""A thing must be in view in so many states on either side, or nothing is said of it."""

Measure = tuple[str, np.ndarray, np.ndarray]
"""What is measured, and of each state its sum and the count that the sum is divided by, (N,) each."""


@dataclass(frozen=True)
class EventRow:
    """One number before and after an event.

    Attributes:
        measure: what it is.
        before: its mean before the event.
        after: its mean from the event on.
        difference: after less before, with the interval over samples.
        samples: in which it was measured on both sides.
    """

    measure: str
    before: float
    after: float
    difference: Estimate
    samples: int


@dataclass(frozen=True, eq=False)
class AroundEvent:
    """Attributions around an event.

    Attributes:
        event: the condition that begins to hold.
        held: share of the ticks from then on in which it holds, mean over samples.
        offset: of each state, ticks since the event, (N,); negative before it.
        rows: what changes.
    """

    event: str
    held: float
    offset: np.ndarray
    rows: tuple[EventRow, ...]


def around_event(found: Found, event: str, held: float, before: int, seed: int) -> AroundEvent:
    """Compare attributions before and after an event.

    Args:
        found: samples of the same number of ticks, with the event at the same place in each.
        event: the condition.
        held: see `AroundEvent`.
        before: ticks of each sample before the event.
        seed: of the resamples.
    """
    offset = np.concatenate([np.arange(count) - before for count in np.bincount(found.sample)])
    later, over, known = offset >= 0, OverSamples(found.sample, seed), np.isfinite(found.value)
    rows = []
    for name, values, weight in _measures(found):
        values, weight = np.where(known, values, 0), np.where(known, weight, 0)
        early, late = ((weight > 0) & side for side in (~later, later))
        if min(early.sum(), late.sum()) < _FEWEST_STATES:
            continue
        both = np.intersect1d(found.sample[early], found.sample[late])
        first, then = (float(values[side].sum() / weight[side].sum()) for side in (early, late))
        rows.append(EventRow(name, first, then, over.difference(values, weight, later, ~later), len(both)))
    return AroundEvent(event, held, offset, tuple(rows))


def _measures(found: Found) -> Iterator[Measure]:
    each_state = np.ones(len(found))
    yield "the target itself", np.nan_to_num(found.value), each_state
    sizes = found.sizes().sum(axis=1)
    for number, part in enumerate(PARTS):
        if sizes[:, number].any():
            yield f"|attribution| of {part}, sum", sizes[:, number], each_state
    signed, size, tiles = found.by_material()
    strength = np.divide(size.sum(0), tiles.sum(0), out=np.zeros(size.shape[1]), where=tiles.sum(0) > 0)
    for material in np.argsort(-strength)[:_MATERIALS]:
        if strength[material] > 0:
            yield f"attribution of a {MATERIAL_NAMES[material]} tile", signed[:, material], tiles[:, material]
    entities = np.nan_to_num(found.entities[:, -1])
    for kind, name in ENTITY_KINDS.items():
        there = found.entity_kind == kind
        if there.any():
            yield f"attribution of {name} in view", (entities * there).sum(axis=1), there.sum(axis=1)
    for number, name in enumerate(found.component_names):
        yield f"attribution of {name} of the memory", found.components[:, number], each_state


def event_lines(found: AroundEvent) -> list[str]:
    """Return what changes at the event."""
    ticks = -int(found.offset.min()), int(found.offset.max()) + 1
    lines = [
        f"Before and after {found.event}: means over the {ticks[0]} ticks before it, in none of which it holds, and "
        f"the {ticks[1]} ticks from then on, in {found.held:.0%} of which it does. Differences with 95% intervals over "
        "samples:"
    ]
    for row in found.rows:
        change = row.difference
        sure = "" if change.low <= 0 <= change.high or not np.isfinite(change.low) else " *"
        lines.append(
            f"  {row.measure}: {row.before:+.3g} to {row.after:+.3g}, difference {change.value:+.2g} "
            f"({change.low:+.2g} to {change.high:+.2g}){sure}"
        )
    return [*lines, "  * the interval leaves out 0; intervals are not corrected for their number"]


def event_table(found: AroundEvent) -> str:
    """Return the rows as tab-separated text."""
    lines = ["measure\tbefore\tafter\tdifference\tlow\thigh\tsamples"]
    for row in found.rows:
        change = row.difference
        numbers = (row.before, row.after, change.value, change.low, change.high)
        lines.append("\t".join([row.measure, *(f"{each:.6g}" for each in numbers), str(row.samples)]))
    return "\n".join([*lines, ""])


def event_figure(around: AroundEvent, found: Found, heading: str, seed: int) -> Figure:
    """Draw the target and the size of the parts by ticks since the event."""
    offsets = np.unique(around.offset)
    sizes = found.sizes().sum(axis=1)
    with style():
        figure = new_figure(11.0, 4.4)
        target, parts = figure.subplots(1, 2)
        means = [_at(found, found.value, around.offset == each, seed) for each in offsets]
        low, high = (np.array([getattr(each, name) for each in means]) for name in ("low", "high"))
        target.fill_between(offsets, low, high, color="#3f90da", alpha=0.25, linewidth=0)
        target.plot(offsets, [each.value for each in means], color="#3f90da")
        target.set(ylabel="target, mean and 95% interval over samples")
        for number, part in enumerate(PARTS):
            if sizes[:, number].any():
                line = [sizes[around.offset == each, number].mean() for each in offsets]
                parts.plot(offsets, line, color=category_colour(number), label=part)
        parts.set(ylabel="mean summed |attribution|", ylim=(0, None))
        parts.legend(loc="best")
        for axes in (target, parts):
            axes.axvline(0, color="#33475b", linestyle=":", linewidth=1)
            axes.set(xlabel="ticks since the event")
        figure.suptitle(title(heading, f"Before and after {around.event}", 110))
    return figure


def _at(found: Found, values: np.ndarray, inside: np.ndarray, seed: int) -> Estimate:
    known = inside & np.isfinite(values)
    if not known.any():
        return Estimate(float("nan"))
    return OverSamples(found.sample[known], seed).mean(values[known], np.ones(known.sum()))
