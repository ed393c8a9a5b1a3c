"""Readable scatter plots: markers where there is room, else small cells of many points; and the legend of clusters."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import NOISE_COLOUR, PANEL_COLOUR, VALUE_MAP, cluster_colour, cluster_marker
from analysis.labels import NOISE
from common.number_text import share_text

_ROOM = 2000
"""Points per square inch above which markers hide each other."""
_CELLS_AN_INCH = 50
_UNLABELLED = "#33475b"
_OPAQUE = 0.8
_FAINTEST_CELL = 0.35
_LOWEST_PERCENT, _HIGHEST_PERCENT = 1.0, 99.0
_MARGIN = 0.03
_FEW_VALUES, _FEWEST_CELLS = 20, 16


@dataclass(frozen=True)
class PointsPanel:
    """One scatter plot and its approximate size in inches, which decides how points are drawn."""

    axes: Axes
    width: float
    height: float

    def crowded(self, points: int) -> bool:
        """Return whether this many points are drawn as cells rather than markers."""
        return points > _ROOM * self.width * self.height

    def area(self, points: int) -> float:
        """Return a marker's area, in square points, at which this many markers do not overlap."""
        return float(np.clip(900 * self.width * self.height / max(points, 1), 1.2, 22.0))


def draw_clusters(panel: PointsPanel, points: np.ndarray, labels: np.ndarray | None) -> None:
    """Draw points, (B, 2), in their clusters' colours, noise in grey underneath; without labels, in one colour.

    In a crowded panel a cell has the colour of its most common cluster, since mixed colours could be mistaken for
    other clusters; the more points it holds, the more opaque it is.
    """
    clusters = 1 if labels is None else int(labels.max()) + 1
    colours = [_UNLABELLED] if labels is None else [cluster_colour(cluster) for cluster in range(clusters)]
    index = np.zeros(len(points), np.int64) if labels is None else labels
    if panel.crowded(len(points)):
        palette = np.array([to_rgb(colour) for colour in (NOISE_COLOUR, *colours)])
        cells = _Cells.of(panel, points)
        # By the rank of a cell's count among non-empty cells, so that all densities are visible.
        count = cells.sum(np.ones(len(points)))
        filled = np.sort(count[count > 0])
        shares = np.searchsorted(filled, count, side="right") / len(filled)
        opacity = np.where(count > 0, _FAINTEST_CELL + (1 - _FAINTEST_CELL) * shares, 0)
        cells.draw(panel.axes, np.dstack([palette[cells.commonest(index + 1)], opacity]))
        return
    area = panel.area(len(points))
    for cluster in range(-1, clusters):
        place = points[index == cluster]
        colour, marker = (NOISE_COLOUR, "o") if cluster < 0 else (colours[cluster], cluster_marker(cluster))
        panel.axes.scatter(place[:, 0], place[:, 1], s=area, color=colour, marker=marker, alpha=_OPAQUE, linewidths=0)


ValueScale = tuple[ScalarMappable, str, str]
"""For a colour bar: the colours, at which ends values exceed the limits, `neither`, `min`, `max` or `both`, and the
limits in words."""


def draw_values(panel: PointsPanel, points: np.ndarray, values: np.ndarray) -> ValueScale:
    """Draw points, (B, 2), coloured by value, the highest on top; in a crowded panel, draw cells coloured by mean.

    Colours span the 1st to the 99th percentile of what is drawn. The panel is grey, so that every colour is visible.
    """
    panel.axes.set_facecolor(PANEL_COLOUR)
    if panel.crowded(len(points)):
        cells = _Cells.of(panel, points)
        count = cells.sum(np.ones(len(points)))
        mean = cells.sum(values) / np.maximum(count, 1)
        scale = _scale_of(mean[count > 0])
        image = np.array(scale[0].to_rgba(mean))  # (rows, columns, 4)
        image[..., 3] = count > 0
        cells.draw(panel.axes, image)
        return scale
    order = np.argsort(values, kind="stable")
    scale = _scale_of(values)
    shades = to_rgba_array(scale[0].to_rgba(values[order]))
    panel.axes.scatter(points[order, 0], points[order, 1], s=panel.area(len(points)), color=shades, linewidths=0)
    return scale


def _scale_of(values: np.ndarray) -> ValueScale:
    """Return a scale that spans the values without outliers, or all values if that range is empty."""
    low, high = np.percentile(values, [_LOWEST_PERCENT, _HIGHEST_PERCENT])
    limits = f"{_LOWEST_PERCENT:g}st to {_HIGHEST_PERCENT:g}th percentile"
    if low == high:
        # With rare events both percentiles can be equal; the extremes still differ, unless the feature never changes.
        low, high = values.min(), values.max()
        limits = "lowest to highest"
    below, above = bool((values < low).any()), bool((values > high).any())
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    return (ScalarMappable(Normalize(low, high, clip=True), VALUE_MAP), extend[below, above], limits)


@dataclass(frozen=True, eq=False)
class _Cells:
    """The grid cell of each point, (B,); the grid's shape and its limits in data units."""

    cell: np.ndarray
    rows: int
    columns: int
    limits: tuple[float, float, float, float]

    @staticmethod
    def of(panel: PointsPanel, points: np.ndarray) -> "_Cells":
        """Sort points into cells of about 1/50 inch; cells are larger along an axis with few values."""
        column, columns, left, right = _binned(points[:, 0], int(panel.width * _CELLS_AN_INCH))
        row, rows, bottom, top = _binned(points[:, 1], int(panel.height * _CELLS_AN_INCH))
        return _Cells(row * columns + column, rows, columns, (left, right, bottom, top))

    def commonest(self, category: np.ndarray) -> np.ndarray:
        """Return the most common category of the points in each cell, the higher one on ties, (rows, columns)."""
        kinds = int(category.max()) + 1
        pairs, counts = np.unique(self.cell * kinds + category, return_counts=True)
        order = np.lexsort((counts, pairs // kinds))
        winners = np.zeros(self.rows * self.columns, np.int64)
        winners[pairs[order] // kinds] = pairs[order] % kinds  # the last assignment to a cell wins
        return winners.reshape(self.rows, self.columns)

    def sum(self, weights: np.ndarray) -> np.ndarray:
        """Sum the weights of the points in each cell, (rows, columns)."""
        return np.bincount(self.cell, weights, self.rows * self.columns).reshape(self.rows, self.columns)

    def draw(self, axes: Axes, image: np.ndarray) -> None:
        """Show an image of the cells, (rows, columns, 4)."""
        axes.imshow(image, extent=self.limits, origin="lower", aspect="auto", interpolation="nearest")
        left, right, bottom, top = self.limits
        # Not as fixed limits, which an equal aspect ratio would have to violate, with a warning.
        axes.set_xlim(left - _MARGIN * (right - left), right + _MARGIN * (right - left), auto=None)
        axes.set_ylim(bottom - _MARGIN * (top - bottom), top + _MARGIN * (top - bottom), auto=None)


def _binned(values: np.ndarray, cells: int) -> tuple[np.ndarray, int, float, float]:
    """Return each value's cell, (B,), the number of cells, and their lower and upper limits."""
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return np.full(len(values), cells // 2), cells, low - 0.5, low + 0.5
    place = (values - low) / (high - low)  # 0 to 1
    different = len(np.unique((place * (cells - 1)).round()))
    if different <= _FEW_VALUES:
        # Evenly spaced values, such as counts, fall in the middle of evenly spaced cells.
        gaps = different - 1
        cells = gaps * max(2, -(-_FEWEST_CELLS // gaps)) + 1
    half = (high - low) / (cells - 1) / 2
    return (place * (cells - 1)).round().astype(np.int64), cells, low - half, high + half


_ROWS = 28
_MOST_ENTRIES = 3 * _ROWS
_COLUMN_INCHES = 1.75


def legend_width(labels: np.ndarray | None, rows: int = _ROWS) -> float:
    """Return the width in inches of the legend of these clusters, 0 without any labels."""
    return 0 if labels is None else _COLUMN_INCHES * -(-len(_handles(labels, crowded=False)) // rows)


def add_cluster_legend(figure: Figure, labels: np.ndarray | None, *, crowded: bool, rows: int = _ROWS) -> None:
    """Add a legend of clusters at the right, if there are labels; if there are too many, only of the largest."""
    if labels is None:
        return
    handles = _handles(labels, crowded=crowded)
    columns = -(-len(handles) // rows)
    figure.legend(handles=handles, loc="outside right upper", ncols=columns, title="cluster (share of records)")


def _handles(labels: np.ndarray, *, crowded: bool) -> list[Line2D]:
    clusters = range(labels.max() + 1)
    named = clusters[: _MOST_ENTRIES - 2]
    shares = np.bincount(labels + 1, minlength=1) / len(labels)
    entries = [(cluster_colour(c), cluster_marker(c), f"{c} ({share_text(shares[c + 1])})") for c in named]
    if len(named) < len(clusters):
        entries.append(("none", "none", f"and {len(clusters) - len(named)} smaller"))
    entries.append((NOISE_COLOUR, "o", f"noise ({share_text(shares[NOISE + 1])})"))
    return [
        Line2D([], [], linestyle="none", marker="s" if crowded else marker, markersize=6, color=colour, label=text)
        for colour, marker, text in entries
    ]
