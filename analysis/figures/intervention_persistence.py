"""What is left of edits that were made in a single tick, against the ticks since then."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.intervention_looks import EDIT, LOOKS, handles, legend_below, zero_line
from analysis.figures.style import new_figure, style, title
from analysis.interventions.controls import UNTRAINED
from analysis.interventions.persistence import TITLES

if TYPE_CHECKING:
    from analysis.interventions.persistence import Persistence
    from analysis.interventions.study import Study

_PANEL_WIDTH, _HEIGHT, _LETTERS_A_COLUMN = 3.6, 4.0, 38
_BAND = 0.18
_ROOM = 0.06
_SERIES = {"trained": EDIT, "untrained": UNTRAINED}


def persistence_figure(study: "Study") -> Figure | None:
    """Draw a panel for each kind of state, and one for the actions; None if no edits were followed."""
    shown = [what for what in TITLES if any(each.what == what for each in study.persistences)]
    if not shown:
        return None
    with style():
        figure = new_figure(max(2, len(shown)) * _PANEL_WIDTH, _HEIGHT)
        panels = list(figure.subplots(1, len(shown), squeeze=False, sharey=True).flat)
        for axes, what in zip(panels, shown, strict=True):
            _draw(axes, what, [each for each in study.persistences if each.what == what])
        panels[0].set_ylabel("share left")
        panels[0].set_ylim(-_ROOM, max(each.value for one in study.persistences for each in one.left) + _ROOM)
        about = (
            "Distance of the states, and divergence of the distributions over actions, from those of copies without "
            f"the edit that get the same observations. Means over {study.episodes} episodes with "
            f"{100 * study.settings.confidence:g}% intervals."
        )
        figure.suptitle(title("How long an edit lasts", about, _LETTERS_A_COLUMN * max(2, len(shown))))
        policies = {each.policy for each in study.persistences}
        legend_below(figure, handles([name for policy, name in _SERIES.items() if policy in policies]))
    return figure


def _draw(axes: Axes, what: str, persistences: list["Persistence"]) -> None:
    zero_line(axes, vertical=False)
    axes.axhline(0.5, color="#8a8a8a", linewidth=0.9, linestyle=":")
    for each in persistences:
        look = LOOKS[_SERIES[each.policy]] | {"markersize": 3}
        ticks = np.arange(len(each.left))
        value, low, high = (np.array([getattr(one, end) for one in each.left]) for end in ("value", "low", "high"))
        axes.fill_between(ticks, low, high, color=look["color"], alpha=_BAND, linewidth=0)
        axes.plot(ticks, value, linewidth=1.6, **look)
    axes.set_title(TITLES[what])
    axes.set_xlabel("ticks after the edit")
