"""Read what a run of analyze_dynamics.py found, as far as pages show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from activation_store.directions import DIRECTIONS_FILE
from activation_store.schema import METADATA_FILE
from analysis.runs.cluster_run import BEHAVIOURS_FILE, SUMMARY_FILE, ClusterRun, read_cluster_run, recorded_dump
from analysis.runs.finished_files import FinishedFiles, RunDescription, open_finished
from common.array_files import arrays_of
from common.user_error import UserError

MOTION_FILE = "motion.npz"
STATES_FILE = "states.npz"
LEVEL = 0.05
_SCRIPT = "analyze_dynamics.py"


@dataclass(frozen=True)
class Component:
    """An independent component: its name, the share of the variance that it explains, and what it goes with.

    The most stable component of Gaussians is None where the run is older than it.
    """

    component: str
    explained: float
    stability: float
    features: str
    gaussian_highest: float | None = None


@dataclass(frozen=True)
class _Behaviours:
    sizes: list[int]
    agreement: list[float]
    differences: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    units: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Summary:
    """What is read of summary.json."""

    policy: str
    layer: str
    components: list[Component]
    behaviours: _Behaviours


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Components of a layer and how they follow from each other. K components, U units, B behaviours, L lags from 0."""

    path: Path
    dump: Path
    run: RunDescription
    policy: str
    layer: str  # a state of its memory
    components: tuple[Component, ...]  # K
    layer_units: int  # U
    behaviour_layers: tuple[str, ...]
    """Layers whose states and changes are behaviours together; most often the layer alone."""
    behaviour_units: tuple[int, ...]  # of each of them
    mean: np.ndarray  # of their units, layer after layer, (all units,)
    spread: np.ndarray  # what deviations from it are divided by, (all units,)
    behaviours: ClusterRun  # the behaviour of each tick of the lives that the run followed
    differences: tuple[str, ...]
    """How each behaviour differs from the others, in words, B; "" where the run does not say."""
    agreement: float  # adjusted Rand index with behaviours found again in resampled lives, mean
    r: np.ndarray  # Pearson's r of component i and component j some ticks earlier, (B, L, K i, K j); NaN where unknown
    significant: np.ndarray  # whether its q is below 0.05, (B, L, K, K)
    jacobian: np.ndarray
    """Mean over the behaviour's states of d component i / d component j some ticks earlier, (B, L, K i, K j); NaN where
    there are no states."""
    states: np.ndarray  # number of these states, (B,)

    @property
    def dump_sha256(self) -> str:
        """SHA-256 of the dump's metadata."""
        return self.run.input[METADATA_FILE]

    @property
    def units(self) -> dict[str, int]:
        """Layers that dumps must hold, and their units."""
        return {self.layer: self.layer_units, **dict(zip(self.behaviour_layers, self.behaviour_units, strict=True))}

    def points(self, activations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return scaled states whose trajectories are behaviours, (N, all units) float32, from activations by layer."""
        together = np.concatenate([activations[name] for name in self.behaviour_layers], axis=1)
        return ((together - self.mean) / self.spread).astype(np.float32)


def read_dynamics(path: Path, dump: Path | None) -> Dynamics:
    """Read a run of analyze_dynamics.py, verified to be complete and from its dump.

    Args:
        dump: folder of the dump, if it has been moved.

    Raises:
        UserError: the folder is no finished run of analyze_dynamics.py, a file is damaged, or the dump is missing or
            another one.
    """
    finished = open_finished(path, _SCRIPT)
    if MOTION_FILE not in finished or BEHAVIOURS_FILE not in finished:
        raise UserError(f"{path} holds no {MOTION_FILE}: give a run of {_SCRIPT}")
    run = finished.description()
    folder = recorded_dump(path, run, dump)
    behaviours = read_cluster_run(path, folder, BEHAVIOURS_FILE)
    _, summary = finished.read_json(SUMMARY_FILE, _Summary)
    layers = tuple(summary.behaviours.layers) or (summary.layer,)
    space = _space(finished, summary)
    units = tuple(summary.behaviours.units) or (len(space["mean"]),)
    motion = _arrays(finished, MOTION_FILE, "r", "q", "jacobian_records", "jacobians", "behaviour")
    if not _fits(space, motion) or len(layers) != len(units) or sum(units) != len(space["mean"]):
        raise UserError(f"the files of {path} do not match each other: run {_SCRIPT} again")
    components = [entry for entry in summary.components if entry.component.startswith("ic_")]
    jacobian, counts = _mean_jacobians(motion)
    dynamics = Dynamics(
        path, folder, run, summary.policy, summary.layer,
        tuple(components), _units(finished, components), layers, units, space["mean"], space["spread"], behaviours,
        tuple(summary.behaviours.differences) or ("",) * len(summary.behaviours.sizes),
        float(np.mean(summary.behaviours.agreement)), motion["r"],
        np.nan_to_num(motion["q"], nan=1.0) < LEVEL, jacobian, counts,
    )  # fmt: skip
    _check(dynamics)
    return dynamics


def _space(finished: FinishedFiles, summary: _Summary) -> dict[str, np.ndarray]:
    """Return mean and spread of the states whose trajectories are behaviours; earlier runs know one layer only."""
    if not summary.behaviours.layers:
        return _arrays(finished, STATES_FILE, "mean", "spread")
    arrays = _arrays(finished, MOTION_FILE, "behaviour_mean", "behaviour_spread")
    return {name.removeprefix("behaviour_"): array for name, array in arrays.items()}


def _arrays(finished: FinishedFiles, file: str, *names: str) -> dict[str, np.ndarray]:
    try:
        return arrays_of(finished.read(file), names)
    except ValueError as error:
        raise UserError(f"{finished.path / file} is not as {_SCRIPT} writes it ({error}): analyse again") from None


def _units(finished: FinishedFiles, components: Sequence[Component]) -> int:
    """Return the units that the components are directions of."""
    directions = finished.directions()
    units = {len(directions.named(entry.component).weight) for entry in components}
    if len(units) != 1:
        raise UserError(f"{finished.path} has no independent components of one layer: run {_SCRIPT} again")
    return units.pop()


def _mean_jacobians(motion: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Average the Jacobians of each behaviour's states; return them and the number of states."""
    label, jacobians = motion["behaviour"][motion["jacobian_records"]], motion["jacobians"]
    count = len(motion["r"])
    mean = np.full((count, *jacobians.shape[1:]), np.nan)
    for number in range(count):
        if (label == number).any():
            mean[number] = jacobians[label == number].mean(axis=0)
    return mean, np.bincount(label[label >= 0], minlength=count)


def _fits(space: dict[str, np.ndarray], motion: dict[str, np.ndarray]) -> bool:
    """Tell whether arrays have the types and shapes that analyze_dynamics.py gives them."""
    if any(array.dtype.kind not in "iuf" for array in (*space.values(), *motion.values())):
        return False
    r, jacobians, records, label = (motion[name] for name in ("r", "jacobians", "jacobian_records", "behaviour"))
    return (
        r.ndim == jacobians.ndim == 4
        and r.shape == motion["q"].shape
        and min(r.shape) > 0
        and jacobians.shape == (len(records), *r.shape[1:])
        and records.ndim == label.ndim == 1
        and records.dtype.kind == label.dtype.kind == "i"
        and bool(((records >= 0) & (records < len(label))).all())
        and bool((label < len(r)).all())
        and space["mean"].ndim == 1
        and space["mean"].shape == space["spread"].shape
        and bool((space["spread"] > 0).all())
    )


def _check(dynamics: Dynamics) -> None:
    """Refuse files that do not fit together."""
    count, components = len(dynamics.differences), len(dynamics.components)
    own = dict(zip(dynamics.behaviour_layers, dynamics.behaviour_units, strict=True)).get(dynamics.layer)
    shape = dynamics.r.shape
    if shape[0] != count or shape[2:] != (components, components):
        raise UserError(f"{dynamics.path / SUMMARY_FILE} and {MOTION_FILE} do not match: run {_SCRIPT} again")
    if own not in (None, dynamics.layer_units) or max(dynamics.behaviours.clusters, default=0) >= count:
        raise UserError(f"{dynamics.path / DIRECTIONS_FILE} and {STATES_FILE} do not match: run {_SCRIPT} again")
