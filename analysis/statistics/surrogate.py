"""Gaussians of the same covariance and autocorrelation as recorded states: what they reach, a stability must exceed."""

import numpy as np

from analysis.lives import Lives
from analysis.statistics.inference import false_discovery

_COLUMNS = 16
"""Columns that are transformed at a time, so that their spectra take little memory."""


def gaussian_surrogate(values: np.ndarray, lives: Lives, rng: np.random.Generator) -> np.ndarray:
    """Draw states that have the covariance and the autocorrelation of recorded ones, and nothing else of them.

    The lives are laid end to end in random order, the Fourier phases of this series are replaced by random ones, the
    same for all units, and it is cut into lives again (Prichard and Theiler 1994, "Generating surrogate data for time
    series with several simultaneously measured variables"). Each state then is a sum over all recorded ones, so it is
    close to Gaussian. Means and covariances are kept exactly, and so are the auto- and cross-correlations of the series
    end to end. Those within lives fall short by the share of neighbours that belong to two lives: at a lag of h records
    about h in the mean length of a life. Values are (B, U) of any real type; drawn are (B, U) float32 if they are, else
    float64, in the same order.
    """
    laid = _end_to_end(lives, rng)
    count = len(laid)
    angles = rng.uniform(0, 2 * np.pi, count // 2 + 1)
    angles[0] = 0.0  # the mean
    if count % 2 == 0:
        angles[-1] = 0.0  # the highest frequency of an even number of records has no phase
    turned = np.exp(1j * angles)
    drawn = np.empty(values.shape, np.float32 if values.dtype == np.float32 else np.float64)
    for start in range(0, values.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        series = np.ascontiguousarray(values[laid, columns].T, np.float64)  # (columns, B)
        drawn[laid, columns] = np.fft.irfft(np.fft.rfft(series) * turned, count).T
    return drawn


def above_floor(values: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Return q of each value against those of surrogates: how often nothing would have come out as high.

    p is the rank of a value among those of all surrogates (Bates et al. 2023, "Testing for outliers with conformal
    p-values"); q corrects for all values (Benjamini and Hochberg 1995). With K values and S surrogates of K each, a
    single value can have q <= 0.05 only if S is at least 20. Values are (K,), NaN for one that is unknown; the floor
    has the same numbers of surrogates, in any shape. q is (K,) in (0, 1]; NaN where the value is, or where there is no
    surrogate.
    """
    known = np.sort(floor[np.isfinite(floor)])
    if not len(known):
        return np.full(len(values), np.nan)
    as_high = len(known) - np.searchsorted(known, values, side="left")
    return false_discovery(np.where(np.isfinite(values), (1 + as_high) / (1 + len(known)), np.nan))


def _end_to_end(lives: Lives, rng: np.random.Generator) -> np.ndarray:
    """Return the records life after life, the lives in random order, (B,) int64."""
    place = np.empty(len(lives), np.int64)
    place[rng.permutation(len(lives))] = np.arange(len(lives))
    return lives.order[np.argsort(place[lives.index_in_order], kind="stable")]
