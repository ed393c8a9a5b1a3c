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
from analysis.features.observed import own_truth_columns
from analysis.features.registry import feature_matrix, features_named
from analysis.figures.style import category_colour, new_figure, style, title
from analysis.lives import lives_of
from analysis.materials import MATERIAL_NAMES
from analysis.statistics.resampling import Estimate, as_columns
from analysis.tables import tab_separated_lines
from common.argument_checks import COMPARISONS, parts_of

LifeKey = tuple[int, ...]
"""Slot, agent and episode of a life."""
_MATERIALS = 6
_FEWEST_STATES = 10
"""A thing must be in view in so many states on either side, or nothing is said of it."""


def parsed_event(text: str) -> tuple[Feature, Callable[[np.ndarray], np.ndarray]]:
    """Read an event, a condition on a feature such as `distance_to_npc <= 3`: the feature, and where values fulfil it.

    Raises:
        UserError: it has another form, or names no feature of docs/features.md.
    """
    name, comparison, number = parts_of(text, "--event")
    (feature,) = features_named([name])
    return feature, lambda values: COMPARISONS[comparison](values, number)


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
    feature, fulfils = parsed_event(settings.event)
    before, after = settings.before, settings.ticks - settings.before
    episodes = np.unique(read_identity(settings.dump)["episode"]).tolist()
    leave_out = ["tables", *(() if feature.of_tiles else ("tile",))]
    by_event: Onsets = {}
    for number, episode in enumerate(episodes):
        records = read_dump(
            settings.dump, layers=[], columns=own_truth_columns(metadata), leave_out=leave_out, episodes=[episode]
        )
        holds = fulfils(feature_matrix(records, metadata, [feature])[:, 0])
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


def ticks_since(maps: Attributions, before: int) -> np.ndarray:
    """Return the ticks from the event to each state, (N,), negative before it: in each sample, so many come before."""
    return np.concatenate([np.arange(count) - before for count in np.bincount(maps.sample)])


def around_event(maps: Attributions, before: int, seed: int) -> list[EventRow]:
    """Compare attributions before and after an event.

    Args:
        maps: samples of the same number of ticks.
        before: ticks of each sample before the event.
    """
    later, over, known = ticks_since(maps, before) >= 0, OverSamples(maps.sample, seed), maps.known
    rows = []
    for name, values, weight in _measures(maps):
        values, weight = np.where(known, values, 0), np.where(known, weight, 0)
        early, late = ((weight > 0) & side for side in (~later, later))
        if min(early.sum(), late.sum()) < _FEWEST_STATES:
            continue
        both = np.intersect1d(maps.sample[early], maps.sample[late])
        first, then = (float(values[side].sum() / weight[side].sum()) for side in (early, late))
        rows.append(EventRow(name, first, then, over.difference(values, weight, later, ~later), len(both)))
    return rows


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


def event_lines(rows: Sequence[EventRow], event: str, held: float, before: int, after: int) -> list[str]:
    """Return what changes at an event that so many ticks come before and after.

    Args:
        held: share of the ticks from then on in which it holds, mean over samples.
    """
    lines = [
        f"Before and after {event}: means over the {before} ticks before it, in none of which it holds, and the "
        f"{after} ticks from then on, in {held:.0%} of which it does. Differences with 95% intervals over samples:"
    ]
    for row in rows:
        change = row.difference
        sure = "" if change.low <= 0 <= change.high or not np.isfinite(change.low) else " *"
        lines.append(
            f"  {row.measure}: {row.before:+.3g} to {row.after:+.3g}, difference {change.value:+.2g} "
            f"({change.low:+.2g} to {change.high:+.2g}){sure}"
        )
    return [*lines, "  * the interval excludes 0; intervals are not corrected for multiple comparisons"]


def event_table(rows: Sequence[EventRow]) -> str:
    """Return the rows as tab-separated text."""
    lines = []
    for row in rows:
        numbers = (row.before, row.after, row.difference.value, row.difference.low, row.difference.high)
        lines.append((row.measure, *(f"{number:.6g}" for number in numbers), str(row.samples)))
    return tab_separated_lines(("measure", "before", "after", "difference", "low", "high", "samples"), lines)


def event_figure(maps: Attributions, event: str, before: int, heading: str, seed: int) -> Figure:
    """Draw the target and the size of the parts by ticks since the event."""
    offset = ticks_since(maps, before)
    offsets = np.unique(offset)
    sizes = maps.sizes().sum(axis=1)
    with style():
        figure = new_figure(11.0, 4.4)
        target, parts = figure.subplots(1, 2)
        middle, low, high = as_columns(_mean_at(maps, maps.value, offset == ticks, seed) for ticks in offsets)
        target.fill_between(offsets, low, high, color="#3f90da", alpha=0.25, linewidth=0)
        target.plot(offsets, middle, color="#3f90da")
        target.set(ylabel="target, mean and 95% interval over samples")
        for number, part in enumerate(PARTS):
            if sizes[:, number].any():
                inside = [(offset == ticks) & maps.known for ticks in offsets]
                line = [sizes[states, number].mean() if states.any() else np.nan for states in inside]
                parts.plot(offsets, line, color=category_colour(number), label=part)
        parts.set(ylabel="mean summed |attribution|", ylim=(0, None))
        parts.legend(loc="best")
        for axes in (target, parts):
            axes.axvline(0, color="#33475b", linestyle=":", linewidth=1)
            axes.set(xlabel="ticks since the event")
        figure.suptitle(title(heading, f"Before and after {event}", 110))
    return figure


def _mean_at(maps: Attributions, values: np.ndarray, inside: np.ndarray, seed: int) -> Estimate:
    known = inside & np.isfinite(values)
    if not known.any():
        return Estimate(float("nan"))
    return OverSamples(maps.sample[known], seed).mean(values[known], np.ones(known.sum()))


def share_held(settings: SaliencySettings, samples: Sequence[Sample], begins: Onsets) -> float:
    """Return the share of the ticks from the event on in which it holds, mean over the samples that were drawn."""
    held = []
    for sample in samples:
        shown = places_of(sample.shown)
        born, of_ticks = begins[tuple(int(shown[name][0]) for name in LIFE_KEY)]
        held.append(of_ticks[int(shown["tick"][settings.before]) - born])
    return float(np.mean(held))
