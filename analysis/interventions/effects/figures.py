"""Figures of a run: forest plots of effects beside those of controls, and curves over doses and over time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from activation_store.interventions import Outcome
from analysis.figures.style import cluster_colour, few_ticks, new_figure, style, wrapped
from analysis.figures.style import title as heading
from analysis.interventions.effects.controls import RANDOM, RANDOM_DONOR, SAME_VARIANCE, UNTRAINED, Against
from analysis.interventions.effects.courses import TITLES, DoseResponse
from analysis.interventions.effects.effects import AtOnce, Effect, changes_of
from analysis.interventions.effects.outcomes import (
    KL,
    KL_IN_PLAY,
    OFF_MANIFOLD,
    VALUE_CHANGE,
    group,
    title,
    title_with_unit,
)
from analysis.interventions.effects.study import EffectsStudy, ranking
from analysis.interventions.effects.text import number
from analysis.statistics.inference import LEVEL
from analysis.statistics.resampling import Estimate
from common.number_text import format_p, plural

EDIT = "edit"
INK = "#1a1a1a"
ZERO = "#8a8a8a"
LOOKS: dict[str, dict[str, Any]] = {
    EDIT: {"color": INK, "marker": "o", "markersize": 6.5},
    RANDOM: {"color": cluster_colour(0), "marker": "s", "markersize": 4.5},
    SAME_VARIANCE: {"color": cluster_colour(5), "marker": "D", "markersize": 4.5},
    RANDOM_DONOR: {"color": cluster_colour(1), "marker": "v", "markersize": 5},
    UNTRAINED: {"color": cluster_colour(3), "marker": "^", "markersize": 5},
}
"""By series, in the order in which they are drawn and listed."""

_WIDEST = 8.0
_INCHES_A_LETTER, _INCHES_OF_ENTRY = 0.068, 0.6


def handles(shown: Iterable[str]) -> list[Line2D]:
    """Return the legend's entries of the series that a figure shows."""
    present = set(shown)
    return [Line2D([], [], linewidth=1.3, label=name, **look) for name, look in LOOKS.items() if name in present]


def limits(estimates: Sequence[Estimate], not_negative: bool = False) -> tuple[float, float]:
    """Return the ends of an axis that shows 0, all estimates, and intervals up to eight times the largest estimate.

    With two or three episodes intervals can be so wide that nothing else would be seen.
    """
    values = np.array(
        [(estimate.value, estimate.low, estimate.high) for estimate in estimates], dtype=np.float64
    ).reshape(-1, 3)
    known = values[np.isfinite(values[:, 0])]
    largest = np.abs(known[:, 0]).max(initial=0.0) or 1.0
    ends = np.clip(np.nan_to_num(known), -_WIDEST * largest, _WIDEST * largest)
    low, high = min(0.0, ends.min(initial=0.0)), max(0.0, ends.max(initial=0.0))
    room = 0.06 * (high - low or 1.0)
    return (-room / 4 if not_negative else low - room), high + room


def legend_below(figure: Figure, entries: Sequence[Line2D]) -> None:
    """Add a legend below all panels, in as many rows as the figure's width demands."""
    longest = max(len(str(entry.get_label())) for entry in entries)
    columns = int(figure.get_figwidth() / (_INCHES_OF_ENTRY + _INCHES_A_LETTER * longest))
    figure.legend(handles=entries, loc="outside lower center", ncols=min(len(entries), max(1, columns)))


def zero_line(axes: Axes, vertical: bool) -> None:
    """Draw the line of no effect."""
    (axes.axvline if vertical else axes.axhline)(0, color=ZERO, linewidth=0.9, zorder=0)


SPREADS = "standard deviations"

_FOREST_COLUMNS = 3
"""Of panels, at most: with more, letters are too small to be read where the figure is as wide as a page."""
_INCHES_A_SERIES, _INCHES_A_ROW, _INCHES_A_PANEL, _INCHES_AROUND = 0.1, 0.16, 0.6, 1.5
_PANEL_WIDTH, _LABEL_WIDTH, _NARROWEST = 3.7, 2.0, 7.6
_LETTERS_AN_INCH = 11
_LETTERS_IN_PANEL = 40
_STRIPE = "#f3f4f6"
_REACH = 0.8
"""Share of a row's height that its series spread over."""


@dataclass(frozen=True)
class ForestRow:
    """One outcome of one edit: estimates by series, as drawn; the edit's own as text; whether it counts."""

    label: str
    group: str
    series: Mapping[str, Estimate]
    value: str
    counts: bool


@dataclass(frozen=True)
class ForestPanel:
    """Rows on one axis."""

    title: str
    unit: str
    rows: Sequence[ForestRow]  # from top to bottom; the same in all panels of a figure
    ends: tuple[float, float]


def effect_row(effect: Effect) -> ForestRow:
    """Return an effect on behaviour and its controls, in standard deviations of the twin."""
    return ForestRow(
        title_with_unit(effect.outcome),
        group(effect.outcome),
        {
            name: Estimate(of.value / effect.spread, of.low / effect.spread, of.high / effect.spread)
            for name, of in _series(effect.effect, effect.against).items()
        },
        number(effect.effect.value),
        effect.verdict == "effect",
    )


def level_row(level: AtOnce, sign: bool = False) -> ForestRow:
    """Return an outcome at once and its controls; `sign` says that it can be negative."""
    name = Outcome.parse(level.outcome).of or "all heads"
    return ForestRow(name, "", _series(level.level, level.against), number(level.level.value, sign), True)


def _series(edit: Estimate, against: Sequence[Against]) -> dict[str, Estimate]:
    return {EDIT: edit, **{comparison.control: comparison.effect for comparison in against}}


def forest(panels: Sequence[ForestPanel], words: tuple[str, str], more_handles: Sequence[Line2D] = ()) -> Figure:
    """Draw panels that have the same rows; `more_handles` are listed in the legend behind the series that occur."""
    columns = min(_FOREST_COLUMNS, len(panels))
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
            _draw_rows(axes, panel.rows, series, labelled=place % columns == 0)
            axes.set_title(wrapped(panel.title, _LETTERS_IN_PANEL), loc="left")
            axes.set_xlim(*panel.ends)
            axes.set_xlabel(panel.unit)
        figure.suptitle(heading(*words, round(_LETTERS_AN_INCH * width)))
        legend_below(figure, [*handles(series), *more_handles])
    return figure


def _draw_rows(axes: Axes, rows: Sequence[ForestRow], series: Sequence[str], labelled: bool) -> None:
    zero_line(axes, vertical=True)
    shifts = _REACH * (np.arange(len(series)) / max(1, len(series)) - (len(series) - 1) / (2 * max(1, len(series))))
    for place, row in enumerate(rows):
        if place % 2:
            axes.axhspan(place - 0.5, place + 0.5, color=_STRIPE, zorder=-1, linewidth=0)
        if place and row.group != rows[place - 1].group:
            axes.axhline(place - 0.5, color="#b8bcc2", linewidth=0.8, zorder=0)
        for name, shift in zip(series, shifts, strict=True):
            if estimate := row.series.get(name):
                look, at = LOOKS[name], place + shift
                if np.isfinite(estimate.low):
                    axes.hlines(at, estimate.low, estimate.high, color=look["color"], linewidth=1.3, zorder=2)
                filled = {"markerfacecolor": look["color"] if row.counts or name != EDIT else "white"}
                axes.plot(estimate.value, at, **{**look, **filled}, zorder=3, linestyle="none")
        axes.annotate(
            row.value, (1, place), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center",
            fontsize=8, annotation_clip=False,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [wrapped(row.label, 60) if labelled else "" for row in rows])
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def ends_of(rows: Sequence[ForestRow], not_negative: bool = False) -> tuple[float, float]:
    """Return the ends of an axis on which all estimates of some rows are seen."""
    return limits([estimate for row in rows for estimate in row.series.values()], not_negative)


def about_counting() -> list[Line2D]:
    """Return the legend's entries of effects that count and of those that do not."""
    return [
        Line2D([], [], linestyle="none", label=label, **{**LOOKS[EDIT], "markerfacecolor": colour})
        for label, colour in (("counts as an effect", INK), ("does not count", "white"))
    ]


def intervals(study: EffectsStudy) -> str:
    """Say of which size and over how many episodes the intervals are."""
    return f"{100 * study.settings.confidence:g}% intervals over {plural(study.episodes, 'episode')}"


def effects_figure(study: EffectsStudy) -> Figure:
    """Draw the effects on behaviour of each edit and its controls, in standard deviations of the unedited twin."""
    panels = {
        arm: [effect_row(effect) for effect in study.effects if effect.arm == arm and np.isfinite(effect.spread)]
        for arm in dict.fromkeys(effect.arm for effect in study.effects)
    }
    hidden = sorted({title_with_unit(effect.outcome) for effect in study.effects if not np.isfinite(effect.spread)})
    same = f" Not drawn, since the same in all lives of the twin: {', '.join(hidden)}." if hidden else ""
    about = (
        "Mean difference of edited agents from themselves in the unedited twin, in standard deviations over lives of "
        f"the twin, with {intervals(study)}. Filled: q is at most {LEVEL:g}, and the effect lies beyond every kind of "
        f"control. Right of each panel: the edit's effect in the outcome's own unit.{same}"
    )
    return forest(_panels(panels, SPREADS), ("Effects on behaviour", about), about_counting())


def kl_by_head(study: EffectsStudy) -> Figure | None:
    """Draw how far each edit moves each action head's distribution; None if no KL of heads was recorded."""
    heads = [level for _, level in changes_of("kl", study.at_once)]
    total = [level for level in study.at_once if level.outcome == KL]
    if not heads:
        return None
    size = {
        name: max(level.level.value for level in heads if level.outcome == name)
        for name in {level.outcome for level in heads}
    }
    ordered = sorted(heads, key=lambda level: -size[level.outcome])
    arms = dict.fromkeys(level.arm for level in heads)
    panels = {arm: [level_row(level) for level in [*total, *ordered] if level.arm == arm] for arm in arms}
    about = (
        "KL divergence of the edited distribution from that of the same agents if nobody had ever edited them, after "
        f"the same observations, in nats; mean over edited ticks, with {intervals(study)}. Right of each panel: the "
        "edit's own."
    )
    return forest(_panels(panels, "KL, nats", not_negative=True), ("What an edit changes at once, in total", about))


def _panels(rows_by_arm: Mapping[str, Sequence[ForestRow]], unit: str, not_negative: bool = False) -> list[ForestPanel]:
    """Return a panel for each arm, all on the same axis."""
    ends = ends_of([row for rows in rows_by_arm.values() for row in rows], not_negative)
    return [ForestPanel(arm, unit, rows, ends) for arm, rows in rows_by_arm.items()]


_RANKED_SERIES = (EDIT, RANDOM)


def ranking_figure(study: EffectsStudy) -> Figure | None:
    """Draw what each direction did at once and in behaviour; None if they were not edited one by one."""
    ranked = ranking(study)
    if not ranked:
        return None
    top = "the one that moves the distribution over actions furthest at once, in total, is on top"
    order = top if KL in study.at_once_of(ranked[0].name) else "they are not ranked"
    about = (
        f"Each direction was edited by itself; {order}. In total: compared with the same agents if nobody had ever "
        "edited them; in play: without the edit of the same tick alone. On behaviour: mean difference of edited agents "
        "from themselves in the unedited twin, in standard deviations over lives of the twin, with "
        f"{intervals(study)}; filled if q is at most {LEVEL:g}, and the effect lies beyond every kind of control. "
        "Outcomes that most directions have an effect on come first. Right of each panel: the effect in the outcome's "
        "own unit."
    )
    levels = {str(arm.direction): study.at_once_of(arm.name) for arm in ranked}
    panels = []
    for name, unit in ((KL, "nats"), (KL_IN_PLAY, "nats"), (VALUE_CHANGE, "change")):
        if all(name in own for own in levels.values()):
            signed = name == VALUE_CHANGE
            of_level = [_row(level_row(own[name], signed), direction) for direction, own in levels.items()]
            ends = ends_of(of_level, not_negative=not signed)
            panels.append(ForestPanel(f"at once: {title(name)}", unit, of_level, ends))
    effects = {str(arm.direction): study.effects_of(arm.name) for arm in ranked}
    names = [name for name, effect in effects[str(ranked[0].direction)].items() if np.isfinite(effect.spread)]
    rows = {name: [_row(effect_row(own[name]), direction) for direction, own in effects.items()] for name in names}
    ends = ends_of([row for of_effect in rows.values() for row in of_effect])
    names.sort(key=lambda name: -sum(row.counts for row in rows[name]))
    panels += [ForestPanel(title(name), SPREADS, rows[name], ends) for name in names]
    return forest(panels, ("Directions, one by one", about), about_counting())


def _row(row: ForestRow, direction: str) -> ForestRow:
    """Return a row under its direction's name, with the series that are drawn."""
    series = {name: estimate for name, estimate in row.series.items() if name in _RANKED_SERIES}
    return replace(row, label=direction, group="", series=series)


_AT_ONCE = (KL, VALUE_CHANGE, OFF_MANIFOLD)
_MOST_PANELS = 20
_COLUMNS = 4
_DOSE_WIDTH, _PANEL_HEIGHT, _DOSE_AROUND = 3.1, 2.25, 1.4
_LETTERS_A_COLUMN = 31
_BAND = 0.18


def dose_response(study: EffectsStudy) -> Figure | None:
    """Draw outcomes in behaviour, and those at once that sum an edit up, against the dose; None without doses.

    Of many outcomes, those with the smallest p-values are drawn.
    """
    shown, left_out = _chosen(
        [response for response in study.dose_responses if not response.at_once or response.outcome in _AT_ONCE]
    )
    if not shown:
        return None
    columns = min(_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    with style():
        figure = new_figure(max(2, columns) * _DOSE_WIDTH, rows * _PANEL_HEIGHT + _DOSE_AROUND)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, response in zip(panels, shown, strict=False):
            _draw(axes, response)
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        more = f" {left_out} outcomes with larger p-values are not drawn; see effects.tsv." if left_out else ""
        about = (
            f"Means over {study.episodes} episodes with {100 * study.settings.confidence:g}% intervals. KL and change "
            "of the value compare with the same agents if nobody had ever edited them, after the same observations; "
            "distance is that of the edited state; all others are differences from the unedited twin." + more
        )
        figure.suptitle(heading("Effects against the dose", about, _LETTERS_A_COLUMN * max(2, columns)))
        legend_below(figure, handles([EDIT, *([RANDOM] if any(response.random for response in shown) else [])]))
    return figure


def _chosen(responses: Sequence[DoseResponse]) -> tuple[list[DoseResponse], int]:
    """Return the outcomes to draw, in their order, and how many are left out."""
    ranked = sorted(responses, key=lambda response: (not response.at_once, np.nan_to_num(response.p, nan=2.0)))[
        :_MOST_PANELS
    ]
    kept = {response.outcome for response in ranked}
    return [response for response in responses if response.outcome in kept], len(responses) - len(ranked)


def _draw(axes: Axes, response: DoseResponse) -> None:
    zero_line(axes, vertical=False)
    if response.random:
        _draw_series(axes, response.doses, response.random, LOOKS[RANDOM])
    _draw_series(axes, response.doses, response.effects, LOOKS[EDIT])
    axes.set_ylim(*limits([*response.effects, *response.random]))
    axes.set_title(
        wrapped(title_with_unit(response.outcome), _LETTERS_IN_PANEL)
        + f"\nslope {number(response.slope.value)}, q {format_p(response.q)}",
        fontsize=9,
    )
    axes.set_xticks(response.doses) if len(response.doses) <= 6 else axes.xaxis.set_major_locator(few_ticks())
    axes.set_xlabel("dose")


def _draw_series(axes: Axes, at: Sequence[float], estimates: Sequence[Estimate], look: dict[str, Any]) -> None:
    """Draw estimates as a line, with their intervals as a band where they have any."""
    values, low, high = np.array([(estimate.value, estimate.low, estimate.high) for estimate in estimates]).T
    known, places = np.isfinite(low), np.array(at)
    axes.fill_between(places[known], low[known], high[known], color=look["color"], alpha=_BAND, linewidth=0)
    axes.plot(places, values, linewidth=1.6, **look)


_PERSISTENCE_WIDTH, _HEIGHT, _PERSISTENCE_LETTERS = 3.6, 4.0, 38
_ROOM = 0.06
_POLICIES = {"trained": EDIT, "untrained": UNTRAINED}


def persistence_figure(study: EffectsStudy) -> Figure | None:
    """Draw a panel for each kind of state, and one for the actions; None if no edits were followed."""
    shown = [what for what in TITLES if any(persistence.what == what for persistence in study.persistences)]
    if not shown:
        return None
    with style():
        figure = new_figure(max(2, len(shown)) * _PERSISTENCE_WIDTH, _HEIGHT)
        panels = list(figure.subplots(1, len(shown), squeeze=False, sharey=True).flat)
        for axes, what in zip(panels, shown, strict=True):
            zero_line(axes, vertical=False)
            axes.axhline(0.5, color=ZERO, linewidth=0.9, linestyle=":")
            for persistence in study.persistences:
                if persistence.what == what:
                    look = LOOKS[_POLICIES[persistence.policy]] | {"markersize": 3}
                    _draw_series(axes, range(len(persistence.left)), persistence.left, look)
            axes.set_title(TITLES[what])
            axes.set_xlabel("ticks after the edit")
        panels[0].set_ylabel("share left")
        panels[0].set_ylim(-_ROOM, max(share.value for one in study.persistences for share in one.left) + _ROOM)
        about = (
            "Distance of the states, and divergence of the distributions over actions, from those of copies without "
            f"the edit that get the same observations. Means over {study.episodes} episodes with "
            f"{100 * study.settings.confidence:g}% intervals."
        )
        figure.suptitle(heading("How long an edit lasts", about, _PERSISTENCE_LETTERS * max(2, len(shown))))
        policies = {persistence.policy for persistence in study.persistences}
        legend_below(figure, handles([name for policy, name in _POLICIES.items() if policy in policies]))
    return figure
