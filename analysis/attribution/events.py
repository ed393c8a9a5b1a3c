"""Attributions before and after an event: a condition on a behavioural feature that begins to hold."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from activation_store.lives import places_of
from activation_store.reader import read_dump, read_identity
from activation_store.schema import LIFE_KEY, DumpMetadata
from analysis.attribution.attributions import ENTITY_KINDS, PARTS, Attributions, OverSamples, per_tile
from analysis.attribution.settings import SaliencySettings
from analysis.attribution.windows import Sample
from analysis.features.feature import Feature
from analysis.features.matrix import feature_matrix
from analysis.features.observed import own_truth_columns
from analysis.features.registry import features_named
from analysis.figures.style import category_colour, new_figure, style, title
from analysis.lives import lives_of
from analysis.materials import MATERIAL_NAMES
from analysis.statistics.resampling import Estimate
from analysis.tables import tab_separated_lines
from common.argument_checks import COMPARISONS, parts_of

LifeKey = tuple[int, ...]
"""Slot, agent and episode of a life."""
_MATERIALS = 6
_FEWEST_STATES = 10
"""A thing must be in view in so many states on either side, or nothing is said of it."""


@dataclass(frozen=True)
class Event:
    """A condition on a behavioural feature that begins to hold, such as `distance_to_npc <= 3`."""

    text: str
    feature: Feature
    comparison: str  # one of <, <=, >, >=, ==, !=
    number: float

    @staticmethod
    def parse(text: str) -> "Event":
        """Read an event.

        Raises:
            UserError: it has another form, or names no feature of docs/features.md.
        """
        name, comparison, number = parts_of(text, "--event")
        (feature,) = features_named([name])
        return Event(text.strip(), feature, comparison, number)

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Return where the condition holds, given values of the feature."""
        return COMPARISONS[self.comparison](values, self.number)


Onsets = dict[LifeKey, tuple[int, dict[int, float]]]
"""Where an event begins. Of each life, the tick of its first record; and the ticks at which it begins, counted from
that record, with the share of the ticks from then on in which the condition holds."""


def onsets(holds: np.ndarray, before: int, after: int) -> np.ndarray:
    """Return the ticks of one life at which a condition begins to hold, ascending.

    Args:
        holds: in each tick of the life, (T,) bool.
        before: ticks before, in none of which it may hold.
        after: ticks that must be there from the beginning on, that one included.
    """
    starts = np.flatnonzero(holds[1:] & ~holds[:-1]) + 1
    total = np.concatenate([[0], np.cumsum(holds)])
    quiet = total[starts] - total[np.maximum(starts - before, 0)] == 0
    return starts[quiet & (starts >= before) & (starts + after <= len(holds))]


def find_onsets(settings: SaliencySettings, metadata: DumpMetadata, progress: Callable[[float], None]) -> Onsets:
    """Find where the event of `--event` begins in all lives of a dump, with room for a sample around it.

    Raises:
        UserError: the dump lacks what the feature needs.
    """
    event, before, after = Event.parse(settings.event), settings.before, settings.ticks - settings.before
    episodes = np.unique(read_identity(settings.dump)["episode"]).tolist()
    leave_out = ["tables", *(() if event.feature.of_tiles else ("tile",))]
    by_event: Onsets = {}
    for number, episode in enumerate(episodes):
        records = read_dump(
            settings.dump, layers=[], columns=own_truth_columns(metadata), leave_out=leave_out, episodes=[episode]
        )
        holds = event.holds(feature_matrix(records, metadata, [event.feature])[:, 0])
        lives, places = lives_of(records), places_of(records)
        for start, length in zip(lives.starts.tolist(), lives.lengths.tolist(), strict=True):
            own = lives.order[start : start + length]
            first = before + settings.window - 1  # ticks that its first window needs come before the sample
            begins = [tick for tick in onsets(holds[own], before, after).tolist() if tick >= first]
            if begins:
                key = tuple(int(places[name][own[0]]) for name in LIFE_KEY)
                held = {tick: float(holds[own][tick : tick + after].mean()) for tick in begins}
                by_event[key] = int(records.tick[own[0]]), held
        progress((number + 1) / len(episodes))
    return by_event


Measure = tuple[str, np.ndarray, np.ndarray]
"""What is measured, and of each state its sum and the count that the sum is divided by, (N,) each."""


@dataclass(frozen=True)
class EventRow:
    """One number before and after an event."""

    measure: str
    before: float
    after: float
    difference: Estimate  # after less before, with the interval over samples
    samples: int  # in which it was measured on both sides


@dataclass(frozen=True, eq=False)
class AroundEvent:
    """Attributions around an event."""

    event: str
    held: float  # share of the ticks from then on in which it holds, mean over samples
    offset: np.ndarray  # of each state, ticks since the event, (N,); negative before it
    rows: tuple[EventRow, ...]


def around_event(maps: Attributions, event: str, held: float, before: int, seed: int) -> AroundEvent:
    """Compare attributions before and after an event.

    Args:
        maps: samples of the same number of ticks, with the event at the same place in each.
        before: ticks of each sample before the event.
    """
    offset = np.concatenate([np.arange(count) - before for count in np.bincount(maps.sample)])
    later, over, known = offset >= 0, OverSamples(maps.sample, seed), maps.known
    rows = []
    for name, values, weight in _measures(maps):
        values, weight = np.where(known, values, 0), np.where(known, weight, 0)
        early, late = ((weight > 0) & side for side in (~later, later))
        if min(early.sum(), late.sum()) < _FEWEST_STATES:
            continue
        both = np.intersect1d(maps.sample[early], maps.sample[late])
        first, then = (float(values[side].sum() / weight[side].sum()) for side in (early, late))
        rows.append(EventRow(name, first, then, over.difference(values, weight, later, ~later), len(both)))
    return AroundEvent(event, held, offset, tuple(rows))


def _measures(maps: Attributions) -> Iterator[Measure]:
    each_state = np.ones(len(maps))
    yield "the target itself", np.nan_to_num(maps.value), each_state
    sizes = maps.sizes().sum(axis=1)
    for number, part in enumerate(PARTS):
        if sizes[:, number].any():
            yield f"|attribution| of {part}, sum", sizes[:, number], each_state
    signed, size, tiles = maps.by_material()
    strength = per_tile(size.sum(axis=0), tiles.sum(axis=0))
    for material in np.argsort(-strength)[:_MATERIALS]:
        if strength[material] > 0:
            yield f"attribution of a {MATERIAL_NAMES[material]} tile", signed[:, material], tiles[:, material]
    entities = np.nan_to_num(maps.entities[:, -1])
    for kind, name in ENTITY_KINDS.items():
        there = maps.entity_kind == kind
        if there.any():
            yield f"attribution of {name} in view", (entities * there).sum(axis=1), there.sum(axis=1)
    for number, name in enumerate(maps.component_names):
        yield f"attribution of {name} of the memory", maps.components[:, number], each_state


def event_lines(around: AroundEvent) -> list[str]:
    """Return what changes at the event."""
    ticks = -int(around.offset.min()), int(around.offset.max()) + 1
    lines = [
        f"Before and after {around.event}: means over the {ticks[0]} ticks before it, in none of which it holds, and "
        f"the {ticks[1]} ticks from then on, in {around.held:.0%} of which it does. Differences with 95% intervals "
        "over samples:"
    ]
    for row in around.rows:
        change = row.difference
        sure = "" if change.low <= 0 <= change.high or not np.isfinite(change.low) else " *"
        lines.append(
            f"  {row.measure}: {row.before:+.3g} to {row.after:+.3g}, difference {change.value:+.2g} "
            f"({change.low:+.2g} to {change.high:+.2g}){sure}"
        )
    return [*lines, "  * the interval excludes 0; intervals are not corrected for multiple comparisons"]


def event_table(around: AroundEvent) -> str:
    """Return the rows as tab-separated text."""
    rows = []
    for row in around.rows:
        change = row.difference
        numbers = (row.before, row.after, change.value, change.low, change.high)
        rows.append((row.measure, *(f"{number:.6g}" for number in numbers), str(row.samples)))
    return tab_separated_lines(("measure", "before", "after", "difference", "low", "high", "samples"), rows)


def event_figure(around: AroundEvent, maps: Attributions, heading: str, seed: int) -> Figure:
    """Draw the target and the size of the parts by ticks since the event."""
    offsets = np.unique(around.offset)
    sizes = maps.sizes().sum(axis=1)
    with style():
        figure = new_figure(11.0, 4.4)
        target, parts = figure.subplots(1, 2)
        means = [_mean_at(maps, maps.value, around.offset == offset, seed) for offset in offsets]
        low, high = (np.array([getattr(mean, name) for mean in means]) for name in ("low", "high"))
        target.fill_between(offsets, low, high, color="#3f90da", alpha=0.25, linewidth=0)
        target.plot(offsets, [mean.value for mean in means], color="#3f90da")
        target.set(ylabel="target, mean and 95% interval over samples")
        for number, part in enumerate(PARTS):
            if sizes[:, number].any():
                inside = [(around.offset == offset) & maps.known for offset in offsets]
                line = [sizes[states, number].mean() if states.any() else np.nan for states in inside]
                parts.plot(offsets, line, color=category_colour(number), label=part)
        parts.set(ylabel="mean summed |attribution|", ylim=(0, None))
        parts.legend(loc="best")
        for axes in (target, parts):
            axes.axvline(0, color="#33475b", linestyle=":", linewidth=1)
            axes.set(xlabel="ticks since the event")
        figure.suptitle(title(heading, f"Before and after {around.event}", 110))
    return figure


def _mean_at(maps: Attributions, values: np.ndarray, inside: np.ndarray, seed: int) -> Estimate:
    known = inside & np.isfinite(values)
    if not known.any():
        return Estimate(float("nan"))
    return OverSamples(maps.sample[known], seed).mean(values[known], np.ones(known.sum()))


def compared_around(
    settings: SaliencySettings, maps: Attributions, samples: Sequence[Sample], begins: Onsets
) -> AroundEvent:
    """Compare before and after the event, in the samples that were drawn."""
    held = []
    for sample in samples:
        shown = places_of(sample.shown)
        key = tuple(int(shown[name][0]) for name in LIFE_KEY)
        born, share_held = begins[key]
        held.append(share_held[int(shown["tick"][settings.before]) - born])
    return around_event(maps, settings.event.strip(), float(np.mean(held)), settings.before, settings.seed)
