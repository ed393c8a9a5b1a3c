"""How far a longer look back gets: scores against the number of observations that a probe reads."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from analysis.figures.style import cluster_colour, new_figure, style, title, wrapped
from representation.probes.inputs import OBSERVATION, RESERVOIR, TRACES, observations_of, title_of
from representation.probes.report import AUC, DumpReport, ScoreRow

_TARGETS_AT_MOST = 12
_COLUMNS = 4
_LETTERS_IN_A_TITLE = 38
_FLAT = {TRACES: ":", RESERVOIR: "-."}
_LOWEST = -0.25


def has_history_curve(reports: Sequence[DumpReport]) -> bool:
    """Say whether any dump was probed with more than one length of history."""
    return any(sum(observations_of(name) is not None for name in each.inputs) > 1 for each in reports)


def probe_history(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw scores of histories against their length, beside the memory's and other baselines' scores.

    One panel for each of the targets that the memory predicts best; a colour for each dump. Of many dumps the last six
    are drawn.
    """
    shown = [each for each in reports if has_history_curve([each])][-6:]
    rows = [{(r.target, r.input): r for r in each.scores if r.probe == probe and r.score is not None} for each in shown]
    targets = _chosen(rows, memory)
    with style():
        lines = max(1, -(-len(targets) // _COLUMNS))
        figure = new_figure(12, 1.7 + 2.2 * lines)
        grid = figure.subplots(lines, _COLUMNS, squeeze=False).ravel()
        for axes, target in zip(grid, targets, strict=False):
            for number, (report, known) in enumerate(zip(shown, rows, strict=True)):
                _draw(axes, report, {name: row for (of, name), row in known.items() if of == target}, memory, number)
            measure = next(row.measure for known in rows for (of, _), row in known.items() if of == target)
            axes.set_title(wrapped(f"{target} ({measure})", _LETTERS_IN_A_TITLE))
            axes.set_xlabel("observations")
        for axes in grid[len(targets) :]:
            axes.axis("off")
        text = (
            f"{probe} probes on held-out worlds; bands: 95% intervals over worlds; "
            f"the {len(targets)} targets that {title_of(memory)} predicts best"
        )
        figure.suptitle(title("What a longer look back at the observations tells", text, 125))
        figure.legend(handles=_legend(shown, memory), loc="outside lower center", ncols=3)
    return figure


def _chosen(rows: Sequence[dict[tuple[str, str], ScoreRow]], memory: str) -> list[str]:
    best: dict[str, float] = {}
    for known in rows:
        for (target, name), row in known.items():
            if name == memory and row.score is not None:
                above_chance = 2 * row.score - 1 if row.measure == AUC else row.score
                best[target] = max(best.get(target, -np.inf), above_chance)
    return sorted(best, key=lambda target: -best[target])[:_TARGETS_AT_MOST]


def _draw(axes: Axes, report: DumpReport, known: dict[str, ScoreRow], memory: str, number: int) -> None:
    colour = cluster_colour(number)
    lengths = {1: OBSERVATION} | {n: name for name in report.inputs if (n := observations_of(name)) is not None}
    there = [(n, known[name]) for n, name in sorted(lengths.items()) if name in known]
    if there:
        ticks = [n for n, _ in there]
        nan = float("nan")
        score, low, high = np.array(
            [[nan if x is None else x for x in (row.score, row.low, row.high)] for _, row in there]
        ).T
        axes.plot(ticks, np.maximum(score, _LOWEST), color=colour, marker="o", markersize=3.5, linewidth=1.2)
        axes.fill_between(ticks, np.maximum(low, _LOWEST), np.maximum(high, _LOWEST), color=colour, alpha=0.15, lw=0)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([str(each) for each in ticks])
    for name, line in {memory: "--", **_FLAT}.items():
        if name in known and known[name].score is not None:
            axes.axhline(max(_LOWEST, known[name].score or 0.0), color=colour, linestyle=line, linewidth=1)


def _legend(shown: Sequence[DumpReport], memory: str) -> list[Line2D]:
    ink = "#1a1a1a"
    looks = {"last observations": "-", title_of(memory): "--", **{title_of(name): line for name, line in _FLAT.items()}}
    return [
        *(Line2D([], [], color=cluster_colour(i), linewidth=3, label=each.name) for i, each in enumerate(shown)),
        *(Line2D([], [], color=ink, linestyle=line, label=label) for label, line in looks.items()),
    ]
