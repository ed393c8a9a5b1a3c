"""Erasers of what can be read linearly about variables, and of random read-outs of the same variance."""

import numpy as np
import torch

from agent_zoo.state_edits import Eraser
from reinforcement_learning.interventions.linear_readings import JointMoments, Reading
from reinforcement_learning.interventions.random_directions import unit_of_variance
from reinforcement_learning.interventions.state_moments import StateMoments
from user_error import UserError

_UNCORRELATED = 1e-6  # correlations with variables below this are rounding


class NothingToErase(UserError):
    """A variable does not vary, so no read-out of it can be erased."""


def fitted_eraser(reading: Reading, moments: JointMoments, policy: str) -> Eraser:
    """Fit an eraser of variables by least-squares concept erasure (LEACE, Belrose et al. 2023).

    Of all affine edits after which no variable can be read linearly better than from a constant, it changes the states
    least, in the mean square, measured where they are white.

    Args:
        reading: layer and variables.
        moments: of the states that it is fitted to, and of the variables.
        policy: word for whose states these are, for the message.

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
    found = fitter.eraser
    used = found.proj_left.norm(dim=0) > 0
    return Eraser(reading.layer, found.proj_left[:, used].numpy(), found.proj_right[used].numpy(), states.mean)


def random_eraser(eraser: Eraser, states: StateMoments, random: np.random.Generator) -> Eraser:
    """Return an eraser of as many random read-outs, which takes as much variance from the states.

    Where the states are white, every read-out is a direction, and its erasure is the projection along it. The
    directions are random and orthogonal there; each takes the variance that one of the eraser's takes.

    Args:
        eraser: whose place it takes.
        states: that the eraser was fitted to.
        random: draws the directions.
    """
    covariance = states.covariance
    values, vectors = np.linalg.eigh(covariance)
    white = vectors / np.sqrt(values) @ vectors.T
    colour = vectors * np.sqrt(values) @ vectors.T
    free = np.eye(len(covariance))  # orthonormal columns: where directions can still be drawn
    found = []
    for taken in np.linalg.eigvalsh(eraser.left.T @ eraser.left)[::-1]:
        along = free @ unit_of_variance(free.T @ covariance @ free, float(taken), random)
        found.append(along)
        free = np.linalg.svd(np.array(found))[2][len(found) :].T
    directions = np.array(found).reshape(-1, len(covariance))
    return Eraser(eraser.layer, colour @ directions.T, directions @ white, states.mean)
