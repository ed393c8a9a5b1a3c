"""The figure of a saliency through the world: how large influences are, lag by lag."""

from collections.abc import Sequence
from pathlib import Path

from activation_store.files import atomic_path
from analysis.figures.style import cluster_colour, new_figure, style
from representation.world_model.saliency import MEMORY, OWN_ROW, ByLag

_SIDES = {"whole": "through everything", "memory_alone": "world cut", "through_world": "through the world"}


def draw_by_lag(rows: Sequence[ByLag], heading: str, target: Path) -> None:
    """Draw lengths of derivatives for the memory and the own row, and the share that passes through the world."""
    with style():
        figure = new_figure(11, 3.6)
        panels = figure.subplots(1, 3)
        for place, of in enumerate((MEMORY, OWN_ROW)):
            mine = [row for row in rows if row.of == of]
            lags = [row.lag for row in mine]
            for number, (side, label) in enumerate(_SIDES.items()):
                values = [getattr(row, side) or float("nan") for row in mine]  # 0 has no logarithm
                panels[place].plot(lags, values, marker="o", markersize=3, color=cluster_colour(number), label=label)
            panels[place].set(title=f"{of}: size of derivatives", xlabel="ticks before", yscale="log")
            panels[2].plot(lags, [row.share for row in mine], marker="o", markersize=3, label=of)
            low, high = ([getattr(row, f"share_{end}") for row in mine] for end in ("low", "high"))
            panels[2].fill_between(lags, low, high, alpha=0.2)
        panels[2].set(title="share through the world", xlabel="ticks before", ylim=(0, 1))
        panels[0].legend()
        panels[2].legend()
        figure.suptitle(heading.replace("$", r"\$"))
        with atomic_path(target) as temporary:
            figure.savefig(temporary, format="png")
