"""The control task: a target that has the life's own rhythm and range, but belongs to another moment of it.

Hewitt and Liang 2019, "Designing and interpreting probes with control tasks": what a probe can learn of a control tells
how much of its score is the probe's own doing. Shifting a target around within each life keeps its autocorrelation and
all that is true of the life as a whole; what is left is how a state goes with its own moment.
"""

import numpy as np

from analysis.lives import Lives

_LEAST_SHIFT, _LARGEST_SHIFT = 0.25, 0.75
"""Shares of a life; a shift by little would leave a slow target as it was."""


def shifted_within_lives(values: np.ndarray, lives: Lives, seed: int) -> np.ndarray:
    """Shift each life's values around in a circle, each life by its own share: (B, T) to (B, T).

    Args:
        values: (B, T), each life in order of ticks where it is finite.
        lives: of these records.
        seed: of the shares.
    """
    shares = np.random.default_rng(seed).uniform(_LEAST_SHIFT, _LARGEST_SHIFT, len(lives))
    shift = np.round(shares * lives.lengths).astype(np.int64)
    shift = np.clip(shift, np.minimum(1, lives.lengths - 1), None)  # a life of two is shifted by one, of one by none
    start, length = (np.repeat(each, lives.lengths) for each in (lives.starts, lives.lengths))
    source = start + (np.arange(len(values)) - start + np.repeat(shift, lives.lengths)) % length
    found = np.empty_like(values)
    found[lives.order] = values[lives.order][source]
    return found
