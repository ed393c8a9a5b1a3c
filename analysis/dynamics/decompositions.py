"""Linear decompositions of a layer's states: principal, independent and non-negative components.

Their stability is compared with that of components of Gaussians of the same covariance and autocorrelation.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from analysis.dynamics.neighbours import resampled_lives
from analysis.lives import Lives
from analysis.statistics.inference import LEVEL
from analysis.statistics.stability import above_floor, gaussian_surrogate

Kind = Literal["pca", "ica", "nmf"]

TITLES: dict[Kind, str] = {"pca": "principal", "ica": "independent", "nmf": "non-negative"}
PREFIXES: dict[Kind, str] = {"pca": "pc", "ica": "ic", "nmf": "nmf"}
MOST_FITTED: dict[str, int] = {"nmf": 3000}
"""Records that components of a kind are fitted to, refitted to and compared with Gaussians on, at most. The Gaussians
of non-negative components are some 240 fits."""
_ITERATIONS = 400


@dataclass(frozen=True, eq=False)
class Scale:
    """Z-scores of a layer: what is subtracted from a unit, and what it is divided by; units that never vary are 0."""

    mean: np.ndarray  # (U,) float64
    spread: np.ndarray  # standard deviations, (U,) float64; 1 for a unit that never varies

    @classmethod
    def of(cls, activations: np.ndarray) -> "Scale":
        """Measure it over records, (B, U)."""
        # After subtracting the first record, a unit that never varies is exactly 0.
        shifted = activations - activations[0].astype(np.float64)
        spread = shifted.std(axis=0)
        return cls(shifted.mean(axis=0) + activations[0], np.where(spread > 0, spread, 1.0))

    def z(self, activations: np.ndarray) -> np.ndarray:
        """Return z-scores, (B, U) float64."""
        return (activations - self.mean) / self.spread


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A decomposition fitted to B records."""

    kind: Kind
    patterns: np.ndarray  # what one unit of each component adds to the z-scores, (K, U); by decreasing share explained
    # read_outs: z-scores @ read_outs.T are the components, (K, U); for non-negative components, which no linear
    # read-out gives exactly, by least squares
    read_outs: np.ndarray
    explained: np.ndarray  # share of the z-scores' variance that is lost if a component is left out, (K,)
    total: float  # share of the z-scores' variance that all components explain together
    fidelity: np.ndarray  # R2 of each component's linear read-out, (K,): 1 for principal and independent components
    stability: np.ndarray  # mean |cosine| with the matching component of each refit to resampled lives, (K,)
    # floor: the same numbers of Gaussian surrogates of the states, (surrogates, K); see `above_gaussians`. Empty until
    # the components are compared with these, as the next.
    floor: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    stability_q: np.ndarray = field(default_factory=lambda: np.empty(0))  # of each stability against Gaussians, (K,)

    @property
    def stable(self) -> np.ndarray:
        """Which components are more stable than those of Gaussians, (K,) bool."""
        return self.stability_q <= LEVEL

    def scores(self, z: np.ndarray) -> np.ndarray:
        """Return the components of z-scores, (B, U) to (B, K) float64: linear read-outs for all kinds."""
        return z @ self.read_outs.T

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the components, such as `ic_1`."""
        return tuple(f"{PREFIXES[self.kind]}_{number}" for number in range(1, len(self.explained) + 1))


def decompose(
    kind: Kind, z: np.ndarray, components: int, seed: int, resamples: list[np.ndarray],
    progress: Callable[[float], None] = lambda share: None,
) -> Decomposition:  # fmt: skip
    """Fit a decomposition, and refit it to resampled lives.

    Args:
        z: z-scores, (B, U).
        components: how many, at most U.
        resamples: records of each bootstrap of lives.
    """
    scores, patterns, read_outs = _fit(kind, z, components, seed)
    sign = np.ones(len(patterns)) if kind == "nmf" else _skew_sign(scores)
    scores, patterns, read_outs = scores * sign, patterns * sign[:, None], read_outs * sign[:, None]
    explained, total = _explained(z, scores, patterns)
    order = np.argsort(-explained, kind="stable")
    scores, patterns, read_outs = scores[:, order], patterns[order], read_outs[order]
    linear = z @ read_outs.T  # (B, K)
    agreements = []
    for number, records in enumerate(resamples):
        again = _fit(kind, z[records], components, (seed + 1 + number) % 2**32)[1]
        agreements.append(matched(patterns, again))
        progress((number + 1) / len(resamples))
    stability = np.mean(agreements, axis=0) if agreements else np.full(components, np.nan)
    residual = ((scores - linear) ** 2).mean(axis=0) - ((scores - linear).mean(axis=0)) ** 2
    spread = scores.var(axis=0)
    fidelity = 1 - np.divide(residual, spread, out=np.ones(components), where=spread > 0)
    return Decomposition(kind, patterns, read_outs, explained[order], total, fidelity, stability)


def matched(patterns: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return |cosine| of each pattern, (K, U), with the one of `others` that is matched to it one to one, (K,).

    The matching has the largest sum of |cosines| (Hungarian method), so order and sign play no part.
    """
    from scipy.optimize import linear_sum_assignment

    cosine = np.abs(_unit(patterns) @ _unit(others).T)
    row, column = linear_sum_assignment(-cosine)
    best = np.zeros(len(patterns))
    best[row] = cosine[row, column]
    return best


Fit = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Scores, (B, K); patterns and read-outs, (K, U) each."""


def _fit(kind: Kind, z: np.ndarray, components: int, seed: int) -> Fit:
    fit = {"pca": _principal, "ica": _independent, "nmf": _non_negative}[kind]
    # Hundreds of fits to small matrices: on a busy machine, threads that wait for each other take ten times as long.
    with threadpool_limits(1, "blas"):
        return fit(z, components, seed)


def _principal(z: np.ndarray, components: int, seed: int) -> Fit:
    from sklearn.decomposition import PCA

    model = PCA(n_components=components, svd_solver="covariance_eigh").fit(z)
    spread = np.sqrt(np.maximum(model.explained_variance_, np.finfo(float).tiny))[:, None]
    read_outs = model.components_ / spread  # scores of variance 1
    return z @ read_outs.T, model.components_ * spread, read_outs


def _independent(z: np.ndarray, components: int, seed: int) -> Fit:
    """Independent components of the first principal components, whitened (FastICA; Hyvärinen 1999)."""
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    reduced, first_patterns, first_read_outs = _principal(z, components, seed)
    model = FastICA(whiten=False, random_state=seed, max_iter=_ITERATIONS, tol=1e-4)
    with warnings.catch_warnings():
        # What has not converged shows as low stability, which is reported.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(reduced - reduced.mean(axis=0))  # of resampled lives, the mean is not 0
    read_outs = model.components_ @ first_read_outs
    return z @ read_outs.T, np.linalg.pinv(model.components_).T @ first_patterns, read_outs


def _non_negative(z: np.ndarray, components: int, seed: int) -> Fit:
    """Non-negative components of the positive and the negative parts of z-scores side by side (Lee and Seung 1999)."""
    from sklearn.decomposition import NMF
    from sklearn.exceptions import ConvergenceWarning

    parts = np.concatenate([np.maximum(z, 0), np.maximum(-z, 0)], axis=1)  # (B, 2 U)
    model = NMF(components, init="nndsvda", random_state=seed, max_iter=_ITERATIONS // 2, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        activity = model.fit_transform(parts)  # (B, K)
    spread = np.where(activity.std(axis=0) > 0, activity.std(axis=0), 1.0)
    activity, loadings = activity / spread, model.components_ * spread[:, None]
    patterns = loadings[:, : z.shape[1]] - loadings[:, z.shape[1] :]
    read_outs = np.linalg.lstsq(z, activity - activity.mean(axis=0), rcond=None)[0].T
    return activity, patterns, read_outs


def _explained(z: np.ndarray, scores: np.ndarray, patterns: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the share of the variance lost without each component, (K,), and that of all of them together."""
    rest = z - scores @ patterns  # (B, U)
    everything = (z**2).sum()
    # |rest + s p|^2 - |rest|^2, summed over records, without a table of records and units for each component.
    lost = 2 * np.einsum("bk,bk->k", scores, rest @ patterns.T) + (scores**2).sum(axis=0) * (patterns**2).sum(axis=1)
    return lost / everything, float(1 - (rest**2).sum() / everything)


def _skew_sign(scores: np.ndarray) -> np.ndarray:
    """Return the sign that gives each component a long tail upwards, (K,)."""
    deviation = scores - scores.mean(axis=0)
    return np.where((deviation**3).sum(axis=0) < 0, -1.0, 1.0)


def _unit(patterns: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(patterns, axis=1, keepdims=True)
    return patterns / np.where(length > 0, length, 1)


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
    scores = decomposition.scores(z)
    while len(standing := left[q[left] <= LEVEL]):
        by_stability = standing[np.argsort(-decomposition.stability[standing], kind="stable")]
        left = np.setdiff1d(left, by_stability[: (len(standing) + 1) // 2])
        if not len(left):
            break
        part = scores[:, left] @ decomposition.patterns[left]  # (B, U)
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
