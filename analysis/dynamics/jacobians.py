"""Do components that follow each other also move each other? Jacobians of components beside lagged correlations."""

from dataclasses import dataclass

import numpy as np

from analysis.statistics.inference import LEVEL

_SHUFFLES = 200


@dataclass(frozen=True, eq=False)
class Probes:
    """How components are read and moved. K components of a layer with U units."""

    layer: str  # a state of the memory
    read_outs: np.ndarray  # component = activations @ read_outs.T + constant, (K, U)
    patterns: np.ndarray  # what one unit of the component adds to the raw activations, (K, U)


@dataclass(frozen=True)
class Agreement:
    """How often correlation and Jacobian have the same sign, among pairs of different components."""

    behaviour: int
    lag: int
    share: float  # of pairs with the same sign
    significant: float  # the same among pairs whose correlation has q < 0.05; NaN if there are none
    pairs: int  # pairs whose correlation has q < 0.05, in behaviours with Jacobians
    shuffled_behaviours: float  # mean share if behaviours are dealt to states at random, for the Jacobians only
    shuffled_components: float  # mean share if the components of the Jacobian are renamed at random: about one half
    p: float  # one-sided, share against renamed components


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
        r, q: as `behaviours.lagged_correlations` returns them.
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
            sure = apart & (q[number, lag] < LEVEL) & np.isfinite(own)  # of no behaviour without a Jacobian
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
