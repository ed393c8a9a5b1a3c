"""Strips along a life's ticks: actions, events and clusters."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from analysis.figures.style import NOISE_COLOUR, cluster_colour
from analysis.labels import NOISE, label_name
from analysis.life.timeline import ClusterStrip
from common.number_text import share_text

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


def cluster_strip(axes: Axes, tick: np.ndarray, strip: ClusterStrip) -> None:
    """Draw the run's own labels in one row, and below it all labels, with propagated ones paler."""
    colours = np.array([to_rgb(label_colour(int(label))) for label in strip.label])  # (B, 3)
    paler = 1 - _PALE * (1 - colours)
    own = np.where(strip.exact[:, None], colours, 1.0)
    both = np.where(strip.exact[:, None], colours, paler)
    image = np.stack([np.stack([dense(tick, rows[:, c], 1.0) for c in range(3)], axis=1) for rows in (own, both)])
    _show(axes, image, tick[0], 1)
    _name_rows(axes, ["labels of the run", "with propagated ones (paler)"])
    axes.axhline(1, color="#dddddd", linewidth=0.6)
    counts_beside(axes, [f"{strip.exact.mean():.0%}", "100%"])


def cluster_handles(label: np.ndarray) -> list[Patch]:
    """Return legend entries for the labels of a life with their shares, most common first."""
    labels, counts = np.unique(label, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    named = [(int(labels[i]), counts[i] / len(label)) for i in order[:_LABELS_NAMED]]
    handles = [Patch(color=label_colour(one), label=f"{label_name(one)} ({share_text(share)})") for one, share in named]
    rest = len(labels) - len(named)
    return [*handles, Patch(color="none", label=f"and {rest} rarer")] if rest else handles


def label_colour(label: int) -> str:
    """Return the colour of a cluster, as in every figure of the analysis, or of noise."""
    return NOISE_COLOUR if label == NOISE else cluster_colour(label)


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
