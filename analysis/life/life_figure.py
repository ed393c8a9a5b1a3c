"""One life on one page: the agent's vitals, surroundings, actions and events, and the cluster of its hidden state."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.figures.style import new_figure, style, title, whole_ticks
from analysis.life.events import DIED, EVENT_KINDS
from analysis.life.strips_figure import cluster_handles, cluster_strip, counts_beside, dense, lanes
from analysis.life.timeline import ESTIMATES, LANES, LEVELS, NEARBY, VITALS, ClusterStrip, Timeline

_WIDTH = 14.0
_INCHES_A_UNIT = 0.62
_TITLE_INCHES = 1.1
_RED, _BROWN, _BLUE, _PURPLE, _ORANGE = "#bd1f01", "#a96b59", "#3f90da", "#832db6", "#e76300"
_DARK = "#333333"
_NAMES = {
    "self_health": "health", "self_food": "food", "self_water": "water", "n_visible_players": "players",
    "n_passive_npcs": "passive NPCs", "n_neutral_npcs": "neutral NPCs", "n_aggressive_npcs": "aggressive NPCs",
    "max_combat_level": "highest of combat", "max_harvesting_level": "highest of harvesting",
}  # fmt: skip


def life_figure(life: Timeline, heading: str, text: str, clusters: ClusterStrip | None = None) -> Figure:
    """Draw one life as panels that share an axis of ticks.

    Reward and value are left out if the dump does not record them, and the title says so.
    """
    panels: list[tuple[float, Callable[[Axes, Timeline], None]]] = [  # heights in units of about half an inch
        (2.2, _vitals), (1.4, _levels), (1.6, _nearby), (1.4, _belongings), (3.2, _actions), (2.6, _events),
    ]  # fmt: skip
    unrecorded = [name for name in ESTIMATES if np.isnan(life.columns[name]).all()]
    if len(unrecorded) < len(ESTIMATES):
        panels.insert(4, (1.6, _estimates))
    if clusters is not None:
        panels.append((1.2, lambda axes, shown: _clusters(axes, shown, clusters)))
        text += f"; clusters of {clusters.run}"
    if unrecorded:
        text += f"; the dump does not record {' and '.join(unrecorded)}"
    heights = [height for height, _ in panels]
    with style():
        figure = new_figure(_WIDTH, _TITLE_INCHES + _INCHES_A_UNIT * sum(heights))
        every = figure.subplots(len(panels), sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        for axes, (_, draw) in zip(every, panels, strict=True):
            draw(axes, life)
            axes.margins(x=0)
        tick = life.records.tick
        every[-1].set(xlabel="tick of the episode", xlim=(tick[0] - 0.5, tick[-1] + 0.5))
        every[-1].xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        figure.align_ylabels(every)
        figure.suptitle(title(heading, text, 150))
    return figure


def _line(axes: Axes, life: Timeline, name: str, **look: Any) -> None:
    """Draw a column as steps, with gaps at missing ticks; a single tick is a dot."""
    ticks, values = _every_tick(life, life.columns[name])
    marker = "o" if len(life) == 1 else ""
    axes.step(ticks, values, where="mid", label=_NAMES.get(name, name), marker=marker, **look)


def _every_tick(life: Timeline, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all ticks from first to last, and their values, NaN for ticks missing from the dump, (ticks,) each."""
    tick = life.records.tick
    return np.arange(tick[0], tick[-1] + 1), dense(tick, values, np.nan)


def _beside(axes: Axes, **options: object) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.045, 0.5), borderaxespad=0.0, **options)


def _vitals(axes: Axes, life: Timeline) -> None:
    for name, colour, width in zip(VITALS, (_RED, _BROWN, _BLUE), (1.6, 1.0, 1.0), strict=True):
        _line(axes, life, name, color=colour, linewidth=width)
    axes.set(ylabel="vitals\n(points)", ylim=(-4, 104), yticks=[0, 50, 100])
    axes.axhline(50, color="#dddddd", linewidth=0.6, zorder=0)
    _beside(axes)


def _levels(axes: Axes, life: Timeline) -> None:
    combat, harvesting = LEVELS[-2:]
    _line(axes, life, combat, color=_RED, linewidth=1.6)
    _line(axes, life, harvesting, color=_BLUE, linewidth=1.0)
    highest = max(life.columns[name].max() for name in (combat, harvesting))
    axes.set(ylabel="level", ylim=(0, highest * 1.1 + 0.5))
    axes.yaxis.set_major_locator(whole_ticks())
    _beside(axes)


def _nearby(axes: Axes, life: Timeline) -> None:
    base = np.zeros(len(life))
    for name, colour in zip(NEARBY, (_BLUE, "#ffa90e", _ORANGE, _RED), strict=True):
        if life.columns[name].any():
            ticks, below = _every_tick(life, base)
            base = base + life.columns[name]
            axes.fill_between(
                ticks, below, _every_tick(life, base)[1], step="mid", color=colour, label=_NAMES[name], linewidth=0
            )
    axes.set(ylabel="in view\n(count)", ylim=(0, max(1.0, base.max() * 1.05)))
    axes.yaxis.set_major_locator(whole_ticks())
    if base.any():
        _beside(axes)


def _belongings(axes: Axes, life: Timeline) -> None:
    gold = axes.twinx()
    _line(axes, life, "n_inventory_items", color=_PURPLE, linewidth=1.3)
    _line(gold, life, "self_gold", color="#9a7500", linewidth=1.0)
    for side, name, text, colour in (
        (axes, "n_inventory_items", "items", _PURPLE), (gold, "self_gold", "gold", "#9a7500"),
    ):  # fmt: skip
        side.set_ylabel(text, color=colour)
        side.tick_params(axis="y", labelcolor=colour)
        side.set_ylim(0, max(1.0, life.columns[name].max() * 1.08))
        side.yaxis.set_major_locator(whole_ticks())
    gold.spines["right"].set_visible(True)


def _estimates(axes: Axes, life: Timeline) -> None:
    reward, value = ESTIMATES
    axes.axhline(0, color="#dddddd", linewidth=0.6, zorder=0)
    if not np.isnan(life.columns[reward]).all():
        axes.vlines(life.records.tick, 0, life.columns[reward], color=_ORANGE, linewidth=1.0, label="reward")
    if not np.isnan(life.columns[value]).all():
        _line(axes, life, value, color=_DARK, linewidth=1.0)
    axes.set_ylabel("reward,\nvalue")
    _beside(axes)


def _actions(axes: Axes, life: Timeline) -> None:
    names = [name.removeprefix("is_").replace("_", " ") for name in LANES]
    marks = {text: life.columns[name] > 0 for text, name in zip(names, LANES, strict=True)}
    lanes(axes, life.records.tick, marks, _DARK)
    counts_beside(axes, [f"{mark.mean():.0%} of ticks" for mark in marks.values()])
    axes.set_ylabel("chosen")


def _events(axes: Axes, life: Timeline) -> None:
    marks = {}
    for kind, name in enumerate(EVENT_KINDS):
        marks[name] = np.zeros(len(life), bool)
        marks[name][life.events.record[life.events.kind == kind]] = True
    lanes(axes, life.records.tick, marks, _RED)
    texts = [f"{int((life.events.kind == kind).sum())} times" for kind in range(len(EVENT_KINDS))]
    texts[DIED] = next((d for d, kind in zip(life.events.detail, life.events.kind, strict=True) if kind == DIED), "no")
    counts_beside(axes, texts)
    axes.set_ylabel("happened")


def _clusters(axes: Axes, life: Timeline, clusters: ClusterStrip) -> None:
    cluster_strip(axes, life.records.tick, clusters)
    axes.set_ylabel("cluster")
    _beside(axes, handles=cluster_handles(clusters.label), handlelength=1.0)
