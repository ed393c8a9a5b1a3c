"""The states whose short trajectories are behaviours: those of one layer, or of several layers side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from representation.dynamics.decompositions import Scale
from representation.dynamics.tracks import Tracks
from user_error import UserError

STEPS = (2, 4, 6)
"""Ticks over which differences of the state are taken."""


@dataclass(frozen=True, eq=False)
class BehaviourSpace:
    """The units of one layer, or of several layers side by side, U in all.

    Attributes:
        layers: names.
        units: of each layer.
        mean: of each unit, (U,).
        spread: what deviations from it are divided by, (U,): the unit's standard deviation; with several layers, times
            the root of the variance of the layer's trajectories in z-scores, so that those of each layer vary by 1 in
            all, however many units it has and however fast it moves.
    """

    layers: tuple[str, ...]
    units: tuple[int, ...]
    mean: np.ndarray
    spread: np.ndarray

    @property
    def name(self) -> str:
        """Names of all layers in one."""
        return "+".join(self.layers)

    def points(self, activations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the states of records in this space, (B, U), from the activations of each layer, (B, units)."""
        together = np.concatenate([activations[name] for name in self.layers], axis=1)
        return (together - self.mean) / self.spread

    def by_layer(self, of_units: np.ndarray) -> np.ndarray:
        """Add up a number of each column of trajectories, (4 U,), over those of each layer, (layers,)."""
        own = of_units.reshape(-1, sum(self.units)).sum(axis=0)  # (U,)
        return np.array([each.sum() for each in np.split(own, np.cumsum(self.units)[:-1])])


def space_of(tracks: Tracks, layers: Sequence[str], scales: Mapping[str, Scale]) -> BehaviourSpace:
    """Put layers side by side.

    Args:
        tracks: recorded lives, with the activations of these layers.
        layers: names.
        scales: of layers whose z-scores are known; those of the others are measured over the tracks.

    Raises:
        UserError: a layer never changes.
    """
    means, spreads = [], []
    for name in layers:
        activations = tracks.records.activations[name]
        scale = scales[name] if name in scales else Scale.of(activations)
        moving = trajectories(tracks, scale.z(activations))[1]
        variance = float(moving.var(axis=0).sum())
        if not variance > 0:
            raise UserError(f"{name} is the same in all ticks: it has no behaviours")
        means.append(scale.mean)
        spreads.append(scale.spread * (np.sqrt(variance) if len(layers) > 1 else 1.0))
    units = tuple(len(each) for each in means)
    return BehaviourSpace(tuple(layers), units, np.concatenate(means), np.concatenate(spreads))


def trajectories(tracks: Tracks, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each state beside its differences from those 2, 4 and 6 ticks before.

    Args:
        tracks: recorded lives.
        points: scaled states of each record, (B, U).

    Returns:
        The records with `max(STEPS)` ticks before them, (n,), and their trajectories, (n, 4 U).
    """
    records = tracks.with_ticks_around(max(STEPS), 0)
    parts = [points[records], *(points[records] - points[tracks.ahead(records, -step)] for step in STEPS)]
    return records, np.concatenate(parts, axis=1)
