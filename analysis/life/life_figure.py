"""One life on one page: the agent's vitals, surroundings, actions and events, and the cluster of its hidden state."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.figures.style import label_colour, new_figure, style, title, whole_ticks
from analysis.labels import label_name
from analysis.life.events import DIED, EVENT_KINDS
from analysis.life.timeline import ESTIMATES, LANES, LEVELS, NEARBY, VITALS, TickClusters, Timeline
from common.number_text import plural, share_text

MOST_COLUMNS = 1500
"""Maximum number of ticks drawn one by one, about one per pixel; in longer lives a column covers several ticks."""

_PALE = 0.45
_LABELS_NAMED = 12


def lanes(axes: Axes, tick: np.ndarray, marks: dict[str, np.ndarray], colour: str) -> None:
    """Draw a lane for each name, dark at marked ticks, with its name at the side.

    In lives longer than `MOST_COLUMNS` a column covers several ticks and is as dark as the share of them marked.
    """
    rows = np.stack([dense(tick, mark.astype(float), 0.0) for mark in marks.values()])  # (lanes, ticks)
    width = -(-rows.shape[1] // MOST_COLUMNS)
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % width)))
    share = padded.reshape(len(rows), -1, width).mean(axis=2)  # (lanes, columns)
    image = 1 - share[:, :, None] * (1 - np.array(to_rgb(colour)))  # (lanes, columns, 3)
    _show(axes, image, tick[0], width)
    _name_rows(axes, list(marks))
    for row in range(1, len(marks)):
        axes.axhline(row, color="#dddddd", linewidth=0.6)


def counts_beside(axes: Axes, texts: list[str]) -> None:
    """Write a text to the right of each lane."""
    for row, text in enumerate(texts):
        axes.annotate(
            text, (1.005, row + 0.5), xycoords=axes.get_yaxis_transform(), va="center", fontsize=7.5, color="#444444",
            annotation_clip=False,
        )  # fmt: skip


def dense(tick: np.ndarray, values: np.ndarray, missing: float) -> np.ndarray:
    """Return a value for each tick from the first to the last, (ticks,), of those of some ticks, (B,)."""
    filled = np.full(int(tick[-1] - tick[0]) + 1, missing)
    filled[tick - tick[0]] = values
    return filled


def _show(axes: Axes, image: np.ndarray, first: int, width: int) -> None:
    extent = (first - 0.5, first - 0.5 + image.shape[1] * width, image.shape[0], 0)
    axes.imshow(image, aspect="auto", extent=extent, interpolation="nearest")


def _name_rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(np.arange(len(names)) + 0.5, names)
    axes.tick_params(axis="y", length=0, labelsize=8)


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


def life_figure(life: Timeline, heading: str, text: str, clusters: TickClusters | None = None) -> Figure:
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
    texts = [plural(int((life.events.kind == kind).sum()), "time") for kind in range(len(EVENT_KINDS))]
    texts[DIED] = next((d for d, kind in zip(life.events.detail, life.events.kind, strict=True) if kind == DIED), "no")
    counts_beside(axes, texts)
    axes.set_ylabel("happened")


def _clusters(axes: Axes, life: Timeline, clusters: TickClusters) -> None:
    """Draw the run's own labels in one row, and below it all labels, with propagated ones paler.

    The legend has the most common labels with their shares.
    """
    tick, (label, exact) = life.records.tick, clusters
    colours = np.array([to_rgb(label_colour(int(one))) for one in label])  # (B, 3)
    own = np.where(exact[:, None], colours, 1.0)
    both = np.where(exact[:, None], colours, 1 - _PALE * (1 - colours))
    image = np.stack([np.stack([dense(tick, rows[:, c], 1.0) for c in range(3)], axis=1) for rows in (own, both)])
    _show(axes, image, tick[0], 1)
    _name_rows(axes, ["labels of the run", "with propagated ones (paler)"])
    axes.axhline(1, color="#dddddd", linewidth=0.6)
    counts_beside(axes, [f"{exact.mean():.0%}", "100%"])
    axes.set_ylabel("cluster")
    labels, counts = np.unique(label, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    named = [(int(labels[i]), counts[i] / len(label)) for i in order[:_LABELS_NAMED]]
    handles = [Patch(color=label_colour(one), label=f"{label_name(one)} ({share_text(share)})") for one, share in named]
    if rest := len(labels) - len(named):
        handles.append(Patch(color="none", label=f"and {rest} rarer"))
    _beside(axes, handles=handles, handlelength=1.0)
