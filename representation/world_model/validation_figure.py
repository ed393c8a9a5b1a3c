"""The figure of a validation: changes as predicted, replayed, simulated and in the game, edit by edit."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from activation_store.files import atomic_path
from analysis.figures.style import cluster_colour, new_figure, style, wrapped
from representation.world_model.intervened import QUANTITIES
from representation.world_model.validation import Validated

_SERIES = {
    "real": "in the game", "simulated": "simulated", "replayed": "in full on recorded ticks",
    "predicted": "gradient on recorded ticks",
}  # fmt: skip
_MARKERS = ("o", "s", "D", "^")
_COLUMNS = 3
_INCHES_AN_EDIT, _INCHES_A_PANEL, _WIDTH = 0.45, 0.8, 12.0
_LETTERS = 28


def draw_validation(rows: Sequence[Validated], target: Path) -> None:
    """Draw a panel for each quantity, with a line for each edit, and 95% intervals."""
    edits = list(dict.fromkeys((row.run, row.edit, row.made) for row in rows))
    panels = -(-len(QUANTITIES) // _COLUMNS)
    with style():
        figure = new_figure(_WIDTH, panels * (_INCHES_A_PANEL + _INCHES_AN_EDIT * len(edits)) + 0.5)
        grid = figure.subplots(panels, _COLUMNS, squeeze=False, sharey=True)
        for axes, quantity in zip(grid.flat, QUANTITIES, strict=False):
            _panel(axes, [row for row in rows if row.quantity == quantity])
            axes.set_title(quantity)
        for axes in grid[:, 0]:
            labels = [wrapped(edit if made != "once" else f"{edit} (once)", _LETTERS) for _, edit, made in edits]
            axes.set_yticks(range(len(edits)), labels, fontsize=7)
            axes.set_ylim(len(edits) - 0.5, -0.5)
        for axes in grid[-1]:
            axes.set_xlabel("change at once, in play")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(_SERIES))
        with atomic_path(target) as temporary:
            figure.savefig(temporary, format="png")


def _panel(axes: Axes, rows: Sequence[Validated]) -> None:
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    places = np.arange(len(rows))
    for number, (side, label) in enumerate(_SERIES.items()):
        values, low, high = (np.array([getattr(row, f"{side}{end}") for row in rows]) for end in ("", "_low", "_high"))
        # Lists, since of a single edit matplotlib takes an array for a number.
        arms = [np.nan_to_num(np.maximum(each, 0)).tolist() for each in (values - low, high - values)]
        axes.errorbar(
            values, places + 0.18 * (number - 1.5), xerr=arms, linestyle="none", marker=_MARKERS[number], markersize=4,
            linewidth=1, color="0.15" if side == "real" else cluster_colour(number - 1), label=label,
        )  # fmt: skip
