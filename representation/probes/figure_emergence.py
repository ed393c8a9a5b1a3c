"""How what a memory knows comes about in training: scores and advantages of checkpoints, and how alike they are."""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from analysis.figures.style import cluster_colour, few_ticks, new_figure, style, title, wrapped
from representation.probes.inputs import title_of
from representation.probes.report import AdvantageRow, CKARow, DumpReport

_TARGETS_AT_MOST = 11
_COLUMNS = 4
_LOWEST = 1.5
_LETTERS_IN_A_TITLE, _LETTERS_IN_LEGEND = 38, 50
_INK = "#1a1a1a"
_WATCHED = re.compile(r"steps_(\d+)_lstm_hidden")
_HIDDEN = "lstm_hidden"
_LIKE_HIDDEN = {"-": "encoder output", ":": "that of the untrained network", "-.": "that of an earlier checkpoint"}
"""How a line looks -> what CKA compares the hidden state with."""


def probe_emergence(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw score and advantage against agent-steps trained, a colour for each training.

    Of many targets those are drawn whose advantage is ever the largest; one panel tells how alike layers are by CKA.

    Args:
        reports: of checkpoints, each with its agent-steps, those of a training in order.
        memory: name of an input.
        probe: kind of probe.
    """
    chosen, of_how_many = _chosen(reports, memory, probe)
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
                    (r.steps_trained or 0, _row(r, target, memory, probe)) for r in reports if r.training == training
                ]
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
        _explain(figure, trainings, f"{probe} probe on {title_of(memory)}", len(chosen), of_how_many, like_hidden)
    return figure


def _chosen(reports: Sequence[DumpReport], memory: str, probe: str) -> tuple[list[str], int]:
    """Return the targets to draw, in their order, and of how many they were chosen."""
    largest: dict[str, float] = {}
    for report in reports:
        for row in report.advantages:
            if (row.memory, row.probe) == (memory, probe) and row.advantage is not None:
                largest[row.target] = max(largest.get(row.target, -np.inf), row.advantage)
    best = set(sorted(largest, key=lambda name: -largest[name])[:_TARGETS_AT_MOST])
    return [name for name in largest if name in best], len(largest)


def _row(report: DumpReport, target: str, memory: str, probe: str) -> AdvantageRow | None:
    wanted = (target, memory, probe)
    return next(
        (r for r in report.advantages if (r.target, r.memory, r.probe) == wanted and r.advantage is not None), None
    )


def _draw_target(axes: Axes, rows: Sequence[tuple[int, AdvantageRow | None]], colour: str) -> None:
    there = [(steps, row) for steps, row in rows if row is not None]
    if not there:
        return
    steps = np.array([each for each, _ in there])
    nan = float("nan")
    values = np.array(
        [[nan if x is None else x for x in (row.score, row.advantage, row.low, row.high)] for _, row in there]
    )
    score, advantage, low, high = values.T
    axes.plot(steps, score, "--", color=colour, linewidth=1, marker=".", markersize=4)
    axes.plot(steps, advantage, color=colour, linewidth=1.5, marker="o", markersize=3.5)
    axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(0, color=_INK, linewidth=0.6)
    drawn = np.concatenate([line.get_ydata() for line in axes.lines])
    axes.set_ylim(max(-_LOWEST, np.nanmin(drawn) - 0.1), np.nanmax(drawn) + 0.1)


def _draw_cka(axes: Axes, reports: Sequence[DumpReport], colour: str) -> None:
    axes.set(title="similarity of layers (CKA)", ylim=(-0.05, 1.05))
    for other, line in (("encoder_output", "-"), ("untrained_lstm_hidden", ":")):
        found = [
            (r.steps_trained or 0, row) for r in reports for row in r.cka if {row.one, row.other} == {_HIDDEN, other}
        ]
        _draw_line(axes, found, line, colour)
    for report in reports:
        _draw_line(axes, [*_earlier_selves(report)], "-.", colour)


def _earlier_selves(report: DumpReport) -> Iterator[tuple[int, CKARow]]:
    """Yield how like the policy are its own checkpoints that watched it, each at the checkpoint's agent-steps."""
    for row in report.cka:
        pair = {row.one, row.other} - {_HIDDEN}
        if len(pair) == 1 and (watched := _WATCHED.fullmatch(pair.pop())):
            yield int(watched[1]), row


def _draw_line(axes: Axes, found: Sequence[tuple[int, CKARow]], line: str, colour: str) -> None:
    known = sorted((steps, row.cka) for steps, row in found if row.cka is not None)
    if known:
        axes.plot(*zip(*known, strict=True), line, color=colour, marker="o", markersize=3, linewidth=1.2)


def _label_steps(axes: Axes) -> None:
    axes.set_xlabel("agent-steps trained")
    axes.xaxis.set_major_locator(few_ticks())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _explain(
    figure: Figure, trainings: Sequence[str], what: str, drawn: int, of_how_many: int, like_hidden: Mapping[str, str]
) -> None:
    some = f"the {drawn} of {of_how_many} targets with the largest advantage anywhere" if drawn < of_how_many else "all"
    some = some if of_how_many else "none could be probed"
    text = f"{what}; targets: {some}; bands: 95% intervals over worlds"
    figure.suptitle(title("Probe scores and advantages over training", text, 120))
    looks = [
        Line2D([], [], color=_INK, linestyle="--", marker=".", label="score"),
        Line2D([], [], color=_INK, marker="o", markersize=3.5, label="advantage over the best baseline"),
        *(
            Line2D([], [], color=_INK, linestyle=line, linewidth=1, label=f"CKA of hidden state and {other}")
            for line, other in like_hidden.items()
        ),
    ]
    colours = [
        Line2D([], [], color=cluster_colour(i), linewidth=3, label=wrapped(name, _LETTERS_IN_LEGEND))
        for i, name in enumerate(trainings)
    ]
    figure.legend(handles=[*colours, *looks], loc="outside lower center", ncols=3)
