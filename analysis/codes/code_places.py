"""Where on the map agents are in each code."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from analysis.figures.style import VALUE_MAP, new_figure, style, title

_COLUMNS = 4
_BINS = 32
_MOST = 16


def code_places(row: np.ndarray, col: np.ndarray, label: np.ndarray, names: Sequence[str], heading: str) -> Figure:
    """Draw, for each code, how much more often than elsewhere its ticks are at a place: shares over all codes' shares.

    Args:
        row: of each record, (B,).
        label: code of each, from 0.
        names: of the codes; at most 16 are drawn.
    """
    edges = [np.linspace(coordinate.min(), coordinate.max() + 1, _BINS + 1) for coordinate in (row, col)]
    everywhere, _, _ = np.histogram2d(row, col, edges)
    shown = min(len(names), _MOST)
    lines = -(-shown // _COLUMNS)
    with style():
        figure = new_figure(3.0 * _COLUMNS, 3.0 * lines + 0.8)
        panels = figure.subplots(lines, _COLUMNS, squeeze=False).ravel()
        for code, axes in enumerate(panels):
            if code >= shown:
                axes.set_axis_off()
                continue
            own, _, _ = np.histogram2d(row[label == code], col[label == code], edges)
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = np.where(everywhere > 0, (own / own.sum()) / (everywhere / everywhere.sum()), np.nan)
            image = axes.imshow(
                np.log2(np.clip(ratio, 0.25, 4)), cmap=VALUE_MAP, vmin=-2, vmax=2,
                extent=(edges[1][0], edges[1][-1], edges[0][-1], edges[0][0]),
            )  # fmt: skip
            axes.set(title=names[code], xticks=[], yticks=[])
        bar = figure.colorbar(image, ax=panels.tolist(), fraction=0.02, ticks=[-2, -1, 0, 1, 2])
        bar.ax.set_yticklabels(["1/4 or less", "1/2", "as often", "2", "4 or more"])
        figure.suptitle(
            title(heading, "share of a code's ticks at each place, over that of all ticks; north is up", 110)
        )
    return figure
