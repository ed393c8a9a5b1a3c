"""The headline: what a memory tells beyond everything that its input tells."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import cluster_colour, new_figure, style, title, wrapped
from representation.probes.inputs import INPUTS
from representation.probes.report import AUC, R_SQUARED, AdvantageRow, DumpReport

LEVEL = 0.05
"""False discovery rate at which an advantage counts."""

_INCHES_A_TARGET = 0.17
_INCHES_A_MARK = 0.07
_DUMPS_AT_MOST = 6
_WIDEST = 1.05
_LETTERS_IN_LEGEND = 110
_MEASURES = {
    R_SQUARED: "advantage in R2 (left of 0: a baseline is better)",
    AUC: "advantage in AUC (left of 0: a baseline is better)",
}
_TITLES = {each.name: each.title for each in INPUTS}


def probe_advantage(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw the advantage of one memory and kind of probe for every target, a colour for each dump.

    Targets are sorted by their largest advantage in any of the dumps. Filled marks are advantages that survive the
    correction for many targets; the title counts them. Of many dumps the last ones are drawn.
    """
    shown = reports[-_DUMPS_AT_MOST:]
    rows = [[r for r in report.advantages if (r.memory, r.probe) == (memory, probe)] for report in shown]
    names = {kind: _probed(rows, kind) for kind in _MEASURES}
    with style():
        tallest = max(1, *(len(each) for each in names.values()))
        figure = new_figure(11, 2.5 + 0.3 * len(shown) + tallest * (_INCHES_A_TARGET + _INCHES_A_MARK * len(shown)))
        for axes, (kind, label) in zip(figure.subplots(1, 2), _MEASURES.items(), strict=True):
            _draw(axes, rows, names[kind], label)
            axes.set_ylim(tallest - 0.5, -0.5)
        text = (
            f"Score of the {probe} probe on {_TITLES[memory]} minus the score of the best baseline "
            f"({', '.join(_baselines(shown))}), on held-out worlds. Largest advantage first. Lines: 95% intervals over "
            f"worlds. Filled: above 0 at a false discovery rate of {LEVEL:.0%}."
        )
        figure.suptitle(title(_headline(rows, memory), text, 125))
        marks = [
            Line2D([], [], marker="o", linestyle="none", color=cluster_colour(i), label=_counted(each.name, own))
            for i, (each, own) in enumerate(zip(shown, rows, strict=True))
        ]
        figure.legend(handles=marks, loc="outside lower center", ncols=1 if len(marks) > 1 else 2)
    return figure


def _headline(rows: Sequence[Sequence[AdvantageRow]], memory: str) -> str:
    """Say for how many targets the memory beats its baselines."""
    known = {r.target for each in rows for r in each if r.advantage is not None}
    better = {r.target for each in rows for r in each if _found(r)}
    if not known:
        return f"{_TITLES[memory]}: no advantage is known"
    where = " in at least one dump" if len(rows) > 1 else ""
    return f"{_TITLES[memory]} beats every baseline for {len(better)} of {len(known)} targets{where}"


def _counted(name: str, rows: Sequence[AdvantageRow]) -> str:
    known = sum(r.advantage is not None for r in rows)
    return wrapped(f"{name} ({sum(map(_found, rows))} of {known} targets above 0)", _LETTERS_IN_LEGEND)


def _found(row: AdvantageRow) -> bool:
    return row.advantage is not None and row.advantage > 0 and row.q is not None and row.q < LEVEL


def _probed(rows: Sequence[Sequence[AdvantageRow]], measure: str) -> list[str]:
    """Return the targets of a measure, the one with the largest advantage in any dump first."""
    largest: dict[str, float] = {}
    for row in (r for each in rows for r in each if r.measure == measure):
        if row.advantage is not None:
            largest[row.target] = max(largest.get(row.target, -np.inf), row.advantage)
    return sorted(largest, key=lambda target: -largest[target])


def _draw(axes: Axes, rows: Sequence[Sequence[AdvantageRow]], names: Sequence[str], label: str) -> None:
    if not names:
        axes.axis("off")
        axes.text(0.5, 0.5, "no such target\ncould be probed", ha="center", va="center", transform=axes.transAxes)
        return
    apart = 0.8 / len(rows)
    for number, each in enumerate(rows):
        shift = (number - (len(rows) - 1) / 2) * apart
        for row in each:
            if row.target in names and row.advantage is not None:
                _mark(axes, row, names.index(row.target) + shift, cluster_colour(number))
    axes.axvline(0, color="#1a1a1a", linewidth=0.8, zorder=1)
    for place in range(1, len(names), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#f4f4f4", zorder=0)
    axes.set_yticks(range(len(names)), names)
    ends = [
        v for each in rows for r in each if r.target in names for v in (r.low, r.high, r.advantage) if v is not None
    ]
    low, high = max(-_WIDEST, min(ends)), min(_WIDEST, max(ends))
    axes.set_xlim(min(low, -0.02) - 0.02, max(high, 0.02) + 0.02)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", linewidth=0.5, color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_xlabel(label)


def _mark(axes: Axes, row: AdvantageRow, place: float, colour: str) -> None:
    assert row.advantage is not None
    if row.low is not None and row.high is not None:
        axes.hlines(place, row.low, row.high, color=colour, linewidth=1.2, zorder=2)
    axes.plot(
        np.clip(row.advantage, -_WIDEST, _WIDEST), place, "o", markersize=4.5, markeredgecolor=colour,
        markerfacecolor=colour if _found(row) else "white", zorder=3,
    )  # fmt: skip


def _baselines(reports: Sequence[DumpReport]) -> list[str]:
    there = {name for report in reports for name in report.inputs}
    return [each.title for each in INPUTS if each.kind == "baseline" and each.name in there]
