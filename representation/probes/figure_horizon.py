"""How far ahead a memory knows: scores and increments against the number of ticks ahead."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from analysis.figures.style import cluster_colour, new_figure, style, title, wrapped
from representation.probes.figure_effects import LEVEL
from representation.probes.inputs import title_of
from representation.probes.report import EVERY_BASELINE, DumpReport, IncrementRow, ScoreRow

_DUMPS_AT_MOST = 6
_NARROWEST, _INCHES_A_CURVE, _HEIGHT = 8.0, 4.2, 6.6
_LETTERS_AN_INCH = 11
_LETTERS_IN_LEGEND = 60
_INK = "#1a1a1a"
_LOWEST = -0.5
_SPREAD, _FEWEST_PLACES = 1.4, 6
"""Largest ratio of places at which the lines draw the same horizon, side by side so that no interval hides another."""


@dataclass(frozen=True)
class _Point:
    """A number with its interval at one horizon; found: whether an increment survived the correction."""

    ticks: int
    value: float
    low: float
    high: float
    found: bool = True


@dataclass(frozen=True)
class _Look:
    """How one of several dumps is drawn, with two lines in each panel."""

    colour: str
    number: int
    dumps: int

    def shift(self, place: int) -> float:
        """Return what the horizons are multiplied by to draw the dump's first or second line."""
        apart = 1 / max(2 * self.dumps, _FEWEST_PLACES)
        return _SPREAD ** (apart * (2 * self.number + place + 0.5 - self.dumps))


def has_horizons(reports: Sequence[DumpReport]) -> bool:
    """Say whether targets at several horizons were probed in any dump."""
    return any(len(places) > 1 for report in reports for places in _curves(report).values())


def probe_horizon(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw the memory's and the best baseline's scores by horizon, and below them the memory's increments.

    One pair of panels for each curve, such as rows and columns of displacement; a colour for each dump. Of many dumps
    the last six are drawn.
    """
    shown = [each for each in reports if has_horizons([each])][-_DUMPS_AT_MOST:]
    curves = list(dict.fromkeys(curve for each in shown for curve, places in _curves(each).items() if len(places) > 1))
    given = any(each.increments_given for each in shown)
    with style():
        width = max(_NARROWEST, 1 + _INCHES_A_CURVE * len(curves))
        figure = new_figure(width, _HEIGHT)
        grid = figure.subplots(2, len(curves), squeeze=False, sharex="col", sharey="row")
        for column, curve in zip(grid.T, curves, strict=True):
            for number, report in enumerate(shown):
                look = _Look(cluster_colour(number), number, len(shown))
                _draw_scores(column[0], report, curve, memory, probe, look)
                _draw_increments(column[1], report, curve, memory, probe, look)
            column[0].set_title(curve)
            _label(column, sorted({ticks for each in shown for ticks in _curves(each).get(curve, {})}))
        for axes, what in zip(grid[:, 0], ("score", "increment"), strict=True):
            axes.set_ylabel(f"{what} ({_measure(shown, curves[0])})")
        text = (
            f"{probe} probes on held-out worlds. Increment: over the baseline that scores best; filled: the "
            f"{title_of(memory)} adds to every baseline, false discovery rate {LEVEL:.0%} over the run. Upright lines: "
            "95% intervals over worlds. Records whose life ends before the horizon are left out."
        )
        heading = f"How far ahead the {title_of(memory)} knows where the agent goes"
        figure.suptitle(title(heading, text, int(_LETTERS_AN_INCH * width)))
        figure.legend(handles=_legend(shown, memory, given), loc="outside lower center", ncols=2)
    return figure


def _curves(report: DumpReport) -> dict[str, dict[int, str]]:
    """Return curve -> ticks ahead -> target, of the targets that were probed."""
    found: dict[str, dict[int, str]] = {}
    for target in report.targets:
        if target["curve"] is not None and target["reason"] is None:
            found.setdefault(target["curve"], {})[target["ticks_ahead"]] = target["name"]
    return found


def _measure(reports: Sequence[DumpReport], curve: str) -> str:
    return next(t["measure"] for each in reports for t in each.targets if t["curve"] == curve)


def _best_baselines(report: DumpReport, probe: str) -> dict[str, ScoreRow]:
    """Return target -> the score of the baseline that predicts it best."""
    found: dict[str, ScoreRow] = {}
    for row in report.scores:
        if row.probe == probe and row.kind == "baseline" and row.score is not None:
            best = found.get(row.target)
            if best is None or best.score is None or row.score > best.score:
                found[row.target] = row
    return found


def _draw_scores(axes: Axes, report: DumpReport, curve: str, memory: str, probe: str, look: _Look) -> None:
    own = {row.target: row for row in report.scores if (row.input, row.probe) == (memory, probe)}
    best = _best_baselines(report, probe)
    places = sorted(_curves(report).get(curve, {}).items())
    for rows, line, marker, place in ((own, "-", "o", 0), (best, "--", "^", 1)):
        points = [_point(ticks, rows[each].score, rows[each]) for ticks, each in places if each in rows]
        _draw_line(axes, points, look, line, marker, place)


def _draw_increments(axes: Axes, report: DumpReport, curve: str, memory: str, probe: str, look: _Look) -> None:
    best = _best_baselines(report, probe)
    places = _curves(report).get(curve, {})
    for rows, line, marker, place in ((report.increments, "-", "o", 0), (report.increments_given, ":", "s", 1)):
        own = [row for row in rows if (row.memory, row.probe) == (memory, probe)]
        _draw_line(axes, _increments(own, places, best), look, line, marker, place)


def _increments(rows: Sequence[IncrementRow], places: dict[int, str], best: dict[str, ScoreRow]) -> list[_Point]:
    """Return the increments over the best baselines, found where the memory adds to every baseline."""
    known = {(row.target, row.baseline): row for row in rows if row.increment is not None}
    points = []
    for ticks, target in sorted(places.items()):
        row = known.get((target, best[target].input)) if target in best else None
        every = known.get((target, EVERY_BASELINE))
        if row is not None and every is not None:
            found = (every.increment or 0) > 0 and every.q_run is not None and every.q_run < LEVEL
            points.append(_point(ticks, row.increment, row, found))
    return points


def _point(ticks: int, value: float | None, row: ScoreRow | IncrementRow, found: bool = True) -> _Point:
    known, low, high = (float("nan") if each is None else each for each in (value, row.low, row.high))
    return _Point(ticks, known, low, high, found)


def _draw_line(axes: Axes, points: Sequence[_Point], look: _Look, line: str, marker: str, place: int) -> None:
    if not points:
        return
    colour = look.colour
    ticks = np.array([each.ticks for each in points]) * look.shift(place)
    value, low, high = np.array([[each.value, each.low, each.high] for each in points]).T
    value, low, high = (np.maximum(each, _LOWEST) for each in (value, low, high))
    axes.plot(ticks, value, line, color=colour, linewidth=1.3)
    axes.vlines(ticks, low, high, color=colour, linewidth=1.2)
    for tick, each, point in zip(ticks, value, points, strict=True):
        face = colour if point.found else "white"
        axes.plot(tick, each, marker, markersize=5, markeredgecolor=colour, markerfacecolor=face)


def _label(column: Sequence[Axes], horizons: Sequence[int]) -> None:
    for axes in column:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(horizons))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(horizons, [str(each) for each in horizons])
        axes.axhline(0, color=_INK, linewidth=0.6)
        axes.grid(axis="y", linewidth=0.5, color="#dddddd")
        axes.set_axisbelow(True)
    column[-1].set_xlabel("ticks ahead")


def _legend(shown: Sequence[DumpReport], memory: str, given: bool) -> list[Line2D]:
    looks = [(f"score and increment of the {title_of(memory)}", "-", "o"), ("score of the best baseline", "--", "^")]
    if given:
        looks.append(("increment once the given variables are known", ":", "s"))
    return [
        *(
            Line2D([], [], color=cluster_colour(i), linewidth=3, label=wrapped(each.name, _LETTERS_IN_LEGEND))
            for i, each in enumerate(shown)
        ),
        *(Line2D([], [], color=_INK, linestyle=line, marker=marker, label=label) for label, line, marker in looks),
    ]
