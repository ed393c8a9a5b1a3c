"""How well each target is read out of each input: a table of scores in colour."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import new_figure, style, title, wrapped
from representation.probes.inputs import title_of
from representation.probes.report import AUC, DumpReport

_PANELS_AT_MOST = 4
_COLOURS = "YlGnBu"
_UNKNOWN = "#eeeeee"
_DARK_CELL = 0.6
_INCHES_A_ROW = 0.2
_INCHES_A_COLUMN = 0.62
_NARROWEST = 6.5
_LABELS_INCHES = 2.6
_LETTERS_AN_INCH = 10.5


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
            _draw(axes, report, probe)
            axes.set_title(name, fontsize=9)
        grid[0].set_yticks(range(len(targets)), [f"{t['name']}  ({t['measure']})" for t in targets])
        more = f"; {len(shown)} of {len(reports)} dumps" if len(shown) < len(reports) else ""
        text = (
            "R2 (chance 0) or AUC (chance 0.5) on worlds that no probe was fitted to; darker is further from chance; "
            "grey: could not be probed"
        )
        figure.suptitle(title("What probes read out of each input", text + more, int(_LETTERS_AN_INCH * width)))
    return figure


def _draw(axes: Axes, report: DumpReport, probe: str) -> None:
    place = {(target["name"]): row for row, target in enumerate(report.targets)}
    column = {name: number for number, name in enumerate(report.inputs)}
    score, strength = np.full((2, len(place), len(column)), np.nan)
    for row in report.scores:
        if row.probe == probe and row.score is not None:
            here = place[row.target], column[row.input]
            score[here] = row.score
            strength[here] = 2 * row.score - 1 if row.measure == AUC else row.score
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
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
