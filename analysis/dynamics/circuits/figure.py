"""The circuit of a direction as a graph, and when it was written."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from analysis.dynamics.circuits.circuit import Circuit, ReadBy, Share
from analysis.figures.style import new_figure, style, title

_FOR, _AGAINST = "#3f90da", "#bd1f01"
_WIDEST = 16.0
_THINNEST = 0.02
"""Share below which a line is not drawn."""
_UNITS, _OPTIONS = 6, 6
_COLUMNS = ("read", "gates", "units", "read-out", "logits")


def draw_circuit(circuit: Circuit) -> Figure:
    """Draw the graph over the ticks in which it was written."""
    with style():
        figure = new_figure(11.0, 8.0)
        (above, left, right) = (figure.add_subplot(place) for place in _places(figure))
        _graph(above, circuit)
        _written(left, circuit)
        _flows(right, circuit)
        figure.suptitle(
            title(
                f"{circuit.direction.name}, {circuit.direction.layer}",
                f"What writes the read-out after {circuit.ticks} ticks, where it is kept, and what reads it; "
                f"{len(circuit.read_out)} lives",
                110,
            )
        )
    return figure


def _places(figure: Figure) -> Sequence:
    grid = figure.add_gridspec(2, 2, height_ratios=(2.2, 1))
    return grid[0, :], grid[1, 0], grid[1, 1]


def _graph(axes: Axes, circuit: Circuit) -> None:
    sources = {share.part: share for share in circuit.of("source")}
    gates = {share.part: share for share in circuit.of("gate") if abs(share.share) >= _THINNEST / 2}
    units = {f"unit {unit.unit}": unit.share for unit in circuit.units[:_UNITS]}
    heads = circuit.strongest(_OPTIONS)
    columns = (
        {name: f"{name}\n{share.share:.2f}" for name, share in sources.items()},
        {name: f"{name}\n{share.share:.2f}" for name, share in gates.items()},
        {name: f"{name}\n{share:.2f}" for name, share in units.items()} | _others(units),
        {"read-out": "read-out"},
        {_name(head): f"{head.head.partition('.')[0]}: {head.option}\n{head.logit:+.2f} a SD" for head in heads},
    )
    places = [_spread(column, number) for number, column in enumerate(columns)]
    for share in circuit.of("source and gate"):
        start, end = share.part.split(" > ")
        _line(axes, places[0], places[1], start, end, share.share)
    for share in circuit.of("gate and unit"):
        start, end = share.part.split(" > ")
        _line(axes, places[1], places[2], start, end, share.share)
    for name, part in units.items():
        _line(axes, places[2], places[3], name, "read-out", part)
    _line(axes, places[2], places[3], "others", "read-out", 1 - sum(units.values()))
    largest = max((abs(head.logit) for head in heads), default=0.0) or 1.0
    for head in heads:
        _line(axes, places[3], places[4], "read-out", _name(head), 0.5 * head.logit / largest)
    for column, spots in zip(columns, places, strict=True):
        for name, text in column.items():
            box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "#9aa4af"}
            axes.text(*spots[name], text, ha="center", va="center", fontsize=7.5, bbox=box, zorder=3)
    for number, name in enumerate(_COLUMNS):
        axes.text(number, 1.06, name, ha="center", fontsize=9, color="#56606b")
    axes.set(xlim=(-0.45, len(_COLUMNS) - 0.55), ylim=(-0.05, 1.12))
    axes.axis("off")


def _others(units: Mapping[str, float]) -> dict[str, str]:
    return {"others": f"all others\n{1 - sum(units.values()):.2f}"}


def _name(head: ReadBy) -> str:
    return f"{head.head} {head.option}"


def _spread(column: Mapping[str, str], number: int) -> dict[str, tuple[float, float]]:
    """Return the places of a column's boxes, from the top."""
    heights = 1 - (np.arange(len(column)) + 0.5) / max(len(column), 1)
    return {name: (float(number), float(height)) for name, height in zip(column, heights, strict=True)}


def _line(
    axes: Axes, left: Mapping[str, tuple[float, float]], right: Mapping[str, tuple[float, float]], start: str, end: str,
    share: float,
) -> None:  # fmt: skip
    if start not in left or end not in right or abs(share) < _THINNEST:
        return
    (x, y), (to_x, to_y) = left[start], right[end]
    middle = (x + to_x) / 2
    path = Path([(x, y), (middle, y), (middle, to_y), (to_x, to_y)], [Path.MOVETO, *[Path.CURVE4] * 3])
    colour = _FOR if share > 0 else _AGAINST
    width = _WIDEST * min(abs(share), 1.0)
    axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=width, alpha=0.5, zorder=1))


def _written(axes: Axes, circuit: Circuit) -> None:
    direct, traced = circuit.of("tick"), circuit.of("traced tick")
    axes.bar(np.arange(len(direct)), _values(direct), color=_FOR, label="by the layer's own gates")
    axes.step(
        np.arange(len(traced)), _values(traced), where="mid", color="black", linewidth=1, label="traced to the end"
    )
    axes.axhline(0, color="#9aa4af", linewidth=0.6)
    axes.set(xlabel="ticks since birth", ylabel="share of the variance")
    axes.legend()


def _values(shares: Sequence[Share]) -> np.ndarray:
    return np.array([share.share for share in shares])


def _flows(axes: Axes, circuit: Circuit) -> None:
    """What ticks add and take, in lives with a high read-out less those with a low one."""
    if not circuit.gained.size:
        axes.axis("off")
        return
    high = circuit.read_out > np.median(circuit.read_out)
    for flow, colour, label in ((circuit.gained, _FOR, "added"), (circuit.lost, _AGAINST, "taken by forgetting")):
        axes.plot(flow[:, high].mean(axis=1) - flow[:, ~high].mean(axis=1), color=colour, label=label)
    axes.axhline(0, color="#9aa4af", linewidth=0.6)
    axes.set(xlabel="ticks since birth", ylabel="read-out, in a tick")
    axes.legend()
