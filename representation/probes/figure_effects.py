"""One effect of a memory on each target, with intervals: what the figures of advantages and increments share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import cluster_colour, new_figure, style, title, wrapped
from representation.probes.report import AUC, R_SQUARED

LEVEL = 0.05
"""False discovery rate at which an effect counts."""

_INCHES_A_TARGET = 0.17
_INCHES_A_MARK = 0.07
_WIDEST = 1.05
_LETTERS_IN_LEGEND = 110
_MEASURES = (R_SQUARED, AUC)


@dataclass(frozen=True)
class Effect:
    """One mark: an effect on one target, with its interval, and its q over the whole run."""

    target: str
    measure: str
    value: float
    low: float | None
    high: float | None
    q: float | None

    @property
    def found(self) -> bool:
        """Whether it is above 0 after the correction for everything that the run tested."""
        return self.value > 0 and self.q is not None and self.q < LEVEL


@dataclass(frozen=True)
class DumpEffects:
    """The effects that were measured in one dump."""

    name: str
    effects: tuple[Effect, ...]


def figure_of_effects(dumps: Sequence[DumpEffects], headline: str, text: str, label: str) -> Figure:
    """Draw an effect on every target, a colour for each dump.

    Targets are sorted by their largest effect in any dump. Filled marks are effects that survive the correction.

    Args:
        dumps: at least one.
        headline: what the picture shows.
        text: below it, what was measured.
        label: of the axis, without the measure.
    """
    names = {measure: _targets(dumps, measure) for measure in _MEASURES}
    with style():
        tallest = max(1, *(len(each) for each in names.values()))
        figure = new_figure(11, 2.5 + 0.3 * len(dumps) + tallest * (_INCHES_A_TARGET + _INCHES_A_MARK * len(dumps)))
        for axes, measure in zip(figure.subplots(1, 2), _MEASURES, strict=True):
            _draw(axes, dumps, names[measure], label.format(measure=measure))
            axes.set_ylim(tallest - 0.5, -0.5)
        legend = f"Lines: 95% intervals over worlds. Filled: above 0, false discovery rate {LEVEL:.0%} over the run."
        figure.suptitle(title(headline, f"{text} Largest first. {legend}", 125))
        marks = [
            Line2D([], [], marker="o", linestyle="none", color=cluster_colour(i), label=_counted(each))
            for i, each in enumerate(dumps)
        ]
        figure.legend(handles=marks, loc="outside lower center", ncols=1 if len(marks) > 1 else 2)
    return figure


def counts(dumps: Sequence[DumpEffects]) -> tuple[int, int]:
    """Return for how many targets an effect was found in any dump, and how many have one that is known."""
    known = {each.target for dump in dumps for each in dump.effects}
    return len({each.target for dump in dumps for each in dump.effects if each.found}), len(known)


def _counted(dump: DumpEffects) -> str:
    found = sum(each.found for each in dump.effects)
    return wrapped(f"{dump.name} ({found} of {len(dump.effects)} targets above 0)", _LETTERS_IN_LEGEND)


def _targets(dumps: Sequence[DumpEffects], measure: str) -> list[str]:
    """Return the targets of a measure, the one with the largest effect in any dump first."""
    largest: dict[str, float] = {}
    for each in (effect for dump in dumps for effect in dump.effects if effect.measure == measure):
        largest[each.target] = max(largest.get(each.target, -np.inf), each.value)
    return sorted(largest, key=lambda target: -largest[target])


def _draw(axes: Axes, dumps: Sequence[DumpEffects], names: Sequence[str], label: str) -> None:
    if not names:
        axes.axis("off")
        axes.text(0.5, 0.5, "no such target\ncould be probed", ha="center", va="center", transform=axes.transAxes)
        return
    apart = 0.8 / len(dumps)
    drawn = []
    for number, dump in enumerate(dumps):
        shift = (number - (len(dumps) - 1) / 2) * apart
        for each in dump.effects:
            if each.target in names:
                _mark(axes, each, names.index(each.target) + shift, cluster_colour(number))
                drawn += [v for v in (each.low, each.high, each.value) if v is not None]
    axes.axvline(0, color="#1a1a1a", linewidth=0.8, zorder=1)
    for place in range(1, len(names), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#f4f4f4", zorder=0)
    axes.set_yticks(range(len(names)), names)
    low, high = max(-_WIDEST, min(drawn)), min(_WIDEST, max(drawn))
    axes.set_xlim(min(low, -0.02) - 0.02, max(high, 0.02) + 0.02)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", linewidth=0.5, color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_xlabel(label)


def _mark(axes: Axes, effect: Effect, place: float, colour: str) -> None:
    if effect.low is not None and effect.high is not None:
        axes.hlines(place, effect.low, effect.high, color=colour, linewidth=1.2, zorder=2)
    axes.plot(
        np.clip(effect.value, -_WIDEST, _WIDEST), place, "o", markersize=4.5, markeredgecolor=colour,
        markerfacecolor=colour if effect.found else "white", zorder=3,
    )  # fmt: skip
