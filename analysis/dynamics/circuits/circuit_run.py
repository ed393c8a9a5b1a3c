"""A run of `analyze_dynamics.py --circuit`: lives from birth, the circuit in words, a table and a figure."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial

import numpy as np
import torch
from rich.console import Console
from torch.nn import functional

from activation_store.directions import Direction, read_directions
from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo
from agent_zoo.memories.lstm_memory import LSTM
from agent_zoo.observation import PackedObservation
from analysis.clusters.dataset import Step
from analysis.dynamics.circuits.circuit import Circuit, HeldIn, Share, find_circuit
from analysis.dynamics.circuits.figure import draw_circuit
from analysis.dynamics.memory_length import read_observations
from analysis.dynamics.settings import DynamicsSettings
from analysis.dynamics.tracks import Tracks, read_tracks
from analysis.dynamics.update import Update
from analysis.interventions.edits.state_edits import check_direction
from analysis.pages.summary.page import Section, command_of, summary_page
from analysis.recorded.recorded_observation import check_shows_everything, state_layers
from analysis.runs.run_folder import RunFolder
from analysis.tables import tab_separated
from common.progress_view import step
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
    check_direction(direction, "state", policy.layer_units, metadata.policy, metadata.checkpoint_sha256)
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
    lines = list(circuit_lines(circuit, policy, has_parts=bool(parts)))
    folder.save_figure(FIGURE, draw_circuit(circuit))
    folder.save_text("circuit.tsv", tab_separated(_rows(circuit)))
    folder.save_text("units.tsv", tab_separated([asdict(unit) for unit in circuit.units]))
    folder.save_text("heads.tsv", tab_separated([asdict(head) for head in circuit.heads]))
    folder.save_text("summary.txt", "\n".join(lines) + "\n")
    defaults = vars(DynamicsSettings(settings.dump))
    command = command_of("analyze_dynamics.py", asdict(settings), defaults)
    section = Section("What writes, keeps and reads it", lines, {FIGURE: _CAPTION})
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


def _rows(circuit: Circuit) -> list[dict[str, object]]:
    return [asdict(share) for share in (*circuit.shares, *circuit.inputs)]


def circuit_lines(circuit: Circuit, policy: RecurrentPolicy, *, has_parts: bool) -> Iterator[str]:
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
    yield f" Largest paths: {_listed(_largest(circuit.of('source and gate')))}."
    half, most = (_tick_of(circuit.of("tick"), share) for share in (0.5, 0.9))
    yield f" Half of it is there after tick {half}, and .9 after tick {most}, for good."
    yield f"Traced through hidden states to the end: {_listed(circuit.of('traced source'))}."
    half, most = (_tick_of(circuit.of("traced tick"), share) for share in (0.5, 0.9))
    yield f" What was read by tick {half} makes half of it, by tick {most} .9, for good."
    if not has_parts:
        yield (
            " The observation is divided into its parts only if the encoder ends in a linear layer and the dump was "
            "recorded with --fields Market,Task,ActionTargets."
        )
    yield ""
    yield f"Kept in: {'; '.join(map(_unit, circuit.units[:_MOST_LINES]))}."
    count = 1 + int(np.searchsorted(np.cumsum([unit.share for unit in circuit.units]), 0.8))
    yield f" {min(count, len(circuit.units))} of {len(circuit.units)} units hold .8 of it."
    yield ""
    yield "Read by heads: logits along with a standard deviation of the read-out, less the mean of the head."
    for head in circuit.strongest(2 * _MOST_LINES):
        yield (
            f" {head.head} {head.option}: {head.logit:+.3f} ({head.low:+.3f} to {head.high:+.3f}); as far along random "
            f"directions {head.random:.3f}"
        )


def _largest(shares: list[Share]) -> list[Share]:
    return sorted(shares, key=lambda share: -abs(share.share))[:_MOST_LINES]


def _listed(shares: list[Share]) -> str:
    return ", ".join(f"{share.part} {share.share:.2f} ({share.low:.2f} to {share.high:.2f})" for share in shares)


def _unit(unit: HeldIn) -> str:
    return (
        f"unit {unit.unit} {unit.share:.2f} ({unit.low:.2f} to {unit.high:.2f}), mean forget gate "
        f"{unit.forget_gate:.3f}, of its first tick {unit.kept:.2f} is left"
    )


def _tick_of(shares: list[Share], wanted: float) -> int:
    """Return the first tick from which on the sum of the shares stays at what is wanted, or above."""
    below = np.flatnonzero(np.cumsum([share.share for share in shares]) < wanted)
    return int(below[-1]) + 1 if len(below) else 0
