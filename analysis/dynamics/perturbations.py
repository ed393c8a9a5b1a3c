"""How long changes last in the memory: of components, and of edits that interventions followed in the game."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from activation_store.directions import Direction, read_directions
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from analysis.dynamics.jacobians import Probes
from analysis.dynamics.tracks import Tracks, Update, portions, tensor
from analysis.runs.finished_files import EFFECTS_FILE, StoredEstimate, open_finished
from analysis.statistics.inference import student_stretch
from analysis.statistics.resampling import Estimate, half_life, means_over_lives
from common.argument_checks import split
from common.user_error import UserError

_TAIL = 0.025
KINDS = {"cell": LSTM_CELL, "hidden": LSTM_HIDDEN}
"""The states whose distances are followed, by the name in an intervention's results, and how their layers begin."""
_EDITED_ONCE = "edited once"


@dataclass(frozen=True, eq=False)
class Lasting:
    """What is left of a change, on average over states."""

    left: np.ndarray  # share of the first value after 0, 1, ... ticks, (ticks + 1,).
    half_life: Estimate  # ticks until half is left; infinite if more is left at the end. With its interval over lives.


Change = Callable[[torch.Tensor], torch.Tensor]
"""Gives what an edit adds to states of its layer, (B, units) each, float64."""


@torch.no_grad()
def distances(
    update: Update, tracks: Tracks, records: np.ndarray, layer: str, changes: Sequence[Change],
    columns: Mapping[str, torch.Tensor], ticks: int, progress: Callable[[float], None],
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return how far some states are from where they would have been, after each of K changes of a layer.

    Inputs are held as recorded. A changed cell state changes the hidden state with it.

    Args:
        records: the changed ticks, (n,), each with so many ticks after it.
        columns: of the state vector, by a name for the states that they are.

    Returns:
        Euclidean distances in raw units by that name, (K, n, ticks + 1) each.
    """
    own, count = update.place(layer), len(changes)
    measured = {name: np.empty((count, len(records), ticks + 1)) for name in columns}
    for place, some in portions(records, progress):
        unchanged = tensor(tracks.state[some])
        edited = torch.cat([update.edited(layer, unchanged, change(unchanged[:, own])) for change in changes])
        for tick in range(ticks + 1):
            if tick:
                read = tensor(tracks.read[tracks.ahead(some, tick)])
                unchanged, edited = update(unchanged, read), update(edited, read.repeat(count, 1))
            for name, own_columns in columns.items():
                apart = edited[:, own_columns].unflatten(0, (count, -1)) - unchanged[:, own_columns]  # (K, B, columns)
                measured[name][:, place, tick] = apart.norm(dim=2).numpy()
    return measured


def lagged_jacobians(
    update: Update, tracks: Tracks, records: np.ndarray, probes: Probes, lags: int, progress: Callable[[float], None]
) -> np.ndarray:
    """Return how components change when a component changed some ticks before.

    Args:
        records: the earlier ticks, (n,), each with `lags` ticks after it in the same life.

    Returns:
        d component i at t + k / d component j at t, (n, lags + 1, K i, K j) float32; k from 0.
    """
    read_outs, patterns = tensor(probes.read_outs), tensor(probes.patterns)
    own = update.place(probes.layer)
    jacobians = np.empty((len(records), lags + 1, len(read_outs), len(read_outs)), np.float32)
    for place, some in portions(records, progress):
        state = tensor(tracks.state[some])
        tangents = update.changed(probes.layer, state, patterns)  # (K, B, S)
        for lag in range(lags + 1):
            if lag:
                later = tracks.ahead(some, lag)
                state, tangents = update.push(state, tensor(tracks.read[later]), tangents)
            moved = torch.einsum("jbu,iu->bij", tangents[:, :, own], read_outs)
            jacobians[place, lag] = moved.numpy()
    return jacobians


def lasting(values: np.ndarray, life: np.ndarray, seed: int) -> Lasting:
    """Average over states, and resample lives for the interval.

    Args:
        values: at n states after 0, 1, ... ticks, (n, ticks + 1).
        life: of each state, (n,).
    """
    mean, means, lives = values.mean(axis=0), means_over_lives(values, life, [seed, 7]), len(np.unique(life))
    left = mean / mean[0]
    if lives < 2:
        return Lasting(left, Estimate(float(half_life(mean[None])[0])))
    ends = np.quantile(means / means[:, :1], [_TAIL, 1 - _TAIL], axis=0)
    # Plain percentiles of few lives are too narrow. Half-lives themselves can be infinite, and not be stretched.
    curves = (left + student_stretch(lives, 1 - 2 * _TAIL) * (ends - left)).clip(min=0)
    return Lasting(left, Estimate(*map(float, half_life(np.stack([left, *curves])))))


@dataclass(frozen=True)
class _Persistence:
    policy: str
    what: str
    left: tuple[StoredEstimate, ...]
    half_life: StoredEstimate


@dataclass(frozen=True)
class _Effects:
    persistences: tuple[_Persistence, ...] = ()
    arms: tuple[dict[str, Any], ...] = field(default_factory=tuple)


@dataclass(frozen=True, eq=False)
class FollowedEdit:
    """One edit that an intervention followed. T ticks."""

    run: Path
    direction: Direction  # whose read-out was held in a single tick
    held_at: float  # what it was held at, in the read-out's unit
    dose: float  # that in standard deviations from the recorded mean
    measured: dict[str, Lasting]  # in the running game, T ticks, by the kind of state; the interval is over episodes
    # computed: the same edit at recorded states, inputs held as recorded, likewise; the interval is over lives
    computed: dict[str, Lasting] = field(default_factory=dict)

    def change(self, states: torch.Tensor) -> torch.Tensor:
        """Return what the edit adds to states of its layer, (B, units) float64: the shortest way to the value held."""
        weight = torch.from_numpy(self.direction.weight.astype(np.float64))
        short_of = self.held_at - (states @ weight + self.direction.bias)
        return short_of.unsqueeze(1) * weight / weight.square().sum()


def read_followed(folders: str, checkpoint_sha256: str | None) -> list[FollowedEdit]:
    """Read what the runs of `--interventions` measured.

    Args:
        folders: comma-separated, of intervene.py.

    Raises:
        UserError: a run is unfinished, is of another policy, followed nothing, or made another kind of edit.
    """
    return [_read(Path(name), checkpoint_sha256) for name in split(folders)]


def _read(folder: Path, checkpoint_sha256: str | None) -> FollowedEdit:
    finished = open_finished(folder, "intervene.py")
    run = finished.description()
    if run.input.get("policy") != checkpoint_sha256:
        raise UserError(f"{folder} edited another policy than this dump is of: give interventions on this one")
    wanted = "--interventions needs runs of intervene.py with --follow, and one edit that steers or collapses along one"
    arguments = run.arguments
    names = split(arguments.get("direction"))
    if arguments.get("edit") not in ("steer", "collapse") or len(names) != 1 or arguments.get("further"):
        raise UserError(f"{folder} made another edit: {wanted} direction")
    if arguments.get("change"):
        raise UserError(f"{folder} edited the change of a state (--change): {wanted} direction of the state itself")
    effects = finished.read_json(EFFECTS_FILE, _Effects)[1]
    if arguments.get("along", "weights") != "weights":
        raise UserError(f"{folder} moved states along their covariance (--along): {wanted} direction itself")
    if arguments.get("features"):
        raise UserError(f"{folder} edited a sparse feature: {wanted} direction")
    persistences = [kept for kept in effects.persistences if kept.policy == "trained" and kept.what in KINDS]
    if not persistences:
        raise UserError(f"{folder} followed no edit: play it again with --follow 32")
    file = finished.input_file(run, "directions")
    direction = read_directions(file).named(names[0])
    if not direction.layer.startswith(tuple(KINDS.values())):
        raise UserError(f"{folder} edited {direction.layer}, not a state of the memory: {wanted} direction of one")
    doses = [arm.get("dose") for arm in effects.arms if arm.get("kind") == _EDITED_ONCE]
    dose = float(next((value for value in doses if value is not None), 0.0))
    measured = {
        kept.what: Lasting(np.array([share.estimate().value for share in kept.left]), kept.half_life.estimate())
        for kept in persistences
    }
    return FollowedEdit(folder, direction, direction.mean + dose * direction.spread, dose, measured)


def compare(
    edits: list[FollowedEdit], update: Update, tracks: Tracks, records: np.ndarray, reach: int, seed: int,
    progress: Callable[[float], None],
) -> list[FollowedEdit]:  # fmt: skip
    """Make the same edits at recorded states, and add what is left of them.

    Args:
        records: the edited ticks, (n,), each with `reach` ticks after it.
    """
    everything, columns = torch.arange(update.size), {}
    for kind, prefix in KINDS.items():
        if places := [everything[update.place(name)] for name in update.states if name.startswith(prefix)]:
            columns[kind] = torch.cat(places)
    life, followed = tracks.lives.index[records], []
    for number, edit in enumerate(edits):
        layer = edit.direction.layer
        apart = distances(update, tracks, records, layer, [edit.change], columns, reach, lambda share: None)
        computed = {}
        for kind, (distance,) in apart.items():
            share = distance / np.where(distance[:, :1] > 0, distance[:, :1], 1)
            moved = (distance[:, 0] > 0) & np.isfinite(share).all(axis=1)
            if moved.any():  # an edit of the hidden state leaves the cell as it is in its own tick
                computed[kind] = lasting(share[moved], life[moved], seed)
        followed.append(replace(edit, computed=computed))
        progress((number + 1) / len(edits))
    return followed
