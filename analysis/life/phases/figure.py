"""Shares of clusters over a life, or over the ticks of an episode."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import PercentFormatter

from analysis.figures.style import few_ticks, new_figure, style, title, whole_ticks
from analysis.labels import label_name
from analysis.life.phases.phases import Association, Shares
from analysis.life.strips_figure import label_colour

MOST_STATES = 12
_COLUMNS = 4
_REST_COLOUR = "#f2f2f2"


def life_phase_figure(
    shares: Shares, association: Association, labels: np.ndarray, time: str, heading: str, text: str
) -> Figure:
    """Draw stacked shares, and below them each state's share with its 95% interval as a band.

    Beyond `MOST_STATES`, the rarer states are combined in one pale area without panels of their own.

    Args:
        labels: of the states, (K,).
        time: the binned variable, for the axis.
        text: a description of the shares.
    """
    order = np.argsort(-np.nanmean(shares.mean, axis=0), kind="stable")[:MOST_STATES]
    order = np.sort(order)
    rows = -(-len(order) // _COLUMNS)
    with style():
        figure = new_figure(13.0, 5.6 + 1.9 * rows)
        grid = GridSpec(2 + rows, _COLUMNS, figure, height_ratios=[3.4, 0.7] + [1.5] * rows)
        stack = figure.add_subplot(grid[0, :])
        _stack(stack, shares, order, labels)
        _lives(figure.add_subplot(grid[1, :], sharex=stack), shares, time)
        for place, state in enumerate(order.tolist()):
            panel = figure.add_subplot(grid[2 + place // _COLUMNS, place % _COLUMNS])
            _panel(panel, shares, state, int(labels[state]), _q_text(association, state))
            panel.set_xlabel(time)
        figure.suptitle(title(heading, text, 115))
    return figure


def _q_text(association: Association, state: int) -> str:
    return f"q = {association.state_q[state]:.2g}"


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


def _lives(axes: Axes, shares: Shares, time: str) -> None:
    axes.stairs(shares.lives, shares.edges, fill=True, color="#999999")
    axes.set(ylabel="lives", xlabel=time, ylim=(0, max(1, shares.lives.max()) * 1.05))
    axes.yaxis.set_major_locator(whole_ticks())


def _panel(axes: Axes, shares: Shares, state: int, label: int, description: str) -> None:
    mean, low, high = (series[:, state] for series in (shares.mean, shares.low, shares.high))
    axes.stairs(high, shares.edges, baseline=low, fill=True, color=label_colour(label), alpha=0.45, linewidth=0)
    axes.stairs(mean, shares.edges, baseline=None, color="#222222", linewidth=1.3)
    most = np.nanmax(np.concatenate([mean, high]), initial=0.0)
    axes.set(ylim=(0, max(1e-3, min(1.0, most * 1.1))), xlim=(shares.edges[0], shares.edges[-1]))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.yaxis.set_major_locator(few_ticks())
    axes.set_title(f"{label_name(label)}, {description}", fontsize=8.5)
