"""Scores as curves: against the length of a history, the ticks ahead, and the training."""

import re
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from analysis.figures.style import cluster_colour, few_ticks, new_figure, style, title, wrapped
from analysis.probes.inputs import OBSERVATION, RESERVOIR, TRACES, observations_of, title_of
from analysis.probes.report import (
    EVERY_BASELINE,
    AdvantageRow,
    CKARow,
    DumpReport,
    IncrementRow,
    ScoreRow,
    is_found,
    largest_first,
)
from analysis.statistics.inference import LEVEL

_HISTORIES_AT_MOST = 12
_COLUMNS = 4
_LETTERS_IN_A_TITLE = 38
_FLAT = {TRACES: ":", RESERVOIR: "-."}
_LOWEST_OF_HISTORY = -0.25
_INK = "#1a1a1a"
_DUMPS_AT_MOST = 6
_NARROWEST, _INCHES_A_CURVE, _HEIGHT = 8.0, 4.2, 6.6
_LETTERS_AN_INCH = 11
_LETTERS_IN_HORIZON_LEGEND = 60
_LOWEST_OF_HORIZON = -0.5
_SPREAD, _FEWEST_PLACES = 1.4, 6
"""Largest ratio of places at which the lines draw the same horizon, side by side so that no interval hides another."""
_TARGETS_AT_MOST = 11
_LOWEST_OF_TRAINING = 1.5
_LETTERS_IN_LEGEND = 50
_WATCHED = re.compile(r"steps_(\d+)_lstm_hidden")
_HIDDEN = "lstm_hidden"
_LIKE_HIDDEN = {"-": "encoder output", ":": "that of the untrained network", "-.": "that of an earlier checkpoint"}
"""How a line looks -> what CKA compares the hidden state with."""


def has_history_curve(reports: Sequence[DumpReport]) -> bool:
    """Say whether any dump was probed with more than one length of history."""
    return any(sum(observations_of(name) is not None for name in report.inputs) > 1 for report in reports)


def probe_history(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw scores of histories against their length, beside the memory's and other baselines' scores.

    One panel for each of the targets that the memory predicts best; a colour for each dump. Of many dumps the last six
    are drawn.
    """
    shown = [report for report in reports if has_history_curve([report])][-6:]
    rows = [
        {(r.target, r.input): r for r in report.scores if r.probe == probe and r.score is not None} for report in shown
    ]
    own = [(of, row.above_chance) for kept in rows for (of, name), row in kept.items() if name == memory]
    targets = largest_first(own)[:_HISTORIES_AT_MOST]
    with style():
        lines = max(1, -(-len(targets) // _COLUMNS))
        figure = new_figure(12, 1.7 + 2.2 * lines)
        grid = figure.subplots(lines, _COLUMNS, squeeze=False).ravel()
        for axes, target in zip(grid, targets, strict=False):
            for number, (report, known) in enumerate(zip(shown, rows, strict=True)):
                _draw_history(
                    axes, report, {name: row for (of, name), row in known.items() if of == target}, memory, number
                )
            _end_at(axes, _LOWEST_OF_HISTORY)
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
        flat = [(title_of(name), line, "") for name, line in _FLAT.items()]
        looks = [("last observations", "-", ""), (title_of(memory), "--", ""), *flat]
        handles = _legend([report.name for report in shown], looks)
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _draw_history(axes: Axes, report: DumpReport, known: dict[str, ScoreRow], memory: str, number: int) -> None:
    colour = cluster_colour(number)
    lengths = {1: OBSERVATION} | {n: name for name in report.inputs if (n := observations_of(name)) is not None}
    there = [(n, known[name]) for n, name in sorted(lengths.items()) if name in known]
    if there:
        ticks = [n for n, _ in there]
        score, low, high = _numbers([(row.score, row.low, row.high) for _, row in there])
        axes.plot(ticks, score, color=colour, marker="o", markersize=3.5, linewidth=1.2)
        axes.fill_between(ticks, low, high, color=colour, alpha=0.15, lw=0)
        _log_ticks(axes, ticks)
    for name, line in {memory: "--", **_FLAT}.items():
        if name in known and known[name].score is not None:
            axes.axhline(known[name].score or 0.0, color=colour, linestyle=line, linewidth=1)


def _end_at(axes: Axes, lowest: float) -> None:
    """Let the panel end where a line goes down so far that all others would be flat."""
    low, high = axes.get_ylim()
    if low < lowest:
        axes.set_ylim(lowest, max(high, 0.0))


def _log_ticks(axes: Axes, ticks: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()


def _numbers(rows: Sequence[Sequence[float | None]]) -> np.ndarray:
    """Return columns of numbers, NaN where they are unknown: N rows of K to (K, N) float64."""
    return np.array([[np.nan if number is None else number for number in row] for row in rows], np.float64).T


def _legend(names: Iterable[str], looks: Iterable[tuple[str, str, str]], letters: int = 1_000) -> list[Line2D]:
    """Return a colour for each name, wrapped at so many letters, and then labels with the looks of lines and marks."""
    return [
        *(
            Line2D([], [], color=cluster_colour(i), linewidth=3, label=wrapped(name, letters))
            for i, name in enumerate(names)
        ),
        *(Line2D([], [], color=_INK, linestyle=line, marker=marker, label=label) for label, line, marker in looks),
    ]


Line = tuple[list[tuple[int, ScoreRow | IncrementRow, bool]], str, str]
"""Ticks ahead, row and whether its mark is filled of each point; and how the line and its marks look."""


def has_horizons(reports: Sequence[DumpReport]) -> bool:
    """Say whether targets at several horizons were probed in any dump."""
    return any(len(places) > 1 for report in reports for places in _curves(report).values())


def probe_horizon(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw the memory's and the best baseline's scores by horizon, and below them the memory's increments.

    One pair of panels for each curve, such as rows and columns of displacement; a colour for each dump. Of many dumps
    the last six are drawn.
    """
    shown = [report for report in reports if has_horizons([report])][-_DUMPS_AT_MOST:]
    curves = list(
        dict.fromkeys(curve for report in shown for curve, places in _curves(report).items() if len(places) > 1)
    )
    given = any(report.increments_given for report in shown)
    with style():
        width = max(_NARROWEST, 1 + _INCHES_A_CURVE * len(curves))
        figure = new_figure(width, _HEIGHT)
        grid = figure.subplots(2, len(curves), squeeze=False, sharex="col", sharey="row")
        for column, curve in zip(grid.T, curves, strict=True):
            for number, report in enumerate(shown):
                for axes, two in zip(column, _lines(report, curve, memory, probe), strict=True):
                    for place, line in enumerate(two):
                        aside = 1 / max(2 * len(shown), _FEWEST_PLACES) * (2 * number + place + 0.5 - len(shown))
                        _draw_points(axes, line, cluster_colour(number), _SPREAD**aside)
            column[0].set_title(curve)
            for axes in column:
                _log_ticks(axes, sorted({ticks for report in shown for ticks in _curves(report).get(curve, {})}))
                axes.axhline(0, color=_INK, linewidth=0.6)
                axes.grid(axis="y", linewidth=0.5, color="#dddddd")
                axes.set_axisbelow(True)
            column[-1].set_xlabel("ticks ahead")
        measure = next(t["measure"] for report in shown for t in report.targets if t["curve"] == curves[0])
        for axes, what in zip(grid[:, 0], ("score", "increment"), strict=True):  # the others of a row share its heights
            _end_at(axes, _LOWEST_OF_HORIZON)
            axes.set_ylabel(f"{what} ({measure})")
        text = (
            f"{probe} probes on held-out worlds. Increment: over the baseline that scores best; filled: the "
            f"{title_of(memory)} adds to every baseline, false discovery rate {LEVEL:.0%} over the run. Upright lines: "
            "95% intervals over worlds. Records whose life ends before the horizon are left out."
        )
        heading = f"How far ahead the {title_of(memory)} knows where the agent goes"
        figure.suptitle(title(heading, text, int(_LETTERS_AN_INCH * width)))
        own = f"score and increment of the {title_of(memory)}"
        looks = [(own, "-", "o"), ("score of the best baseline", "--", "^")]
        looks += [("increment once the given variables are known", ":", "s")] * given
        handles = _legend([report.name for report in shown], looks, _LETTERS_IN_HORIZON_LEGEND)
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _curves(report: DumpReport) -> dict[str, dict[int, str]]:
    curves: dict[str, dict[int, str]] = {}
    for target in report.targets:
        if target["curve"] is not None and target["reason"] is None:
            curves.setdefault(target["curve"], {})[target["ticks_ahead"]] = target["name"]
    return curves


def _lines(report: DumpReport, curve: str, memory: str, probe: str) -> tuple[list[Line], list[Line]]:
    """Return scores of the memory and of the best baselines, and increments over these by what is known besides.

    Increments are filled where the memory adds to every baseline.
    """
    places = sorted(_curves(report).get(curve, {}).items())
    own = {row.target: row for row in report.scores if (row.input, row.probe) == (memory, probe)}
    known = [row for row in report.scores if (row.probe, row.kind) == (probe, "baseline") and row.score is not None]
    best_first = sorted(known, key=lambda row: row.score or 0.0, reverse=True)
    best = {row.target: row for row in reversed(best_first)}
    scores: list[Line] = [
        ([(ticks, rows[target], True) for ticks, target in places if target in rows], line, marker)
        for rows, line, marker in ((own, "-", "o"), (best, "--", "^"))
    ]
    increments: list[Line] = []
    for added, line, marker in ((report.increments, "-", "o"), (report.increments_given, ":", "s")):
        over = {
            (row.target, row.baseline): row for row in added
            if (row.memory, row.probe) == (memory, probe) and row.increment is not None
        }  # fmt: skip
        points: list[tuple[int, ScoreRow | IncrementRow, bool]] = [
            (ticks, over[target, best[target].input], is_found(over[target, EVERY_BASELINE]))
            for ticks, target in places
            if target in best and (target, best[target].input) in over and (target, EVERY_BASELINE) in over
        ]
        increments.append((points, line, marker))
    return scores, increments


def _draw_points(axes: Axes, line: Line, colour: str, shift: float) -> None:
    points, look, marker = line
    if not points:
        return
    ticks = np.array([ahead for ahead, _, _ in points]) * shift
    effects = [row.score if isinstance(row, ScoreRow) else row.increment for _, row, _ in points]
    value, low, high = _numbers(
        [(effect, row.low, row.high) for effect, (_, row, _) in zip(effects, points, strict=True)]
    )
    axes.plot(ticks, value, look, color=colour, linewidth=1.3)
    axes.vlines(ticks, low, high, color=colour, linewidth=1.2)
    for tick, height, (_, _, filled) in zip(ticks, value, points, strict=True):
        face = colour if filled else "white"
        axes.plot(tick, height, marker, markersize=5, markeredgecolor=colour, markerfacecolor=face)


def probe_emergence(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw score and advantage against agent-steps trained, a colour for each training.

    Of many targets those are drawn whose advantage is ever the largest; one panel tells how alike layers are by CKA.
    Each report has its agent-steps; those of a training come in order.
    """
    known = [
        (row.target, row.advantage) for report in reports for row in report.advantages
        if (row.memory, row.probe) == (memory, probe) and row.advantage is not None
    ]  # fmt: skip
    names, best = list(dict(known)), largest_first(known)[:_TARGETS_AT_MOST]
    chosen, of_how_many = [name for name in names if name in best], len(names)
    trainings = list(dict.fromkeys(report.training for report in reports))
    measures = {row.target: row.measure for report in reports for row in report.advantages}
    with style():
        panels = len(chosen) + 1
        lines = -(-panels // _COLUMNS)
        figure = new_figure(12, 1.5 + 2.3 * lines)
        grid = figure.subplots(lines, min(panels, _COLUMNS), squeeze=False).ravel()
        for axes, target in zip(grid, chosen, strict=False):
            for number, training in enumerate(trainings):
                rows = [
                    (report.steps_trained or 0, row) for report in reports if report.training == training
                    for row in report.advantages
                    if (row.target, row.memory, row.probe) == (target, memory, probe) and row.advantage is not None
                ]  # fmt: skip
                _draw_target(axes, rows, cluster_colour(number))
            axes.set_title(wrapped(f"{target} ({measures[target]})", _LETTERS_IN_A_TITLE))
            _label_steps(axes)
        for number, training in enumerate(trainings):
            _draw_cka(grid[len(chosen)], [r for r in reports if r.training == training], cluster_colour(number))
        _label_steps(grid[len(chosen)])
        for axes in grid[panels:]:
            axes.axis("off")
        lines_drawn = {line.get_linestyle() for line in grid[len(chosen)].lines}
        like_hidden = {line: other for line, other in _LIKE_HIDDEN.items() if line in lines_drawn}
        some = "all" if of_how_many else "none could be probed"
        if len(chosen) < of_how_many:
            some = f"the {len(chosen)} of {of_how_many} targets with the largest advantage anywhere"
        text = f"{probe} probe on {title_of(memory)}; targets: {some}; bands: 95% intervals over worlds"
        figure.suptitle(title("Probe scores and advantages over training", text, 120))
        looks = [("score", "--", "."), ("advantage over the best baseline", "-", "o")]
        looks += [(f"CKA of hidden state and {like_hidden[line]}", line, "") for line in like_hidden]
        figure.legend(handles=_legend(trainings, looks, _LETTERS_IN_LEGEND), loc="outside lower center", ncols=3)
    return figure


def _draw_target(axes: Axes, rows: Sequence[tuple[int, AdvantageRow]], colour: str) -> None:
    if not rows:
        return
    steps = np.array([trained for trained, _ in rows])
    score, advantage, low, high = _numbers([(row.score, row.advantage, row.low, row.high) for _, row in rows])
    axes.plot(steps, score, "--", color=colour, linewidth=1, marker=".", markersize=4)
    axes.plot(steps, advantage, color=colour, linewidth=1.5, marker="o", markersize=3.5)
    axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(0, color=_INK, linewidth=0.6)
    drawn = np.concatenate([line.get_ydata() for line in axes.lines])
    axes.set_ylim(max(-_LOWEST_OF_TRAINING, np.nanmin(drawn) - 0.1), np.nanmax(drawn) + 0.1)


def _draw_cka(axes: Axes, reports: Sequence[DumpReport], colour: str) -> None:
    axes.set(title="similarity of layers (CKA)", ylim=(-0.05, 1.05))
    for other, line in (("encoder_output", "-"), ("untrained_lstm_hidden", ":")):
        points = [
            (r.steps_trained or 0, row) for r in reports for row in r.cka if {row.one, row.other} == {_HIDDEN, other}
        ]
        _draw_line(axes, points, line, colour)
    for report in reports:  # how like the policy are its own checkpoints that watched it, at their agent-steps
        others = [(row, {row.one, row.other} - {_HIDDEN}) for row in report.cka]
        watched = [(row, _WATCHED.fullmatch(pair.pop())) for row, pair in others if len(pair) == 1]
        _draw_line(axes, [(int(match[1]), row) for row, match in watched if match], "-.", colour)


def _draw_line(axes: Axes, points: Sequence[tuple[int, CKARow]], line: str, colour: str) -> None:
    known = sorted((steps, row.cka) for steps, row in points if row.cka is not None)
    if known:
        axes.plot(*zip(*known, strict=True), line, color=colour, marker="o", markersize=3, linewidth=1.2)


def _label_steps(axes: Axes) -> None:
    axes.set_xlabel("agent-steps trained")
    axes.xaxis.set_major_locator(few_ticks())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
