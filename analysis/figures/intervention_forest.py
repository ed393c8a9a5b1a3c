"""Forest plots of effects beside those of controls: panels of rows, and in each row an estimate for each series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.intervention_looks import EDIT, INK, LOOKS, handles, legend_below, limits, zero_line
from analysis.figures.style import new_figure, style, wrapped
from analysis.figures.style import title as heading
from analysis.interventions.outcomes import KL, KL_OF_HEAD, group, title_with_unit
from analysis.interventions.text import number
from analysis.statistics.resampling import Estimate

if TYPE_CHECKING:
    from analysis.interventions.at_once import AtOnce
    from analysis.interventions.controls import Against
    from analysis.interventions.effects import Effect
    from analysis.interventions.study import Study

SPREADS = "standard deviations"

_COLUMNS = 3
_INCHES_A_SERIES, _INCHES_A_ROW, _INCHES_A_PANEL, _INCHES_AROUND = 0.1, 0.16, 0.6, 1.5
_PANEL_WIDTH, _LABEL_WIDTH, _NARROWEST = 3.7, 2.0, 7.6
_LETTERS_AN_INCH = 11
_LETTERS_IN_PANEL = 40
_BAND = "#f3f4f6"
_REACH = 0.8
"""Share of a row's height that its series spread over."""


@dataclass(frozen=True)
class Row:
    """One outcome of one edit: estimates by series, as drawn; the edit's own as text; whether it counts."""

    label: str
    group: str
    series: Mapping[str, Estimate]
    told: str
    counts: bool


@dataclass(frozen=True)
class Panel:
    """Rows on one axis.

    Attributes:
        title: above it.
        unit: of the axis.
        rows: from top to bottom; the same in all panels of a figure.
        ends: of the axis.
    """

    title: str
    unit: str
    rows: Sequence[Row]
    ends: tuple[float, float]


def effect_row(effect: "Effect") -> Row:
    """Return an effect on behaviour and its controls, in standard deviations of the twin."""
    return Row(
        title_with_unit(effect.outcome),
        group(effect.outcome),
        {name: _scaled(each, effect.spread) for name, each in _series(effect.effect, effect.against).items()},
        number(effect.effect.value),
        effect.verdict == "effect",
    )


def level_row(level: "AtOnce", sign: bool = False) -> Row:
    """Return an outcome at once and its controls; `sign` says that it can be negative."""
    name = level.outcome.removeprefix(KL_OF_HEAD)
    series = _series(level.level, level.against)
    return Row("all heads" if name == KL else name, "", series, number(level.level.value, sign), True)


def _series(edit: Estimate, against: Sequence["Against"]) -> dict[str, Estimate]:
    return {EDIT: edit, **{each.control: each.effect for each in against}}


def _scaled(estimate: Estimate, spread: float) -> Estimate:
    return Estimate(estimate.value / spread, estimate.low / spread, estimate.high / spread)


def forest(
    panels: Sequence[Panel], words: tuple[str, str], more_handles: Sequence[Line2D] = (), columns: int = _COLUMNS
) -> Figure:
    """Draw panels that have the same rows.

    Args:
        panels: from left to right and top to bottom.
        words: title of the figure, and what it shows.
        more_handles: entries of the legend beside those of the series that occur.
        columns: of panels, at most.
    """
    columns = min(columns, len(panels))
    rows_of_panels = -(-len(panels) // columns)
    series = [name for name in LOOKS if any(name in row.series for panel in panels for row in panel.rows)]
    most = max(len(panel.rows) for panel in panels)
    height = _INCHES_A_PANEL + max(1, most) * (_INCHES_A_ROW + _INCHES_A_SERIES * len(series))
    width = max(_NARROWEST, _LABEL_WIDTH + columns * _PANEL_WIDTH)
    with style():
        figure = new_figure(width, _INCHES_AROUND + rows_of_panels * height)
        grid = figure.subplots(rows_of_panels, columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(panels):
                axes.set_axis_off()
                continue
            panel = panels[place]
            _draw(axes, panel.rows, series, labelled=place % columns == 0)
            axes.set_title(wrapped(panel.title, _LETTERS_IN_PANEL), loc="left")
            axes.set_xlim(*panel.ends)
            axes.set_xlabel(panel.unit)
        figure.suptitle(heading(*words, round(_LETTERS_AN_INCH * width)))
        legend_below(figure, [*handles(series), *more_handles])
    return figure


def _draw(axes: Axes, rows: Sequence[Row], series: Sequence[str], labelled: bool) -> None:
    zero_line(axes, vertical=True)
    shifts = _REACH * (np.arange(len(series)) / max(1, len(series)) - (len(series) - 1) / (2 * max(1, len(series))))
    for place, row in enumerate(rows):
        if place % 2:
            axes.axhspan(place - 0.5, place + 0.5, color=_BAND, zorder=-1, linewidth=0)
        if place and row.group != rows[place - 1].group:
            axes.axhline(place - 0.5, color="#b8bcc2", linewidth=0.8, zorder=0)
        for name, shift in zip(series, shifts, strict=True):
            if name in row.series:
                _draw_estimate(axes, row.series[name], place + shift, name, row.counts or name != EDIT)
        axes.annotate(
            row.told, (1, place), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center",
            fontsize=8, annotation_clip=False,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [wrapped(row.label, 60) if labelled else "" for row in rows])
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _draw_estimate(axes: Axes, estimate: Estimate, place: float, name: str, filled: bool) -> None:
    look = LOOKS[name]
    if np.isfinite(estimate.low):
        axes.hlines(place, estimate.low, estimate.high, color=look["color"], linewidth=1.3, zorder=2)
    axes.plot(
        estimate.value, place, **{**look, "markerfacecolor": look["color"] if filled else "white"}, zorder=3,
        linestyle="none",
    )  # fmt: skip


def ends_of(rows: Sequence[Row], not_negative: bool = False) -> tuple[float, float]:
    """Return the ends of an axis on which all estimates of some rows are seen."""
    return limits([each for row in rows for each in row.series.values()], not_negative)


def about_counting() -> list[Line2D]:
    """Return the legend's entries of effects that count and of those that do not."""
    return [
        Line2D([], [], linestyle="none", label=label, **{**LOOKS[EDIT], "markerfacecolor": colour})
        for label, colour in (("it counts", INK), ("it does not", "white"))
    ]


def intervals(study: "Study") -> str:
    """Say of which size and over how many episodes the intervals are."""
    episodes = "1 episode" if study.episodes == 1 else f"{study.episodes} episodes"
    return f"{100 * study.settings.confidence:g}% intervals over {episodes}"
