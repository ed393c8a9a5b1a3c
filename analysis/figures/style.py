"""A common style for all figures: colours that colour-blind readers can distinguish, and text that is never cut off."""

import colorsys
import re
import textwrap
from contextlib import AbstractContextManager

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from analysis.labels import NOISE
from common.figure_settings import figure_settings

NOISE_COLOUR = "#c4c4c4"
VALUE_MAP = "viridis"
PANEL_COLOUR = "#e8eaed"
"""Background of points coloured by value: both ends of `VALUE_MAP` stand out from it."""
EFFECT_MAP = "RdBu_r"

# Petroff 2021, "Accessible color sequences for data visualization", arXiv:2107.02270, without the two greys, which
# could be mistaken for noise.
_GREYS = {"#94a4a2", "#717581"}
_COLOURS = [colour for colour in map(to_hex, matplotlib.color_sequences["petroff10"]) if colour not in _GREYS]
_LIGHTNESS = (1.0, 0.62, 1.42)
"""Of the colours as they are, and of their dark and their light shades, as a multiple; above 1 darkness is divided."""
_CATEGORY_COLOURS = [*_COLOURS[:5], _COLOURS[7]]  # the two oranges would be hard to tell apart in one bar
CLUSTER_COLOURS = len(_COLOURS)
"""Colours before their shades, with another marker, follow."""
_MARGIN = 0.08
_LETTERS_AN_INCH = 10.5
"""Of headings."""
_MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">", "*")
_RC = {
    "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "axes.spines.top": False, "axes.spines.right": False,
    "figure.titlesize": 12, "legend.fontsize": 8, "legend.frameon": False,
}  # fmt: skip


def style() -> AbstractContextManager[None]:
    """Return a context in which figures use the common style, and none of the user's settings."""
    return figure_settings(_RC)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, size in inches, that adjusts its layout to its labels."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=_MARGIN, h_pad=_MARGIN))


def cluster_colour(cluster: int) -> str:
    """Return a cluster's colour; after eight come their dark shades, then their light ones, then the same again."""
    turn, place = divmod(cluster, len(_COLOURS))
    colour, times = _COLOURS[place], _LIGHTNESS[turn % len(_LIGHTNESS)]
    if times == 1:
        return colour
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    lightness = lightness * times if times < 1 else 1 - (1 - lightness) / times**2
    return to_hex(colorsys.hls_to_rgb(hue, lightness, saturation))


def label_colour(label: int) -> str:
    """Return the colour of a cluster, as in every figure of the analysis, or of noise."""
    return NOISE_COLOUR if label == NOISE else cluster_colour(label)


def cluster_marker(cluster: int) -> str:
    """Return a cluster's marker, another one after eight clusters."""
    return _MARKERS[(cluster // len(_COLOURS)) % len(_MARKERS)]


def category_colour(category: int) -> str:
    """Return the colour of one of the six categories of tasks."""
    return _CATEGORY_COLOURS[category]


def title(heading: str, text: str, width: int) -> str:
    """Return a heading and, on a new line, what the figure shows, wrapped to `width`; dollar signs are escaped."""
    return "\n".join(wrapped(part, width) for part in (heading, text))


def headed(figure: Figure, heading: str, text: str) -> None:
    """Put a heading, and below it what the figure shows, on top, in lines that are not wider than the figure."""
    figure.suptitle(title(heading, text, round(_LETTERS_AN_INCH * figure.get_figwidth())))


def wrapped(text: str, width: int) -> str:
    """Wrap a text to `width` characters; longer words, such as names of runs, break after underscores.

    Dollar signs are escaped, since matplotlib would parse text between two of them as a formula.
    """
    words = (part for word in text.split() for part in _parts(word, width))
    return textwrap.fill(" ".join(words), width).replace("$", r"\$")


def _parts(word: str, width: int) -> list[str]:
    parts = [""]
    for piece in re.findall(r"[^_-]*[_-]*", word) if len(word) > width else [word]:
        if parts[-1] and len(parts[-1] + piece) > width:
            parts.append("")
        parts[-1] += piece
    return parts


def few_ticks() -> MaxNLocator:
    """Return a locator for small colour bars."""
    return MaxNLocator(nbins=4)


def whole_ticks() -> MaxNLocator:
    """Return a locator of a few whole numbers, for counts on short axes."""
    return MaxNLocator(nbins=4, integer=True)


def few_ticks_on(axes: Axes) -> None:
    """Let both axes of a small panel have few ticks."""
    axes.xaxis.set_major_locator(few_ticks())
    axes.yaxis.set_major_locator(few_ticks())


def bare(axes: Axes) -> None:
    """Take away what cells of a table do not need: tick marks and a frame."""
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
