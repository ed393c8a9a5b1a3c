"""Scatters that stay readable: markers where there is room for them, else small cells shaded by what lies in them."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb, to_rgba_array

from analysis.figures.style import NOISE_COLOUR, VALUE_MAP, cluster_colour, cluster_marker

_ROOM = 600
"""Points in a square inch above which markers hide each other."""
_CELLS_AN_INCH = 50
_UNLABELLED = "#33475b"
_OPAQUE = 0.8
_FAINTEST_CELL = 0.35
_FAINTEST_VALUE, _STRONGEST_VALUE = 0.12, 0.9
_MARGIN = 0.03


@dataclass(frozen=True)
class Panel:
    """One scatter and roughly its size in inches, which decides how much can be drawn in it."""

    axes: Axes
    width: float
    height: float

    def crowded(self, points: int) -> bool:
        """Tell whether so many points are drawn as cells rather than markers."""
        return points > _ROOM * self.width * self.height

    def area(self, points: int) -> float:
        """Return a marker's area, in square points, at which so many markers stay apart."""
        return float(np.clip(600 * self.width * self.height / max(points, 1), 1.0, 22.0))


def draw_clusters(panel: Panel, points: np.ndarray, labels: np.ndarray | None) -> None:
    """Draw points in the colours of their clusters, noise in grey and below; in one colour without labels.

    In a crowded panel a cell has the mean colour of the points in it, and is more opaque the more there are.

    Args:
        panel: to draw in.
        points: (B, 2).
        labels: (B,) clusters from 0; negative for noise.
    """
    clusters = 1 if labels is None else int(labels.max()) + 1
    palette = [_UNLABELLED] if labels is None else [cluster_colour(cluster) for cluster in range(clusters)]
    index = np.zeros(len(points), np.int64) if labels is None else labels
    if panel.crowded(len(points)):
        colours = np.array([to_rgb(NOISE_COLOUR), *map(to_rgb, palette)])[np.maximum(index, -1) + 1]
        _draw_cells(panel, points, colours)
        return
    area = panel.area(len(points))
    for cluster in range(-1, clusters):
        place = points[index == cluster]
        colour, marker = (NOISE_COLOUR, "o") if cluster < 0 else (palette[cluster], cluster_marker(cluster))
        panel.axes.scatter(place[:, 0], place[:, 1], s=area, color=colour, marker=marker, alpha=_OPAQUE, linewidths=0)


def draw_values(panel: Panel, points: np.ndarray, values: np.ndarray, norm: Normalize) -> ScalarMappable:
    """Draw points coloured by value, the highest on top and most opaque; in a crowded panel, cells by their means.

    Args:
        panel: to draw in.
        points: (B, 2).
        values: (B,).
        norm: from values to 0 to 1.

    Returns:
        What a colour bar is made from.
    """
    colours = ScalarMappable(norm, VALUE_MAP)
    if panel.crowded(len(points)):
        cells = _Cells.of(panel, points)
        count = cells.sum(np.ones(len(points)))
        mean = cells.sum(values) / np.maximum(count, 1)
        image = np.array(colours.to_rgba(mean))  # (rows, columns, 4)
        image[..., 3] = np.where(count > 0, _strength(norm(mean)), 0)
        cells.draw(panel.axes, image)
        return colours
    order = np.argsort(values, kind="stable")
    shades = to_rgba_array(colours.to_rgba(values[order]))
    shades[:, 3] = _strength(norm(values[order]))
    panel.axes.scatter(points[order, 0], points[order, 1], s=panel.area(len(points)), color=shades, linewidths=0)
    return colours


def _strength(magnitude: np.ndarray) -> np.ndarray:
    return _FAINTEST_VALUE + (_STRONGEST_VALUE - _FAINTEST_VALUE) * np.asarray(magnitude)


def _draw_cells(panel: Panel, points: np.ndarray, colours: np.ndarray) -> None:
    cells = _Cells.of(panel, points)
    count = cells.sum(np.ones(len(points)))
    mixed = [cells.sum(channel) / np.maximum(count, 1) for channel in colours.T]
    cells.draw(panel.axes, np.dstack([*mixed, _opacity(count)]))


def _opacity(count: np.ndarray) -> np.ndarray:
    """Grow with the rank of a cell's count among cells that hold anything, so that every density stays visible."""
    filled = count[count > 0]
    shares = np.searchsorted(np.sort(filled), count, side="right") / len(filled)
    return np.where(count > 0, _FAINTEST_CELL + (1 - _FAINTEST_CELL) * shares, 0)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Which cell of a grid each point lies in, (B,); the grid's shape and its limits in data units."""

    cell: np.ndarray
    rows: int
    columns: int
    limits: tuple[float, float, float, float]

    @staticmethod
    def of(panel: Panel, points: np.ndarray) -> "_Cells":
        low, high = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
        margin = np.where(high > low, _MARGIN * (high - low), 0.5)
        low, high = low - margin, high + margin
        shape = np.array([int(panel.width * _CELLS_AN_INCH), int(panel.height * _CELLS_AN_INCH)])
        column, row = ((points - low) / (high - low) * shape).astype(np.int64).T
        limits = float(low[0]), float(high[0]), float(low[1]), float(high[1])
        return _Cells(row * shape[0] + column, int(shape[1]), int(shape[0]), limits)

    def sum(self, weights: np.ndarray) -> np.ndarray:
        """Add up weights of the points in each cell, (rows, columns)."""
        return np.bincount(self.cell, weights, self.rows * self.columns).reshape(self.rows, self.columns)

    def draw(self, axes: Axes, image: np.ndarray) -> None:
        """Show an image of the cells, (rows, columns, 4)."""
        axes.imshow(image, extent=self.limits, origin="lower", aspect="auto", interpolation="nearest")
