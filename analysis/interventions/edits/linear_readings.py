"""Sums over states and variables: their moments, distances, what can be read linearly, and erasers of such readings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from analysis.interventions.edits.edit_options import feature_values
from analysis.interventions.edits.state_edits import Eraser
from common.user_error import UserError

_SHRINKAGE = 1e-3  # of the covariance towards a multiple of the identity, so that it can be inverted


@dataclass(frozen=True, eq=False)
class StateMoments:
    """Sums over the states of one layer; sums of several groups of episodes add up."""

    count: int
    total: np.ndarray  # their sum, (units,) float64
    squares: np.ndarray  # the sum of their outer products, (units, units) float64

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

    def __sub__(self, other: "StateMoments") -> "StateMoments":
        return StateMoments(self.count - other.count, self.total - other.total, self.squares - other.squares)

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


def leading_components(covariance: np.ndarray) -> np.ndarray:
    """Return the leading principal components that hold 99% of the variance, orthonormal, (K, units)."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    count = 1 + int(np.searchsorted(np.cumsum(values), 0.99 * values.sum()))
    return vectors[:, :count].T


Distance = Callable[[np.ndarray], np.ndarray]
"""Measures the distance of each state, (B, units) -> (B,)."""


def distance_from(moments: StateMoments) -> Distance:
    """Return the Mahalanobis distance from a layer's unedited states, whose root mean square for those is about 1."""
    values, vectors = np.linalg.eigh(moments.covariance)
    return partial(_distance, moments.mean, vectors / np.sqrt(values * len(values)))


def _distance(mean: np.ndarray, whitening: np.ndarray, states: np.ndarray) -> np.ndarray:
    return np.linalg.norm((states - mean) @ whitening, axis=1)


def to_arrays(moments: Mapping[str, StateMoments]) -> dict[str, np.ndarray]:
    """Return arrays to store, by name."""
    return {
        f"{layer}/{name}": np.atleast_1d(value) for layer, sums in moments.items() for name, value in vars(sums).items()
    }


def from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, StateMoments]:
    """Restore what `to_arrays` returned."""
    layers = {name.rpartition("/")[0] for name in arrays}
    return {
        layer: StateMoments(
            int(arrays[f"{layer}/count"][0]), arrays[f"{layer}/total"], arrays[f"{layer}/squares"]
        )
        for layer in sorted(layers)
    }  # fmt: skip


_STILL = 1e-10  # of its mean square: a variance below this is rounding
_FLAT = 1e-9  # of the largest: eigenvalues of the states' correlations below this are rounding


@dataclass(frozen=True)
class Reading:
    """Variables that are read from the states of a layer."""

    layer: str
    variables: tuple[str, ...]  # features as in `check_feature`, at least one

    @property
    def name(self) -> str:
        """Name of its sums, different from that of every layer."""
        return f"{self.layer} with {','.join(self.variables)}"

    def empty(self, units: int) -> StateMoments:
        """Return the sums over no states of a layer with this number of units."""
        return StateMoments.empty(units + len(self.variables))

    def sums(
        self, states: np.ndarray, rows: np.ndarray, columns: Sequence[str], tick: int | np.ndarray
    ) -> StateMoments:
        """Return the sums over states, (B, units), followed by the variables; other arguments as `feature_values`."""
        values = [feature_values(name, rows, columns, tick) for name in self.variables]
        return StateMoments.of(np.column_stack([states, *values]))  # (B, units + K)

    def of(self, sums: StateMoments) -> "JointMoments":
        """Return the moments that sums stand for."""
        return JointMoments(sums, len(sums.total) - len(self.variables))


@dataclass(frozen=True, eq=False)
class JointMoments:
    """Moments of states and of K variables of the same agents in the same ticks."""

    sums: StateMoments  # over states followed by variables, (units + K,) each
    units: int

    @property
    def states(self) -> StateMoments:
        """Sums over the states alone."""
        units = self.units
        return StateMoments(self.sums.count, self.sums.total[:units], self.sums.squares[:units, :units])

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of states and variables, not shrunk, (units + K, units + K)."""
        return self.sums.squares / self.sums.count - np.outer(self.sums.mean, self.sums.mean)

    @property
    def still(self) -> np.ndarray:
        """Which of states and variables do not vary, (units + K,) bool."""
        return self._still(self.covariance)

    def r_squared(self, left: np.ndarray | None = None) -> np.ndarray:
        """Return R2 of the least-squares read-out of each variable, (K,): the share of its variance that it explains.

        Args:
            left: what is left of centred states after an edit, x' = left x, (units, units); None for all.
        """
        covariance, units = self.covariance, self.units
        if left is not None:
            kept = np.eye(len(covariance))
            kept[:units, :units] = left
            covariance = kept @ covariance @ kept.T
        residual = _residual(covariance, self.read_outs(covariance))
        return _explained(residual, np.diag(covariance)[units:])

    def _still(self, covariance: np.ndarray) -> np.ndarray:
        return np.diag(covariance) <= _STILL * np.diag(self.sums.squares) / self.sums.count

    def read_outs(self, covariance: np.ndarray) -> np.ndarray:
        """Return the weights of the least-squares read-outs of all variables, (units, K), given `covariance`."""
        units = self.units
        moving = np.flatnonzero(~self._still(covariance)[:units])
        weights = np.zeros((units, len(covariance) - units))
        if len(moving):
            scale = np.sqrt(np.diag(covariance)[moving])
            values, vectors = np.linalg.eigh(covariance[np.ix_(moving, moving)] / np.outer(scale, scale))
            along = values > _FLAT * values[-1]
            scores = vectors[:, along].T @ (covariance[moving, units:] / scale[:, None])
            weights[moving] = vectors[:, along] @ (scores / values[along, None]) / scale[:, None]
        return weights


def held_out_r_squared(groups: Sequence[JointMoments]) -> np.ndarray | None:
    """Return R2 in states that the read-outs were not fitted to, (K,); below 0 if they are worse than the mean.

    The read-outs for each group are fitted to the states of all other groups. None with fewer than two groups that
    have states; NaN for a variable that does not vary within groups.
    """
    groups = [group for group in groups if group.sums.count]
    if len(groups) < 2:
        return None
    units = groups[0].units
    total = sum((group.sums for group in groups[1:]), groups[0].sums)
    residual, spread = np.zeros((2, len(total.total) - units))
    for group in groups:
        others = JointMoments(total - group.sums, units)
        away = group.sums.mean - others.sums.mean
        around = group.covariance + np.outer(away, away)  # mean squares about the mean of the other groups
        residual += group.sums.count * _residual(around, others.read_outs(others.covariance))
        spread += group.sums.count * np.where(group.still, 0.0, np.diag(group.covariance))[units:]
    return _explained(residual, spread)


def _residual(squares: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean square of each variable minus its read-out, given mean squares of states and variables, (K,)."""
    error = np.vstack([-weights, np.eye(weights.shape[1])])  # (units + K, K)
    return np.einsum("uk,uv,vk->k", error, squares, error, optimize=True)


def _explained(residual: np.ndarray, spread: np.ndarray) -> np.ndarray:
    return np.where(spread > 0, 1 - residual / np.where(spread > 0, spread, 1), np.nan)


_UNCORRELATED = 1e-6  # correlations with variables below this are rounding


class NothingToErase(UserError):
    """A variable does not vary, so no read-out of it can be erased."""


def fitted_eraser(reading: Reading, moments: JointMoments, policy: str) -> Eraser:
    """Fit an eraser of variables by least-squares concept erasure (LEACE, Belrose et al. 2023).

    Of all affine edits after which no variable can be read linearly better than from a constant, it changes the states
    least, in the mean square, measured where they are white.

    Raises:
        NothingToErase: a variable does not vary.
    """
    from concept_erasure import LeaceFitter

    units, states, covariance = moments.units, moments.states, moments.covariance
    for name, is_still in zip(reading.variables, moments.still[units:], strict=True):
        if is_still:
            raise NothingToErase(
                f"--variable {name}: it has the same value in all {states.count:,} unedited states of the {policy} "
                "policy, so there is nothing to erase"
            )
    # The library's own shrinkage can leave a covariance that has no inverse. Without shrinkage of states that hardly
    # vary along some directions, rounding would decide. The erasure is exact with any invertible covariance.
    # The trace needs no constraint, since removing a projection in white states never adds variance.
    fitter = LeaceFitter(
        units, len(reading.variables), constrain_cov_trace=False, shrinkage=False, svd_tol=_UNCORRELATED,
        dtype=torch.float64,
    )  # fmt: skip
    spread = np.sqrt(np.diag(covariance)[units:])
    fitter.n = torch.tensor(states.count)
    fitter.mean_x = torch.from_numpy(states.mean)
    fitter.sigma_xx_ = torch.from_numpy(states.covariance * (states.count - 1))
    fitter.sigma_xz_ = torch.from_numpy(covariance[:units, units:] / spread * (states.count - 1))
    fitted = fitter.eraser
    used = fitted.proj_left.norm(dim=0) > 0
    return Eraser(reading.layer, fitted.proj_left[:, used].numpy(), fitted.proj_right[used].numpy(), states.mean)
