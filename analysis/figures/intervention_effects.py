"""Effects of edits against controls, and how far they move each action head's distribution: forest plots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.intervention_looks import EDIT, INK, LOOKS, handles, legend_below, limits, zero_line
from analysis.figures.style import new_figure, style, title, wrapped
from analysis.interventions.outcomes import KL, KL_OF_HEAD, group, title_with_unit
from analysis.interventions.text import number
from analysis.statistics.inference import LEVEL
from analysis.statistics.resampling import Estimate

if TYPE_CHECKING:
    from analysis.interventions.at_once import AtOnce
    from analysis.interventions.controls import Against
    from analysis.interventions.effects import Effect
    from analysis.interventions.study import Study

_COLUMNS = 3
_INCHES_A_SERIES, _INCHES_A_ROW, _INCHES_A_PANEL, _INCHES_AROUND = 0.1, 0.16, 0.6, 1.5
_PANEL_WIDTH, _LABEL_WIDTH, _NARROWEST = 3.7, 2.0, 7.6
_LETTERS_AN_INCH = 11
_LETTERS_IN_PANEL = 40
_BAND = "#f3f4f6"
_REACH = 0.8
"""Share of a row's height that its series spread over."""


@dataclass(frozen=True)
class _Row:
    """One outcome of one edit: estimates by series, as drawn; the edit's own as text; whether it counts."""

    label: str
    group: str
    series: Mapping[str, Estimate]
    told: str
    counts: bool


def effects_figure(study: "Study") -> Figure:
    """Draw the effects on behaviour of each edit and its controls, in standard deviations of the unedited twin."""
    panels = {
        arm: [_effect_row(effect) for effect in study.effects if effect.arm == arm and np.isfinite(effect.spread)]
        for arm in dict.fromkeys(effect.arm for effect in study.effects)
    }
    hidden = sorted({title_with_unit(each.outcome) for each in study.effects if not np.isfinite(each.spread)})
    same = f" Not drawn, since the same in all lives of the twin: {', '.join(hidden)}." if hidden else ""
    about = (
        "Mean difference of edited agents from themselves in the unedited twin, in standard deviations over lives of "
        f"the twin, with {_intervals(study)}. Filled: q is at most {LEVEL:g}, and the effect exceeds every kind of "
        f"control. Right of each panel: the edit's effect in the outcome's own unit.{same}"
    )
    counts = [
        Line2D([], [], linestyle="none", label=label, **{**LOOKS[EDIT], "markerfacecolor": colour})
        for label, colour in (("it counts", INK), ("it does not", "white"))
    ]
    return _forest(panels, ("Effects on behaviour", about), "standard deviations", counts)


def kl_by_head(study: "Study") -> Figure | None:
    """Draw how far each edit moves each action head's distribution; None if no KL of heads was recorded."""
    heads = [each for each in study.at_once if each.outcome.startswith(KL_OF_HEAD)]
    total = [each for each in study.at_once if each.outcome == KL]
    if not heads:
        return None
    size = {name: max(each.level.value for each in heads if each.outcome == name) for name in _names(heads)}
    ordered = sorted(heads, key=lambda each: -size[each.outcome])
    panels = {arm: [_level_row(each) for each in [*total, *ordered] if each.arm == arm] for arm in _arms(heads)}
    about = (
        "KL divergence of the edited from the unedited distribution in the same state, in nats; mean over edited "
        f"ticks, with {_intervals(study)}. Right of each panel: the edit's own."
    )
    return _forest(panels, ("What an edit changes at once", about), "KL, nats", [], not_negative=True)


def _effect_row(effect: "Effect") -> _Row:
    return _Row(
        title_with_unit(effect.outcome),
        group(effect.outcome),
        {name: _scaled(each, effect.spread) for name, each in _series(effect.effect, effect.against).items()},
        number(effect.effect.value),
        effect.verdict == "effect",
    )


def _level_row(level: "AtOnce") -> _Row:
    name = level.outcome.removeprefix(KL_OF_HEAD)
    series = _series(level.level, level.against)
    return _Row("all heads" if name == KL else name, "", series, number(level.level.value, sign=False), True)


def _series(edit: Estimate, against: Sequence["Against"]) -> dict[str, Estimate]:
    return {EDIT: edit, **{each.control: each.effect for each in against}}


def _scaled(estimate: Estimate, spread: float) -> Estimate:
    return Estimate(estimate.value / spread, estimate.low / spread, estimate.high / spread)


def _forest(
    panels: Mapping[str, Sequence[_Row]],
    words: tuple[str, str],
    unit: str,
    more_handles: Sequence[Line2D],
    not_negative: bool = False,
) -> Figure:
    """Draw a panel for each arm, with the same rows in all, and a legend of the series that occur."""
    columns = min(_COLUMNS, len(panels))
    rows_of_panels = -(-len(panels) // columns)
    everything = [row for rows in panels.values() for row in rows]
    series = [name for name in LOOKS if any(name in row.series for row in everything)]
    most = max(map(len, panels.values()))
    height = _INCHES_A_PANEL + max(1, most) * (_INCHES_A_ROW + _INCHES_A_SERIES * len(series))
    width = max(_NARROWEST, _LABEL_WIDTH + columns * _PANEL_WIDTH)
    ends = limits([each for row in everything for each in row.series.values()], not_negative)
    with style():
        figure = new_figure(width, _INCHES_AROUND + rows_of_panels * height)
        grid = figure.subplots(rows_of_panels, columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(panels):
                axes.set_axis_off()
                continue
            arm, rows = list(panels.items())[place]
            _draw(axes, rows, series, labelled=place % columns == 0)
            axes.set_title(wrapped(arm, _LETTERS_IN_PANEL), loc="left")
            axes.set_xlim(*ends)
            axes.set_xlabel(unit)
        figure.suptitle(title(*words, round(_LETTERS_AN_INCH * width)))
        legend_below(figure, [*handles(series), *more_handles])
    return figure


def _draw(axes: Axes, rows: Sequence[_Row], series: Sequence[str], labelled: bool) -> None:
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


def _intervals(study: "Study") -> str:
    episodes = "1 episode" if study.episodes == 1 else f"{study.episodes} episodes"
    return f"{100 * study.settings.confidence:g}% intervals over {episodes}"


def _names(levels: Sequence["AtOnce"]) -> list[str]:
    return list(dict.fromkeys(each.outcome for each in levels))


def _arms(levels: Sequence["AtOnce"]) -> list[str]:
    return list(dict.fromkeys(each.arm for each in levels))
