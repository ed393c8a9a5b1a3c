"""Transitions between states and how long states last, compared with chance."""

import numpy as np
from matplotlib.artist import setp
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from analysis.figures.style import EFFECT_MAP, new_figure, style, title
from analysis.labels import label_name
from analysis.life.phases.transitions import Dwelling, Transitions
from analysis.life.strips_figure import label_colour

MOST_STATES = 14
_SIGNIFICANT = 0.05
_UNSURE = 0.25
"""Colour strength of transitions that may be due to chance."""

_STRONGEST = 3.0
"""Number of doublings or halvings relative to chance at which the colour scale ends."""

_INK = "#333333"
_FEWEST_TICKS = 20
"""Length in ticks of the longest visit below which the axis is labelled at more than powers of ten."""


def transitions_figure(
    transitions: Transitions, dwelling: Dwelling, labels: np.ndarray, heading: str, text: str
) -> Figure:
    """Draw which states follow each state, coloured by the ratio to chance given age, and how long states last.

    Only the `MOST_STATES` states with the most ticks are drawn.

    Args:
        labels: of the states, (K,).
        text: description of one step, for the title.
    """
    shown = np.sort(np.argsort(-dwelling.ticks, kind="stable")[:MOST_STATES])
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
    sure = np.nan_to_num(q, nan=1.0) < _SIGNIFICANT
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
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="next state", ylabel="state that is left")
    axes.set_title("where a state leads when it is left\n(bold, full colour: q < 0.05 given age)")
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.8, extend="both", label="ratio to chance given age (log scale)")
    ticks = np.arange(-_STRONGEST, _STRONGEST + 1)
    bar.set_ticks(ticks.tolist(), labels=[_times(tick) for tick in ticks.tolist()])


def _times(doublings: float) -> str:
    return f"{2.0**doublings:g}×" if doublings >= 0 else f"1/{2.0**-doublings:g}×"


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
