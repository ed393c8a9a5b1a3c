"""Erasers of what can be read linearly about variables."""

import numpy as np
import torch

from analysis.interventions.edits.linear_readings import JointMoments, Reading
from analysis.interventions.edits.state_edits import Eraser
from common.user_error import UserError

_UNCORRELATED = 1e-6  # correlations with variables below this are rounding


class NothingToErase(UserError):
    """A variable does not vary, so no read-out of it can be erased."""


def fitted_eraser(reading: Reading, moments: JointMoments, policy: str) -> Eraser:
    """Fit an eraser of variables by least-squares concept erasure (LEACE, Belrose et al. 2023).

    Of all affine edits after which no variable can be read linearly better than from a constant, it changes the states
    least, in the mean square, measured where they are white.

    Args:
        moments: of the states that it is fitted to, and of the variables.

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
