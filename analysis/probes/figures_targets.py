"""Scores and effects, a row for each target: of all inputs, of a memory beyond the best baseline, and added to all."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import bare, cluster_colour, new_figure, style, title, wrapped
from analysis.probes.inputs import MEMORIES, title_of
from analysis.probes.report import (
    AUC,
    EVERY_BASELINE,
    R_SQUARED,
    AdvantageRow,
    DumpReport,
    IncrementRow,
    effect_of,
    is_found,
    largest_first,
)
from analysis.statistics.inference import LEVEL

_PANELS_AT_MOST = 4
_COLOURS = "YlGnBu"
_UNKNOWN = "#eeeeee"
_DARK_CELL = 0.6
_INCHES_A_ROW = 0.2
_INCHES_A_COLUMN = 0.62
_NARROWEST = 6.5
_LABELS_INCHES = 2.6
_LETTERS_AN_INCH = 10.5
_INCHES_A_TARGET, _INCHES_A_MARK = 0.17, 0.07
_WIDEST = 1.05
_LETTERS_IN_LEGEND = 110
_MEASURES = (R_SQUARED, AUC)
_DUMPS_AT_MOST = 6


def probe_summary(reports: Sequence[DumpReport]) -> Figure:
    """Draw the scores of every target and input, a panel for each dump and kind of probe.

    Colour is the share of the way from chance to perfect, so that R squared and AUC can be read together; the cells
    hold the scores themselves. Of many dumps the last ones are drawn.
    """
    probes = list(dict.fromkeys(row.probe for report in reports for row in report.scores))
    shown = reports[-max(1, _PANELS_AT_MOST // len(probes)) :]
    panels = [(report, probe) for report in shown for probe in probes]
    targets = shown[0].targets
    widths = [len(report.inputs) for report, _ in panels]
    with style():
        width = max(_NARROWEST, _LABELS_INCHES + _INCHES_A_COLUMN * sum(widths))
        letters = int(_LETTERS_AN_INCH * (width - _LABELS_INCHES) / len(panels))
        names = [f"{wrapped(report.name, letters)}\n{probe} probe" for report, probe in panels]
        lines = max(name.count("\n") for name in names)
        figure = new_figure(width, 2.2 + _INCHES_A_ROW * (len(targets) + lines))
        grid = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
        for axes, (report, probe), name in zip(grid, panels, names, strict=True):
            _draw_scores(axes, report, probe)
            axes.set_title(name, fontsize=9)
        grid[0].set_yticks(range(len(targets)), [f"{t['name']}  ({t['measure']})" for t in targets])
        more = f"; {len(shown)} of {len(reports)} dumps" if len(shown) < len(reports) else ""
        text = (
            "R2 (chance 0) or AUC (chance 0.5) on worlds that no probe was fitted to; darker is further from chance; "
            "grey: could not be probed"
        )
        figure.suptitle(title("What probes read out of each input", text + more, int(_LETTERS_AN_INCH * width)))
    return figure


def _draw_scores(axes: Axes, report: DumpReport, probe: str) -> None:
    place = {(target["name"]): row for row, target in enumerate(report.targets)}
    column = {name: number for number, name in enumerate(report.inputs)}
    score, strength = np.full((2, len(place), len(column)), np.nan)
    for row in report.scores:
        if row.probe == probe and row.score is not None:
            here = place[row.target], column[row.input]
            score[here] = row.score
            strength[here] = row.above_chance
    axes.set_facecolor(_UNKNOWN)
    axes.imshow(np.clip(strength, 0, 1), cmap=_COLOURS, vmin=0, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(score):
        if np.isfinite(value):
            colour = "white" if strength[i, j] > _DARK_CELL else "black"
            text = f"{value:.2f}" if value > -1 else "< -1"
            axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color=colour)
    names = [title_of(name) for name in report.inputs]
    axes.set_xticks(range(len(names)), names, rotation=50, ha="right", rotation_mode="anchor")
    axes.set_yticks([])
    bare(axes)


Effects = Mapping[str, Sequence[AdvantageRow | IncrementRow]]
"""Dump -> rows of one memory and kind of probe whose effects are known."""


def probe_advantage(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw the advantage of one memory and kind of probe for every target, a colour for each dump.

    Of many dumps the last ones are drawn.
    """
    shown = reports[-_DUMPS_AT_MOST:]
    effects = {r.name: [row for row in r.advantages if _is_of(row, memory, probe)] for r in shown}
    text = (
        f"Score of the {probe} probe on {title_of(memory)} minus the score of the best baseline "
        f"({_baselines(shown)}), on held-out worlds."
    )
    says = f"{title_of(memory)} predicts {{}} better than every baseline", f"{title_of(memory)}: no advantage is known"
    return _figure_of_effects(effects, says, text, "advantage in {measure} (left of 0: a baseline is better)")


def probe_increment(reports: Sequence[DumpReport], memory: str, probe: str) -> Figure:
    """Draw what one memory adds to the baseline to which it adds least certainly, a colour for each dump.

    Of many dumps the last ones are drawn.
    """
    shown = reports[-_DUMPS_AT_MOST:]
    effects = {
        r.name: [row for row in r.increments if row.baseline == EVERY_BASELINE and _is_of(row, memory, probe)]
        for r in shown
    }
    text = (
        f"Score of the {probe} probe on a baseline and {title_of(memory)} together minus the score of the baseline, "
        f"for the baseline with the largest p-value ({_baselines(shown)}), on held-out worlds."
    )
    says = f"{title_of(memory)} adds to every baseline for {{}}", f"{title_of(memory)}: no increment is known"
    return _figure_of_effects(effects, says, text, "increment in {measure} (left of 0: the memory only adds noise)")


def _is_of(row: AdvantageRow | IncrementRow, memory: str, probe: str) -> bool:
    return (row.memory, row.probe) == (memory, probe) and effect_of(row) is not None


def _baselines(reports: Sequence[DumpReport]) -> str:
    names = dict.fromkeys(name for report in reports for name in report.inputs)
    return ", ".join(title_of(name) for name in names if name not in MEMORIES)


def _figure_of_effects(effects: Effects, says: tuple[str, str], text: str, label: str) -> Figure:
    """Draw an effect on every target, a colour for each dump.

    Targets are sorted by their largest effect in any dump. Filled marks are effects that survive the correction.
    `says` are headlines: of so many targets, and of none.
    """
    every = [row for rows in effects.values() for row in rows]
    known, found = len({row.target for row in every}), len({row.target for row in every if is_found(row)})
    where = " in at least one dump" if len(effects) > 1 else ""
    headline = says[0].format(f"{found} of {known} targets") + where if known else says[1]
    names = {
        measure: largest_first((row.target, effect_of(row) or 0.0) for row in every if row.measure == measure)
        for measure in _MEASURES
    }
    count = len(effects)
    with style():
        tallest = max(1, *(len(group) for group in names.values()))
        figure = new_figure(11, 2.5 + 0.3 * count + tallest * (_INCHES_A_TARGET + _INCHES_A_MARK * count))
        for axes, measure in zip(figure.subplots(1, 2), _MEASURES, strict=True):
            _draw_effects(axes, effects, names[measure], label.format(measure=measure))
            axes.set_ylim(tallest - 0.5, -0.5)
        legend = f"Lines: 95% intervals over worlds. Filled: above 0, false discovery rate {LEVEL:.0%} over the run."
        figure.suptitle(title(headline, f"{text} Largest first. {legend}", 125))
        marks = []
        for number, (name, rows) in enumerate(effects.items()):
            text = wrapped(f"{name} ({sum(map(is_found, rows))} of {len(rows)} targets above 0)", _LETTERS_IN_LEGEND)
            marks.append(Line2D([], [], marker="o", linestyle="none", color=cluster_colour(number), label=text))
        figure.legend(handles=marks, loc="outside lower center", ncols=1 if count > 1 else 2)
    return figure


def _draw_effects(axes: Axes, effects: Effects, names: Sequence[str], label: str) -> None:
    if not names:
        axes.axis("off")
        axes.text(0.5, 0.5, "no such target\ncould be probed", ha="center", va="center", transform=axes.transAxes)
        return
    apart = 0.8 / len(effects)
    drawn = []
    for number, rows in enumerate(effects.values()):
        shift = (number - (len(effects) - 1) / 2) * apart
        for row in rows:
            if row.target in names:
                place, colour, effect = names.index(row.target) + shift, cluster_colour(number), effect_of(row) or 0.0
                if row.low is not None and row.high is not None:
                    axes.hlines(place, row.low, row.high, color=colour, linewidth=1.2, zorder=2)
                axes.plot(
                    np.clip(effect, -_WIDEST, _WIDEST), place, "o", markersize=4.5, markeredgecolor=colour,
                    markerfacecolor=colour if is_found(row) else "white", zorder=3,
                )  # fmt: skip
                drawn += [v for v in (row.low, row.high, effect_of(row)) if v is not None]
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
