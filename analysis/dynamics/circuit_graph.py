"""The graph of a circuit, from what is read over gates and units to logits: drawn in figures, and in the panel."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pages draw graphs without torch
    from analysis.dynamics.circuit import Circuit, ReadBy

CIRCUIT_SCRIPT, GRAPH_FILE = "analyze_dynamics.py", "graph.json"
COLUMNS = ("read", "gates", "units", "read-out", "logits")
_THINNEST = 0.02
"""Share below which a line is left out."""
READ_OUT, OTHERS = "read-out", "all others"
_UNITS, _OPTIONS = 6, 6


@dataclass(frozen=True)
class Box:
    """A share of the read-out's variance, or what a logit gains along with a standard deviation of the read-out."""

    name: str
    value: float | None  # None: the read-out itself
    low: float | None = None  # low, high: 95% interval over lives, where it is known
    high: float | None = None
    random: float | None = None  # of a logit: as far along random directions


@dataclass(frozen=True)
class Line:
    """From a box to one of the next column."""

    column: int  # of the box where it starts
    start: str
    end: str
    share: float  # of the read-out's variance; of logits, .5 for the one that moves most


@dataclass(frozen=True)
class CircuitGraph:
    """Boxes by column, in the order of `COLUMNS`, and the lines between them."""

    direction: str
    layer: str
    ticks: int
    lives: int
    boxes: list[list[Box]]
    lines: list[Line]


def graph_of(circuit: "Circuit") -> CircuitGraph:
    """Return what to draw of a circuit: without gates and lines of hardly any share, and units past the sixth."""
    heads = circuit.strongest(_OPTIONS)
    units = circuit.units[:_UNITS]
    boxes = [
        [Box(share.part, share.share, share.low, share.high) for share in circuit.of("source")],
        [
            Box(share.part, share.share, share.low, share.high)
            for share in circuit.of("gate")
            if abs(share.share) >= _THINNEST / 2
        ],
        [
            *(Box(f"unit {unit.part}", unit.share, unit.low, unit.high) for unit in units),
            Box(OTHERS, 1 - sum(unit.share for unit in units)),
        ],
        [Box(READ_OUT, None)],
        [Box(_name(head), head.logit, head.low, head.high, head.random) for head in heads],
    ]
    names = [{box.name for box in column} for column in boxes]
    lines = [
        line
        for line in _lines(circuit, boxes[2], heads)
        if abs(line.share) >= _THINNEST and line.start in names[line.column] and line.end in names[line.column + 1]
    ]
    return CircuitGraph(
        circuit.direction.name, circuit.direction.layer, circuit.ticks, len(circuit.read_out), boxes, lines
    )


def _lines(circuit: "Circuit", units: list[Box], heads: "list[ReadBy]") -> Iterator[Line]:
    for column, kind in enumerate(("source and gate", "gate and unit")):
        for share in circuit.of(kind):
            start, end = share.part.split(" > ")
            yield Line(column, start, end, share.share)
    for unit in units:
        yield Line(2, unit.name, READ_OUT, unit.value or 0.0)
    most = max((abs(head.logit) for head in heads), default=0.0) or 1.0
    for head in heads:
        yield Line(3, READ_OUT, _name(head), 0.5 * head.logit / most)


def _name(head: "ReadBy") -> str:
    return f"{head.head.partition('.')[0]}: {head.option.removeprefix('option ')}"
