"""How stable the components of Gaussians of the same covariance and autocorrelation are."""

from collections.abc import Callable

import numpy as np

from analysis.dynamics.behaviours import resampled_lives
from analysis.dynamics.decompositions import Decomposition, Kind, decompose
from analysis.lives import Lives
from analysis.statistics.inference import LEVEL
from analysis.statistics.surrogate import above_floor, gaussian_surrogate

SURROGATES = 20
"""With fewer, a single component could not have q <= 0.05 whatever its stability."""
_REFITS = 3
"""Refits of each surrogate. Means over fewer refits scatter more than those of the states, so the floor's upper end can
only be too high."""


def above_gaussians(
    decomposition: Decomposition, z: np.ndarray, lives: Lives, seed: int,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Compare the stability of components with those of Gaussians, in steps.

    Components that stand out take directions away from the others, which then have fewer to differ in and agree more
    from refit to refit than those of a whole Gaussian. So of the components that exceed the Gaussians, the more stable
    half is taken as given, and the others are compared again, with Gaussians of what is left. A component's q is its
    largest over these steps.

    Args:
        z: z-scores, (B, U).

    Returns:
        The stability of the components of whole Gaussians, (`SURROGATES`, K), and the q of each component, (K,).
    """
    floor = _of_gaussians(decomposition.kind, z, len(decomposition.stability), lives, seed, _part_of(progress, 1.0))
    q, left, steps = above_floor(decomposition.stability, floor), np.arange(len(decomposition.stability)), 1
    while len(standing := left[q[left] <= LEVEL]):
        by_stability = standing[np.argsort(-decomposition.stability[standing], kind="stable")]
        left = np.setdiff1d(left, by_stability[: (len(standing) + 1) // 2])
        if not len(left):
            break
        part = decomposition.scores[:, left] @ decomposition.axes.patterns[left]  # (B, U)
        theirs = _of_gaussians(decomposition.kind, part, len(left), lives, seed, _part_of(progress, 0.5**steps))
        q[left] = np.maximum(q[left], above_floor(decomposition.stability[left], theirs))
        steps += 1
    return floor, q


def _part_of(progress: Callable[[float], None], rest: float) -> Callable[[float], None]:
    """Return progress for the next step, which takes half of the rest, since how many steps there are is not known."""
    return lambda share: progress(1 - rest * (1 - share / 2))


def _of_gaussians(
    kind: Kind, z: np.ndarray, components: int, lives: Lives, seed: int, progress: Callable[[float], None]
) -> np.ndarray:
    """Return the stability of the components of Gaussian surrogates, (`SURROGATES`, K)."""
    stability = []
    for number in range(1, SURROGATES + 1):
        drawn = gaussian_surrogate(z, lives, np.random.default_rng([seed, 6, number]))
        resamples = resampled_lives(lives.index, _REFITS, seed + number)
        stability.append(decompose(kind, drawn, components, (seed + number) % 2**32, resamples).stability)
        progress(number / SURROGATES)
    return np.array(stability)
