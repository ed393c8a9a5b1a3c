"""Shares of clusters over lives and ticks, and how they follow each other and how long they last, against chance."""

import numpy as np
from matplotlib.artist import setp
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import NullFormatter, PercentFormatter

from analysis.figures.style import EFFECT_MAP, bare, few_ticks, label_colour, new_figure, style, title, whole_ticks
from analysis.labels import label_name
from analysis.life.phases.transitions import Association, Dwelling, Shares, Transitions
from analysis.statistics.inference import LEVEL

MOST_STATES = 12
_COLUMNS = 4
_REST_COLOUR = "#f2f2f2"
MOST_STATES_LEFT = 14
_UNSURE = 0.25
"""Colour strength of transitions that may be due to chance."""
_STRONGEST = 3.0
"""Number of doublings or halvings relative to chance at which the colour scale ends."""
_INK = "#333333"
_FEWEST_TICKS = 20
"""Length in ticks of the longest visit below which the axis is labelled at more than powers of ten."""


def life_phase_figure(
    shares: Shares, association: Association, labels: np.ndarray, time: str, heading: str, text: str
) -> Figure:
    """Draw stacked shares, and below them each state's share with its 95% interval as a band.

    Beyond `MOST_STATES`, the rarer states are combined in one pale area without panels of their own.
    """
    order = np.argsort(-np.nanmean(shares.mean, axis=0), kind="stable")[:MOST_STATES]
    order = np.sort(order)
    rows = -(-len(order) // _COLUMNS)
    with style():
        figure = new_figure(13.0, 5.6 + 1.9 * rows)
        grid = GridSpec(2 + rows, _COLUMNS, figure, height_ratios=[3.4, 0.7] + [1.5] * rows)
        stack = figure.add_subplot(grid[0, :])
        _stack(stack, shares, order, labels)
        lives = figure.add_subplot(grid[1, :], sharex=stack)
        lives.stairs(shares.lives, shares.edges, fill=True, color="#999999")
        lives.set(ylabel="lives", xlabel=time, ylim=(0, max(1, shares.lives.max()) * 1.05))
        lives.yaxis.set_major_locator(whole_ticks())
        for place, state in enumerate(order.tolist()):
            panel = figure.add_subplot(grid[2 + place // _COLUMNS, place % _COLUMNS])
            _panel(panel, shares, state, int(labels[state]), f"q = {association.state_q[state]:.2g}")
            panel.set_xlabel(time)
        figure.suptitle(title(heading, text, 115))
    return figure


def _stack(axes: Axes, shares: Shares, order: np.ndarray, labels: np.ndarray) -> None:
    base = np.zeros(len(shares.mean))
    for state in order.tolist():
        top = base + shares.mean[:, state]
        name = label_name(int(labels[state]))
        _area(axes, shares, base, top, label_colour(int(labels[state])), name)
        base = top
    if len(order) < len(labels):
        _area(
            axes, shares, base, np.where(np.isnan(base), np.nan, 1.0), _REST_COLOUR, f"{len(labels) - len(order)} rarer"
        )
    axes.set(ylabel="share of ticks,\nmean over lives", ylim=(0, 1), xlim=(shares.edges[0], shares.edges[-1]))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.tick_params(labelbottom=False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), reverse=True, borderaxespad=0.0)


def _area(axes: Axes, shares: Shares, base: np.ndarray, top: np.ndarray, colour: str, name: str) -> None:
    axes.stairs(top, shares.edges, baseline=base, fill=True, color=colour, label=name, linewidth=0)
    axes.stairs(top, shares.edges, baseline=None, color="white", linewidth=0.6)


def _panel(axes: Axes, shares: Shares, state: int, label: int, description: str) -> None:
    mean, low, high = (series[:, state] for series in (shares.mean, shares.low, shares.high))
    axes.stairs(high, shares.edges, baseline=low, fill=True, color=label_colour(label), alpha=0.45, linewidth=0)
    axes.stairs(mean, shares.edges, baseline=None, color="#222222", linewidth=1.3)
    most = np.nanmax(np.concatenate([mean, high]), initial=0.0)
    axes.set(ylim=(0, max(1e-3, min(1.0, most * 1.1))), xlim=(shares.edges[0], shares.edges[-1]))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.yaxis.set_major_locator(few_ticks())
    axes.set_title(f"{label_name(label)}, {description}", fontsize=8.5)


def transitions_figure(
    transitions: Transitions, dwelling: Dwelling, labels: np.ndarray, heading: str, text: str
) -> Figure:
    """Draw which states follow each state, coloured by the ratio to chance given age, and how long states last.

    Only the `MOST_STATES_LEFT` states with the most ticks are drawn.
    """
    shown = np.sort(np.argsort(-dwelling.ticks, kind="stable")[:MOST_STATES_LEFT])
    names = [label_name(int(labels[state])) for state in shown]
    size = 2.6 + 0.55 * len(shown)
    with style():
        figure = new_figure(max(11.0, 8.2 + 0.55 * len(shown)), max(4.4, size))
        left, right = figure.subplots(1, 2, width_ratios=[max(5.0, len(shown)), 6])
        _matrix(left, transitions, shown, names)
        _dwell(right, dwelling, labels, shown, names)
        figure.suptitle(title(heading, text, 100 + 4 * len(shown)))
    return figure


def _matrix(axes: Axes, transitions: Transitions, shown: np.ndarray, names: list[str]) -> None:
    given = transitions.given_age
    share, chance, q = (matrix[np.ix_(shown, shown)] for matrix in (transitions.share, given.chance, given.q))
    with np.errstate(divide="ignore", invalid="ignore"):
        doublings = np.clip(np.log2(share / chance), -_STRONGEST, _STRONGEST)
    np.fill_diagonal(doublings, np.nan)
    sure = np.nan_to_num(q, nan=1.0) <= LEVEL
    alpha = np.where(sure, 1.0, _UNSURE)
    image = axes.imshow(doublings, cmap=EFFECT_MAP, vmin=-_STRONGEST, vmax=_STRONGEST, alpha=alpha, aspect="auto")
    for (row, column), value in np.ndenumerate(share):
        if row == column:
            axes.text(column, row, "–", ha="center", va="center", color="#888888")
        elif np.isfinite(value):
            dark = sure[row, column] and abs(doublings[row, column]) > 0.65 * _STRONGEST
            axes.text(
                column, row, f"{value:.0%}", ha="center", va="center", fontsize=7,
                color="white" if dark else "black", fontweight="bold" if sure[row, column] else "normal",
            )  # fmt: skip
    axes.set_xticks(range(len(shown)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(shown)), names)
    bare(axes)
    axes.set(xlabel="next state", ylabel="state that is left")
    axes.set_title("where a state leads when it is left\n(bold, full colour: q < 0.05 given age)")
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.8, extend="both", label="ratio to chance given age (log scale)")
    ticks = np.arange(-_STRONGEST, _STRONGEST + 1)
    times = [f"{2.0**doublings:g}×" if doublings >= 0 else f"1/{2.0**-doublings:g}×" for doublings in ticks.tolist()]
    bar.set_ticks(ticks.tolist(), labels=times)


def _dwell(axes: Axes, dwelling: Dwelling, labels: np.ndarray, shown: np.ndarray, names: list[str]) -> None:
    place = np.arange(len(shown))
    columns = (dwelling.mean, dwelling.low, dwelling.high, dwelling.chance, dwelling.median)
    mean, low, high, chance, median = (column[shown] for column in columns)
    colours = [label_colour(int(labels[state])) for state in shown]
    axes.hlines(place, low, high, color=colours, linewidth=2.5)
    axes.scatter(mean, place, c=colours, s=40, zorder=3, label="mean, 95% interval")
    axes.scatter(chance, place, marker="|", c="black", s=90, zorder=3, label="mean if ticks were in random order")
    axes.scatter(median, place, marker="d", c="white", edgecolors="black", s=22, zorder=4, label="median")
    most = np.nanmax(np.concatenate([[1.0], mean, high, chance, median]))
    axes.set(
        xscale="log",
        xlim=(0.8, most * 1.3),
        xlabel="length of a visit (ticks, log scale)",
        ylim=(len(shown) - 0.5, -0.5),
    )
    powers = 10 ** np.arange(int(np.log10(most)) + 1)
    marked = np.array([1, 2, 5, 10, 20]) if most < _FEWEST_TICKS else powers
    marked = marked[marked <= most * 1.3]
    axes.set_xticks(marked, [f"{ticks:,}" for ticks in marked])
    axes.xaxis.set_minor_formatter(NullFormatter())
    ended = "" if np.isfinite(mean).any() else " (none has ended)"
    axes.set_title(f"how long visits to a state last{ended}")
    axes.set_yticks(place, names)
    axes.grid(axis="x", color="#eeeeee")
    legend = axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=3)
    first = legend.legend_handles[0]
    if first is not None:
        setp(first, color=_INK)  # of no one state
