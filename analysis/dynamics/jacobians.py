"""Derivatives of later states by earlier ones along recorded lives, and what follows from them.

Time constants and slow modes follow; and whether components that follow each other also move each other: lagged
correlations beside Jacobians.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from analysis.dynamics.tracks import Tracks, tensor
from analysis.dynamics.update import Update
from analysis.statistics.circular_shift import shifted_correlations
from analysis.statistics.inference import LEVEL, false_discovery

AT_ONCE = 128
"""States whose derivatives are computed together."""

Progress = Callable[[float], None]
_SHUFFLES = 200


@dataclass(frozen=True, eq=False)
class Probes:
    """How components are read and moved. K components of a layer with U units."""

    layer: str  # a state of the memory
    read_outs: np.ndarray  # component = activations @ read_outs.T + constant, (K, U)
    patterns: np.ndarray  # what one unit of the component adds to the raw activations, (K, U)


def lagged_jacobians(
    update: Update, tracks: Tracks, records: np.ndarray, probes: Probes, lags: int, progress: Progress
) -> np.ndarray:
    """Return how components change when a component changed some ticks before.

    Args:
        records: the earlier ticks, (n,), each with `lags` ticks after it in the same life.

    Returns:
        d component i at t + k / d component j at t, (n, lags + 1, K i, K j) float32; k from 0.
    """
    read_outs, patterns = tensor(probes.read_outs), tensor(probes.patterns)
    own = update.place(probes.layer)
    jacobians = np.empty((len(records), lags + 1, len(read_outs), len(read_outs)), np.float32)
    for start in range(0, len(records), AT_ONCE):
        some = records[start : start + AT_ONCE]
        state = tensor(tracks.state[some])
        tangents = update.changed(probes.layer, state, patterns)  # (K, B, S)
        for lag in range(lags + 1):
            if lag:
                later = tracks.ahead(some, lag)
                state, tangents = update.push(state, tensor(tracks.read[later]), tangents)
            moved = torch.einsum("jbu,iu->bij", tangents[:, :, own], read_outs)
            jacobians[start : start + len(some), lag] = moved.numpy()
        progress(min(1.0, (start + AT_ONCE) / len(records)))
    return jacobians


def spectra(update: Update, tracks: Tracks, records: np.ndarray, progress: Progress) -> np.ndarray:
    """Return the eigenvalues of the one-tick Jacobian of the whole state at each record, (n, S) complex128.

    By decreasing modulus. Each record, a state before the tick, has a tick after it.
    """
    eigenvalues = np.empty((len(records), update.size), np.complex128)
    at_once = 32
    for start in range(0, len(records), at_once):
        some = records[start : start + at_once]
        jacobian = update.jacobian(tensor(tracks.state[some]), tensor(tracks.read[tracks.ahead(some, 1)]))
        values = torch.linalg.eigvals(jacobian).numpy()
        order = np.argsort(-np.abs(values), axis=1, kind="stable")
        eigenvalues[start : start + len(some)] = np.take_along_axis(values, order, axis=1)
        progress(min(1.0, (start + at_once) / len(records)))
    return eigenvalues


def layer_jacobian(update: Update, tracks: Tracks, records: np.ndarray, layer: str, progress: Progress) -> np.ndarray:
    """Return the mean over records of d layer at t + 1 / d layer at t, (U, U) float64.

    A changed cell state changes the hidden state with it (`Update.changed`). Each record has a tick after it.
    """
    own, total = update.place(layer), torch.zeros(update.units, update.units, dtype=torch.float64)
    units = torch.eye(update.units, dtype=torch.float64)
    for start in range(0, len(records), AT_ONCE):
        some = records[start : start + AT_ONCE]
        state = tensor(tracks.state[some])
        _, moved = update.push(state, tensor(tracks.read[tracks.ahead(some, 1)]), update.changed(layer, state, units))
        total += moved[:, :, own].sum(dim=1).T  # (units before, units after) transposed
        progress(min(1.0, (start + AT_ONCE) / len(records)))
    return (total / len(records)).numpy()


def time_constants(eigenvalues: np.ndarray) -> np.ndarray:
    """Return after how many ticks a mode falls to 1/e: -1 / ln |eigenvalue|; infinite from modulus 1 on."""
    modulus = np.abs(eigenvalues)
    with np.errstate(divide="ignore"):
        return np.where(modulus < 1, -1 / np.log(np.where(modulus < 1, modulus, 0.5)), np.inf)


def slow_modes(jacobian: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the slowest modes of a Jacobian, (U after, U before), slowest first, one of each conjugate pair.

    Returns:
        Eigenvalues, (M,) complex128, and real parts of the left eigenvectors, of length 1, (M, U): a mode's activity is
        states @ its eigenvector.
    """
    values, right = np.linalg.eig(jacobian)
    left = np.linalg.inv(right)  # rows
    order = [i for i in np.argsort(-np.abs(values), kind="stable") if values[i].imag >= 0][:count]
    return values[order].astype(np.complex128), np.stack([left[i].real / np.linalg.norm(left[i].real) for i in order])


@dataclass(frozen=True)
class Agreement:
    """How often correlation and Jacobian have the same sign, among pairs of different components."""

    behaviour: int
    lag: int
    share: float  # of pairs with the same sign
    significant: float  # the same among pairs whose correlation has q < 0.05; NaN if there are none
    pairs: int
    shuffled_behaviours: float  # mean share if behaviours are dealt to states at random, for the Jacobians only
    shuffled_components: float  # mean share if the components of the Jacobian are renamed at random: about one half
    p: float  # one-sided, share against renamed components


def lagged_correlations(
    tracks: Tracks, scores: np.ndarray, label: np.ndarray, count: int, lags: int, permutations: int, seed: int,
    progress: Progress,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Correlate components with later components of the same lives, in each behaviour, (B,), of so many.

    A record counts for the behaviour of its earlier tick.

    Args:
        scores: of the components, (B, K).

    Returns:
        Pearson's r of deviations from life means, (behaviours, lags + 1, K i later, K j earlier), NaN where one of the
        two never varies; and q of two-sided tests by circular shifts, corrected for all of them, likewise.
    """
    components = scores.shape[1]
    r = np.full((count, lags + 1, components, components), np.nan)
    p = r.copy()
    for lag in range(lags + 1):
        earlier = tracks.with_ticks_around(0, lag)
        later = tracks.ahead(earlier, lag)
        kept = np.zeros(len(tracks), bool)
        kept[earlier] = True
        lives = tracks.lives.of_records(kept)
        for number in range(count):
            inside = label[earlier] == number
            correlations = shifted_correlations(
                scores[earlier], scores[later], lives, permutations, seed, episode=tracks.records.episode[earlier],
                inside=inside,
            )  # fmt: skip
            r[number, lag], p[number, lag] = correlations.r.T, correlations.p.T
            progress((lag * count + number + 1) / ((lags + 1) * count))
    return r, false_discovery(p)


def mean_jacobians(jacobians: np.ndarray, label: np.ndarray, count: int) -> np.ndarray:
    """Average the Jacobians, (n, L, K, K), of each behaviour: (B, L, K, K); NaN for one without states."""
    weights = (label == np.arange(count)[:, None]).astype(np.float64)  # (B, n)
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.einsum("bn,nlij->blij", weights, jacobians, optimize=True) / total[:, None, None, None]


def sign_agreement(
    r: np.ndarray, q: np.ndarray, jacobians: np.ndarray, label: np.ndarray, seed: int
) -> list[Agreement]:
    """Compare the signs of correlations and of mean Jacobians at lags from 1.

    Args:
        r, q: as `lagged_correlations` returns them.
        jacobians: of n states, (n, L, K, K).
        label: behaviour of each of these states, (n,).
    """
    count, lags, components, _ = r.shape
    random = np.random.default_rng([seed, 3])
    apart = ~np.eye(components, dtype=bool)
    means = mean_jacobians(jacobians, label, count)
    dealt = [mean_jacobians(jacobians, random.permutation(label), count) for _ in range(_SHUFFLES // 10)]
    renamed = [random.permutation(components) for _ in range(_SHUFFLES)]
    agreements = []
    for number in range(count):
        for lag in range(1, lags):
            here, own = r[number, lag], means[number, lag]
            sure = apart & (q[number, lag] < LEVEL)
            share = _same_sign(here, own, apart)
            others = np.array([_same_sign(here, own[np.ix_(order, order)], apart) for order in renamed])
            agreements.append(
                Agreement(
                    number, lag, share, _same_sign(here, own, sure), int(sure.sum()),
                    float(np.mean([_same_sign(here, draw[number, lag], apart) for draw in dealt])),
                    float(others.mean()),
                    float((1 + (others >= share).sum()) / (1 + len(others))) if np.isfinite(share) else float("nan"),
                )
            )  # fmt: skip
    return agreements


def _same_sign(r: np.ndarray, jacobian: np.ndarray, pairs: np.ndarray) -> float:
    known = pairs & np.isfinite(r) & np.isfinite(jacobian)
    return float((np.sign(r[known]) == np.sign(jacobian[known])).mean()) if known.any() else float("nan")
