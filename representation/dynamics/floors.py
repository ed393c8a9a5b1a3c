"""How stable the components of Gaussians of the same covariance and autocorrelation are."""

from collections.abc import Callable

import numpy as np

from analysis.lives import Lives
from analysis.statistics.surrogate import gaussian_surrogate
from representation.dynamics.behaviours import resampled_lives
from representation.dynamics.decompositions import Kind, decompose

SURROGATES = 20
"""With fewer, a single component could not have q <= 0.05 whatever its stability."""
_REFITS = 3
"""Refits of each surrogate. Means over fewer refits scatter more than those of the states, so the floor's upper end can
only be too high."""


def component_floor(
    kind: Kind, z: np.ndarray, components: int, lives: Lives, seed: int,
    progress: Callable[[float], None] = lambda share: None,
) -> np.ndarray:  # fmt: skip
    """Return the stability of the components of Gaussian surrogates, (`SURROGATES`, K).

    Args:
        kind: of the components.
        z: z-scores, (B, U).
        components: how many, K.
        lives: of the records.
        seed: of surrogates and fits.
        progress: called with the share done, from 0 to 1.
    """
    found = []
    for number in range(1, SURROGATES + 1):
        drawn = gaussian_surrogate(z, lives, np.random.default_rng([seed, 6, number]))
        resamples = resampled_lives(lives.index, _REFITS, seed + number)
        found.append(decompose(kind, drawn, components, (seed + number) % 2**32, resamples).stability)
        progress(number / SURROGATES)
    return np.array(found)
