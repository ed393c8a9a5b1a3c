"""Curves: effects against the dose of an edit, and what is left of an edit against the ticks since then."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import few_ticks, new_figure, style, title, wrapped
from analysis.interventions.effects.controls import RANDOM, UNTRAINED
from analysis.interventions.effects.dose_response import DoseResponse
from analysis.interventions.effects.outcomes import KL, OFF_MANIFOLD, VALUE_CHANGE, title_with_unit
from analysis.interventions.effects.persistence import TITLES, Persistence
from analysis.interventions.effects.study import EffectsStudy
from analysis.interventions.effects.text import number, p_text
from analysis.interventions.figures.forests import EDIT, LOOKS, handles, legend_below, limits, zero_line
from analysis.statistics.resampling import Estimate

_AT_ONCE = (KL, VALUE_CHANGE, OFF_MANIFOLD)
_MOST_PANELS = 20
_COLUMNS = 4
_PANEL_WIDTH, _PANEL_HEIGHT, _INCHES_AROUND = 3.1, 2.25, 1.4
_LETTERS_IN_PANEL, _LETTERS_A_COLUMN = 40, 31
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
        figure = new_figure(max(2, columns) * _PANEL_WIDTH, rows * _PANEL_HEIGHT + _INCHES_AROUND)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, response in zip(panels, shown, strict=False):
            _draw(axes, response)
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        figure.suptitle(title("Effects against the dose", _about(study, left_out), _LETTERS_A_COLUMN * max(2, columns)))
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
        + f"\nslope {number(response.slope.value)}, q {p_text(response.q)}",
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


def _about(study: EffectsStudy, left_out: int) -> str:
    more = f" {left_out} outcomes with larger p-values are not drawn; see effects.tsv." if left_out else ""
    confidence = f"{100 * study.settings.confidence:g}%"
    return (
        f"Means over {study.episodes} episodes with {confidence} intervals. KL and change of the value compare with "
        "the same agents if nobody had ever edited them, after the same observations; distance is that of the edited "
        f"state; all others are differences from the unedited twin.{more}"
    )


_PERSISTENCE_WIDTH, _HEIGHT, _PERSISTENCE_LETTERS = 3.6, 4.0, 38
_ROOM = 0.06
_SERIES = {"trained": EDIT, "untrained": UNTRAINED}


def persistence_figure(study: EffectsStudy) -> Figure | None:
    """Draw a panel for each kind of state, and one for the actions; None if no edits were followed."""
    shown = [what for what in TITLES if any(persistence.what == what for persistence in study.persistences)]
    if not shown:
        return None
    with style():
        figure = new_figure(max(2, len(shown)) * _PERSISTENCE_WIDTH, _HEIGHT)
        panels = list(figure.subplots(1, len(shown), squeeze=False, sharey=True).flat)
        for axes, what in zip(panels, shown, strict=True):
            _draw_persistence(axes, what, [item for item in study.persistences if item.what == what])
        panels[0].set_ylabel("share left")
        panels[0].set_ylim(-_ROOM, max(share.value for one in study.persistences for share in one.left) + _ROOM)
        about = (
            "Distance of the states, and divergence of the distributions over actions, from those of copies without "
            f"the edit that get the same observations. Means over {study.episodes} episodes with "
            f"{100 * study.settings.confidence:g}% intervals."
        )
        figure.suptitle(title("How long an edit lasts", about, _PERSISTENCE_LETTERS * max(2, len(shown))))
        policies = {persistence.policy for persistence in study.persistences}
        legend_below(figure, handles([name for policy, name in _SERIES.items() if policy in policies]))
    return figure


def _draw_persistence(axes: Axes, what: str, persistences: list[Persistence]) -> None:
    zero_line(axes, vertical=False)
    axes.axhline(0.5, color="#8a8a8a", linewidth=0.9, linestyle=":")
    for persistence in persistences:
        look = LOOKS[_SERIES[persistence.policy]] | {"markersize": 3}
        _draw_series(axes, range(len(persistence.left)), persistence.left, look)
    axes.set_title(TITLES[what])
    axes.set_xlabel("ticks after the edit")
