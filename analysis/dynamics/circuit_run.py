"""A run of `analyze_dynamics.py --circuit`: lives from birth, the circuit in words, a table and a figure."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from rich.console import Console
from torch.nn import functional

from activation_store.directions import Direction, read_directions
from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo
from agent_zoo.memory import LSTM
from agent_zoo.observation import PackedObservation
from analysis.dynamics.circuit import Circuit, Share, find_circuit
from analysis.dynamics.circuit_graph import COLUMNS, GRAPH_FILE, Box, CircuitGraph, graph_of
from analysis.dynamics.memory_length import read_observations
from analysis.dynamics.settings import DynamicsSettings
from analysis.dynamics.tracks import Tracks, Update, read_tracks
from analysis.figures.style import new_figure, style, title
from analysis.pages.pages import command_of, summary_page
from analysis.recorded.recorded_observation import check_shows_everything, state_layers
from analysis.runs.run_folder import RunFolder
from analysis.tables import tab_separated
from common.progress_view import Step, step
from common.user_error import UserError

FIGURE = "circuit.png"
_FEWEST_LIVES = 8
_CLOSE = 0.01
"""How far the read-out of a life that is played again may be from the recorded one, in standard deviations."""
_CAPTION = (
    "Shares of the read-out's variance over lives, from what the memory reads in all ticks, over the gates of the "
    "layer to its units, and the logits that move with the read-out. Wider lines are larger shares; red ones work "
    "against the others. Below: in which ticks it was written, by the layer's own gates and traced to the encoder's "
    "output, and what a tick adds and takes, in the half of the lives with the higher read-out less the other half."
)
_MOST_LINES = 5
_FOR, _AGAINST = "#3f90da", "#bd1f01"
_WIDEST = 16.0


def trace_circuit(
    settings: DynamicsSettings, metadata: DumpMetadata, policy: RecurrentPolicy, info: CheckpointInfo, folder: RunFolder
) -> None:
    """Find the circuit of a direction, and write what was found.

    Raises:
        UserError: the memory is no LSTM, the direction does not read a state of it, or too few lives last that long.
    """
    console = Console()
    show: Step = partial(step, console)
    memory = policy.memory
    if not isinstance(memory, LSTM):
        kind = f"has a memory of the kind {policy.cell}" if policy.layers else "is feed-forward"
        raise UserError(f"--circuit divides an LSTM's gates, but {metadata.policy} {kind}")
    assert settings.directions is not None
    direction = read_directions(settings.directions).named(settings.circuit)
    direction.check_policy(policy.layer_units, metadata.policy, metadata.checkpoint_sha256)
    if direction.layer not in state_layers(policy):
        raise UserError(f"--circuit {settings.circuit} reads {direction.layer}, which is no state of the memory")
    with show(f"reading {settings.lives} lives") as progress:
        tracks = read_tracks(
            settings.dump, metadata, Update(policy), direction.layer, settings.lives, settings.seed, progress,
            shortest=settings.reach,
        )  # fmt: skip
    records = _first_ticks(tracks, settings.reach)
    with show("reading what the encoder made of each part of the observation"):
        parts = _parts(settings, policy, info, tracks, records)
    with show(f"dividing {direction.name} after {settings.reach} ticks of {records.shape[1]} lives"):
        circuit = find_circuit(
            policy, copy.deepcopy(memory).double(), direction, tracks.read[records], parts, settings.seed
        )
    _check(circuit, tracks.layer[records[-1]], settings)
    lines = list(circuit_lines(circuit, has_parts=bool(parts)))
    folder.save_figure(FIGURE, draw_circuit(circuit))
    folder.save_json(GRAPH_FILE, asdict(graph_of(circuit)))
    folder.save_text("circuit.tsv", tab_separated([asdict(share) for share in (*circuit.shares, *circuit.inputs)]))
    folder.save_text("units.tsv", tab_separated(_unit_rows(circuit)))
    folder.save_text("heads.tsv", tab_separated([asdict(head) for head in circuit.heads]))
    folder.save_text("summary.txt", "\n".join(lines) + "\n")
    command = command_of("analyze_dynamics.py", asdict(settings), vars(DynamicsSettings(settings.dump)))
    section = ("What writes, keeps and reads it", lines, {FIGURE: _CAPTION})
    folder.save_text("report.html", summary_page(folder.path, f"Circuit of {direction.name}", [section], command))
    console.print("\n".join(lines), highlight=False, markup=False)


def _first_ticks(tracks: Tracks, ticks: int) -> np.ndarray:
    """Return the records of the first ticks of each life, (ticks, L).

    Raises:
        UserError: there are too few lives.
    """
    lives = tracks.lives
    if len(lives) < _FEWEST_LIVES:
        raise UserError(
            f"--reach is {ticks}: only {len(lives)} lives last so long, and {_FEWEST_LIVES} are needed; lower it or "
            "extract more episodes"
        )
    return lives.order[lives.starts + np.arange(ticks)[:, None]]


def _check(circuit: Circuit, recorded: np.ndarray, settings: DynamicsSettings) -> None:
    """Refuse lives whose read-out is not what the policy computes from birth."""
    if circuit.spread == 0:
        raise UserError(f"--circuit {settings.circuit} is the same in all lives after {settings.reach} ticks")
    apart = np.abs(recorded.astype(np.float64) @ circuit.direction.weight - circuit.read_out).max()
    if apart > _CLOSE * circuit.spread:
        raise UserError(
            f"{settings.dump} does not hold lives from birth: played again, the read-out is up to "
            f"{apart / circuit.spread:.2g} standard deviations from the recorded one; extract whole lives"
        )


def _parts(
    settings: DynamicsSettings, policy: RecurrentPolicy, info: CheckpointInfo, tracks: Tracks, records: np.ndarray
) -> Mapping[str, np.ndarray]:
    """Return what each part of the observation adds to the encoder's output, (T, L, units) each, where that is exact.

    That is where its last layer is linear, and the dump holds the observations; otherwise there are none.
    """
    if not policy.policy.linear_parts:
        return {}
    try:
        check_shows_everything(settings.dump, info.layout)
    except UserError:
        return {}
    observation = read_observations(settings.dump, tracks, records.ravel(), info.layout, policy)
    parts = {name: part.reshape(*records.shape, -1) for name, part in projected(policy, observation).items()}
    rest = tracks.read[records] - np.sum(list(parts.values()), axis=0)
    return parts if np.ptp(rest, axis=(0, 1)).max() < _CLOSE else {}


@torch.no_grad()
def projected(policy: RecurrentPolicy, observation: PackedObservation) -> dict[str, np.ndarray]:
    """Return what each part of the observation adds to the encoder's output, (B, units) each, by `linear_parts`."""
    names, layer = policy.policy.linear_parts, policy.policy.projection
    assert isinstance(layer, torch.nn.Linear)
    read: list[torch.Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    try:
        policy.encode(observation)
    finally:
        handle.remove()
    pairs = zip(read[0].chunk(len(names), dim=1), layer.weight.chunk(len(names), dim=1), strict=True)
    return {name: functional.linear(codes, weight).numpy() for name, (codes, weight) in zip(names, pairs, strict=True)}


def circuit_lines(circuit: Circuit, *, has_parts: bool) -> Iterator[str]:
    """Yield what was found, in words."""
    direction: Direction = circuit.direction
    yield (
        f"{direction.name} reads {direction.layer}. After {circuit.ticks} ticks of {len(circuit.read_out)} lives its "
        f"standard deviation is {circuit.spread:.3g}. All parts together are the read-out less that of a life with the "
        f"mean inputs, to {circuit.remainder:.1g}. Numbers are shares of its variance over lives (95% over lives)."
    )
    yield ""
    yield f"Written through the gates of the layer: {_listed(circuit.of('gate'))}."
    yield f" From: {_listed(circuit.of('source'))}."
    paths = sorted(circuit.of("source and gate"), key=lambda path: -abs(path.share))
    yield f" Largest paths: {_listed(paths[:_MOST_LINES])}."
    half, most = (_tick_of(circuit.of("tick"), share) for share in (0.5, 0.9))
    yield f" From tick {half} on, at least half of it is there; from tick {most} on, at least 90%."
    yield f"Traced through hidden states to the end: {_listed(circuit.of('traced source'))}."
    half, most = (_tick_of(circuit.of("traced tick"), share) for share in (0.5, 0.9))
    yield f" What was read up to tick {half} accounts for half of it, and up to tick {most} for 90%."
    if not has_parts:
        yield (
            " The observation is divided into its parts only if the encoder ends in a linear layer and the dump was "
            "recorded with --fields Market,Task,ActionTargets."
        )
    yield ""
    yield f"Kept in: {'; '.join(_unit(circuit, unit) for unit in circuit.units[:_MOST_LINES])}."
    count = 1 + int(np.searchsorted(np.cumsum([unit.share for unit in circuit.units]), 0.8))
    yield f" {min(count, len(circuit.units))} of {len(circuit.units)} units hold 80% of it."
    yield ""
    yield "Read by heads: change of each logit per standard deviation of the read-out, less the mean of the head."
    for head in circuit.strongest(2 * _MOST_LINES):
        yield (
            f" {head.head} {head.option}: {head.logit:+.3f} ({head.low:+.3f} to {head.high:+.3f}); as far along random "
            f"directions {head.random:.3f}"
        )


def _listed(shares: list[Share]) -> str:
    return ", ".join(f"{share.part} {share.share:.2f} ({share.low:.2f} to {share.high:.2f})" for share in shares)


def _unit(circuit: Circuit, unit: Share) -> str:
    forget, kept = circuit.forget[int(unit.part)], circuit.kept[int(unit.part)]
    return (
        f"unit {unit.part} {unit.share:.2f} ({unit.low:.2f} to {unit.high:.2f}), mean forget gate {forget:.3f}, "
        f"{kept:.2f} of what it held after the first tick is left"
    )


def _unit_rows(circuit: Circuit) -> list[dict[str, object]]:
    return [
        {"unit": unit.part, "share": unit.share, "low": unit.low, "high": unit.high,
         "forget_gate": float(circuit.forget[int(unit.part)]), "kept": float(circuit.kept[int(unit.part)])}
        for unit in circuit.units
    ]  # fmt: skip


def _tick_of(shares: list[Share], wanted: float) -> int:
    """Return the first tick from which on the sum of the shares stays at what is wanted, or above."""
    below = np.flatnonzero(np.cumsum([share.share for share in shares]) < wanted)
    return int(below[-1]) + 1 if len(below) else 0


def draw_circuit(circuit: Circuit) -> Figure:
    """Draw the graph over the ticks in which it was written."""
    with style():
        figure = new_figure(11.0, 8.0)
        grid = figure.add_gridspec(2, 2, height_ratios=(2.2, 1))
        _graph(figure.add_subplot(grid[0, :]), graph_of(circuit))
        _written(figure.add_subplot(grid[1, 0]), circuit)
        _flows(figure.add_subplot(grid[1, 1]), circuit)
        text = (
            f"What writes the read-out after {circuit.ticks} ticks, where it is kept, and what reads it; "
            f"{len(circuit.read_out)} lives"
        )
        figure.suptitle(title(f"{circuit.direction.name}, {circuit.direction.layer}", text, 110))
    return figure


def _graph(axes: Axes, graph: CircuitGraph) -> None:
    places = [_spread(column, number) for number, column in enumerate(graph.boxes)]
    for line in graph.lines:
        _line(axes, places[line.column][line.start], places[line.column + 1][line.end], line.share)
    framed = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "#9aa4af"}
    for column, spots in zip(graph.boxes, places, strict=True):
        for box in column:
            text = box.name if box.value is None else f"{box.name}\n{box.value:.2f}"
            if box.random is not None:
                text = f"{box.name}\n{box.value:+.2f} per SD"
            axes.text(*spots[box.name], text, ha="center", va="center", fontsize=7.5, bbox=framed, zorder=3)
    for number, name in enumerate(COLUMNS):
        axes.text(number, 1.06, name, ha="center", fontsize=9, color="#56606b")
    axes.set(xlim=(-0.45, len(COLUMNS) - 0.55), ylim=(-0.05, 1.12))
    axes.axis("off")


def _spread(column: Sequence[Box], number: int) -> dict[str, tuple[float, float]]:
    """Return the places of a column's boxes, from the top."""
    heights = 1 - (np.arange(len(column)) + 0.5) / max(len(column), 1)
    return {box.name: (float(number), float(height)) for box, height in zip(column, heights, strict=True)}


def _line(axes: Axes, start: tuple[float, float], end: tuple[float, float], share: float) -> None:
    (x, y), (to_x, to_y) = start, end
    middle = (x + to_x) / 2
    path = Path([(x, y), (middle, y), (middle, to_y), (to_x, to_y)], [Path.MOVETO, *[Path.CURVE4] * 3])
    colour = _FOR if share > 0 else _AGAINST
    width = _WIDEST * min(abs(share), 1.0)
    axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=width, alpha=0.5, zorder=1))


def _written(axes: Axes, circuit: Circuit) -> None:
    direct, traced = circuit.of("tick"), circuit.of("traced tick")
    axes.bar(range(len(direct)), [share.share for share in direct], color=_FOR, label="by the layer's own gates")
    shares = [share.share for share in traced]
    axes.step(range(len(traced)), shares, where="mid", color="black", linewidth=1, label="traced to the end")
    axes.axhline(0, color="#9aa4af", linewidth=0.6)
    axes.set(xlabel="ticks since birth", ylabel="share of the variance")
    axes.legend()


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
