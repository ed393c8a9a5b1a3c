"""Mean and covariance of a layer's unedited states, and how far edited states are from them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_SHRINKAGE = 1e-3  # of the covariance towards a multiple of the identity, so that it can be inverted


@dataclass(frozen=True, eq=False)
class StateMoments:
    """Sums over the states of one layer; sums of several groups of episodes add up.

    Attributes:
        count: number of states.
        total: their sum, (units,) float64.
        squares: the sum of their outer products, (units, units) float64.
    """

    count: int
    total: np.ndarray
    squares: np.ndarray

    @staticmethod
    def empty(units: int) -> "StateMoments":
        """Return the sums over no states."""
        return StateMoments(0, np.zeros(units), np.zeros((units, units)))

    @staticmethod
    def of(states: np.ndarray) -> "StateMoments":
        """Return the sums over some states, (B, units)."""
        wide = states.astype(np.float64)
        return StateMoments(len(wide), wide.sum(axis=0), wide.T @ wide)

    def __add__(self, other: "StateMoments") -> "StateMoments":
        return StateMoments(self.count + other.count, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> np.ndarray:
        """Mean state, (units,)."""
        return self.total / self.count

    @property
    def covariance(self) -> np.ndarray:
        """Covariance, slightly shrunk so that it has an inverse, (units, units)."""
        covariance = self.squares / self.count - np.outer(self.mean, self.mean)
        units = len(covariance)
        return (1 - _SHRINKAGE) * covariance + _SHRINKAGE * np.trace(covariance) / units * np.eye(units)


@dataclass(frozen=True, eq=False)
class Distances:
    """Mahalanobis distances from a layer's unedited states, divided by their root mean square for those states.

    Attributes:
        mean: of the unedited states, (units,).
        whitening: (units, units).
    """

    mean: np.ndarray
    whitening: np.ndarray

    @staticmethod
    def of(moments: StateMoments) -> "Distances":
        """Prepare to measure."""
        values, vectors = np.linalg.eigh(moments.covariance)
        return Distances(moments.mean, vectors / np.sqrt(values * len(values)))

    def measure(self, states: np.ndarray) -> np.ndarray:
        """Return the distance of each state, (B, units) -> (B,); unedited states have a root mean square of about 1."""
        return np.linalg.norm((states - self.mean) @ self.whitening, axis=1)


def to_arrays(moments: Mapping[str, StateMoments]) -> dict[str, np.ndarray]:
    """Return arrays to store, by name."""
    arrays: dict[str, np.ndarray] = {}
    for layer, sums in moments.items():
        arrays |= {
            f"{layer}/count": np.array([sums.count], dtype=np.int64),
            f"{layer}/total": sums.total,
            f"{layer}/squares": sums.squares,
        }
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, StateMoments]:
    """Restore what `to_arrays` returned."""
    layers = {name.rpartition("/")[0] for name in arrays}
    return {
        layer: StateMoments(
            int(arrays[f"{layer}/count"][0]), arrays[f"{layer}/total"], arrays[f"{layer}/squares"]
        )
        for layer in sorted(layers)
    }  # fmt: skip
