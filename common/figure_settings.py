"""Settings of figures: those of matplotlib itself, whatever the user has set, and what a figure changes."""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

_OF_THE_PROCESS = {"backend", "backend_fallback", "date.epoch", "interactive"}


def draw_without_screen() -> None:
    """Let matplotlib, once it is imported, use Agg: importing it fails with the backend of a notebook."""
    os.environ["MPLBACKEND"] = "agg"


@contextmanager
def figure_settings(changes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Within the block, or the function that it decorates, draw with matplotlib's defaults and some changes."""
    import matplotlib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", matplotlib.MatplotlibDeprecationWarning)
        defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if name not in _OF_THE_PROCESS}
        context = matplotlib.rc_context({**defaults, **(changes or {})})
    with context:
        yield


def save_figure(figure: "Figure", file: "BinaryIO | Path", dots_an_inch: int) -> None:
    """Write a figure as PNG with matplotlib's defaults; much of a figure is made only when it is drawn.

    It is drawn once. `Figure.savefig` draws a figure with a layout twice, and only the first time sets the layout.
    Afterwards the figure has this resolution, and no window.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with figure_settings():
        figure.set_dpi(dots_an_inch)
        FigureCanvasAgg(figure).print_png(file)
