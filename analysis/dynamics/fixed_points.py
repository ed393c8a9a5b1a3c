"""Where a memory goes and how fast: spectra and slow modes along recorded lives; fixed and slow points of held inputs.

Points are found as by Sussillo and Barak 2013, Neural Computation 25, 626-649.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from analysis.dynamics.tracks import Tracks, Update, portions, tensor

TICKS = 2000
"""For how long the memory is followed from each start."""
ITERATIONS = 400
_RATE = 0.05
_NEWTON_STEPS = 6
FIXED = 1e-12
"""Largest speed, q = |F(s) - s|^2 / 2, of a fixed point."""
_SAME = 1e-2
"""Points closer than this share of the spread of all starts are one."""
_TINY = 1e-9


def spectra(update: Update, tracks: Tracks, records: np.ndarray, progress: Callable[[float], None]) -> np.ndarray:
    """Return the eigenvalues of the one-tick Jacobian of the whole state at each record, (n, S) complex128.

    By decreasing modulus. Each record, a state before the tick, has a tick after it.
    """
    eigenvalues = np.empty((len(records), update.size), np.complex128)
    for place, some in portions(records, progress, 32):
        jacobian = update.jacobian(tensor(tracks.state[some]), tensor(tracks.read[tracks.ahead(some, 1)]))
        values = torch.linalg.eigvals(jacobian).numpy()
        order = np.argsort(-np.abs(values), axis=1, kind="stable")
        eigenvalues[place] = np.take_along_axis(values, order, axis=1)
    return eigenvalues


def layer_jacobian(
    update: Update, tracks: Tracks, records: np.ndarray, layer: str, progress: Callable[[float], None]
) -> np.ndarray:
    """Return the mean over records of d layer at t + 1 / d layer at t, (U, U) float64.

    A changed cell state changes the hidden state with it (`Update.changed`). Each record has a tick after it.
    """
    own, total = update.place(layer), torch.zeros(update.units, update.units, dtype=torch.float64)
    units = torch.eye(update.units, dtype=torch.float64)
    for _, some in portions(records, progress):
        state = tensor(tracks.state[some])
        _, moved = update.push(state, tensor(tracks.read[tracks.ahead(some, 1)]), update.changed(layer, state, units))
        total += moved[:, :, own].sum(dim=1).T  # (units before, units after) transposed
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


@dataclass(frozen=True, eq=False)
class FixedPoints:
    """Points for one held input, those at which most starts settle first. n points, S numbers in a state."""

    read: np.ndarray  # the held input of the memory, (units,)
    state: np.ndarray  # (n, S)
    speed: np.ndarray  # q = |F(s) - s|^2 / 2, (n,)
    settled: np.ndarray  # starts from which it is there after `TICKS` ticks, (n,) int64; only fixed points have any
    eigenvalues: np.ndarray  # of the Jacobian at each point, by decreasing modulus, (n, S) complex128
    half_spread: float
    """Ticks until the starts lie half as far apart as at first (root mean square); inf if that takes more than `TICKS`,
    NaN if they are all the same. A memory with one stable point still tells its starts apart for so long."""

    @property
    def fixed(self) -> np.ndarray:
        """Which points are fixed; the others are slow, (n,) bool."""
        return self.speed < FIXED

    @property
    def unstable(self) -> np.ndarray:
        """Directions in which the state moves away from each point, (n,) int64."""
        return (np.abs(self.eigenvalues) > 1).sum(axis=1)


def find_fixed_points(
    update: Update, read: np.ndarray, starts: np.ndarray, progress: Callable[[float], None] = lambda share: None
) -> FixedPoints:
    """Look for points that the memory comes to, or moves away from.

    From each start the memory is followed, which leads to stable points; and its speed is minimised by gradient descent
    (Adam), which leads to unstable ones too, such as those between two stable ones. Newton's method ends both, where it
    lowers the speed.

    Args:
        read: the held input of the memory, (units,).
        starts: states to start from, (n, S).
    """
    first, held = tensor(starts), tensor(read).expand(len(starts), -1)
    followed, half_spread = _followed(update, first, held, lambda share: progress(0.2 * share))
    descended = _descended(update, first, held, lambda share: progress(0.2 + 0.5 * share))
    state, twice = torch.cat([followed, descended]), torch.cat([held, held])  # (2 n, S), (2 n, units)
    points = _polished(update, state, twice, lambda share: progress(0.7 + 0.2 * share))
    speed = _speed(update, points, twice)
    near = _SAME * max(float(first.std(dim=0, correction=0).norm()), _TINY)
    kept, group = _distinct(points, speed, near)
    # Newton's method finds the point that a slow memory is still on its way to.
    there = (points[: len(starts)] - followed).norm(dim=1) < near
    there &= speed[: len(starts)] < FIXED
    settled = np.bincount(group[: len(starts)][there.numpy()], minlength=len(kept))
    order = np.lexsort((speed[kept].numpy(), -settled))
    chosen = points[kept][order]
    rows = []
    for number, point in enumerate(chosen):
        values = torch.linalg.eigvals(update.jacobian(point[None], held[:1])[0]).numpy()
        rows.append(values[np.argsort(-np.abs(values), kind="stable")])
        progress(0.9 + 0.1 * (number + 1) / len(chosen))
    eigenvalues = np.stack(rows)
    return FixedPoints(read, chosen.numpy(), speed[kept][order].numpy(), settled[order], eigenvalues, half_spread)


@torch.no_grad()
def _followed(
    update: Update, state: torch.Tensor, held: torch.Tensor, progress: Callable[[float], None]
) -> tuple[torch.Tensor, float]:
    """Return the states after `TICKS` ticks, and after how many ticks they lie half as far apart as at first."""
    spread = [_spread(state)]
    for tick in range(TICKS):
        state = update(state, held)
        spread.append(_spread(state))
        progress((tick + 1) / TICKS)
    if spread[0] < _TINY:
        return state, float("nan")
    left = np.array(spread) / spread[0]
    (below,) = (left <= 0.5).nonzero()
    if not len(below):
        return state, float("inf")
    before, after = left[below[0] - 1], left[below[0]]
    return state, float(below[0] - 1 + (before - 0.5) / (before - after))


def _spread(state: torch.Tensor) -> float:
    return float((state - state.mean(dim=0)).norm())


def _descended(
    update: Update, starts: torch.Tensor, held: torch.Tensor, progress: Callable[[float], None]
) -> torch.Tensor:
    state = starts.clone().requires_grad_(True)
    optimiser = torch.optim.Adam([state], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, ITERATIONS, eta_min=_RATE / 1000)
    for iteration in range(ITERATIONS):
        optimiser.zero_grad()
        _speed(update, state, held).sum().backward()
        optimiser.step()
        schedule.step()
        progress((iteration + 1) / ITERATIONS)
    return state.detach()


def _speed(update: Update, state: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    return ((update(state, held) - state) ** 2).sum(dim=1) / 2


def _polished(
    update: Update, state: torch.Tensor, held: torch.Tensor, progress: Callable[[float], None]
) -> torch.Tensor:
    """Take Newton steps towards F(s) = s where they lower the speed."""
    unit = torch.eye(update.size, dtype=torch.float64)
    speed = _speed(update, state, held)
    for step in range(_NEWTON_STEPS):
        (moving,) = (speed > FIXED / 100).nonzero(as_tuple=True)
        for some in moving.split(16):
            jacobian = update.jacobian(state[some], held[some]) - unit
            wrong = update(state[some], held[some]) - state[some]
            tried = state[some] - torch.linalg.lstsq(jacobian, wrong.unsqueeze(2)).solution.squeeze(2)
            reached = _speed(update, tried, held[some])
            better = reached < speed[some]
            state[some[better]], speed[some[better]] = tried[better], reached[better]
        progress((step + 1) / _NEWTON_STEPS)
    return state


def _distinct(points: torch.Tensor, speed: torch.Tensor, closest: float) -> tuple[list[int], np.ndarray]:
    """Merge points that lie less than `closest` apart; the slowest of each group stands for it.

    Returns:
        Places of the points kept, n; and the group of every point, (len(points),) int64.
    """
    kept: list[int] = []
    group = np.zeros(len(points), np.int64)
    exact = "donot_use_mm_for_euclid_dist"
    same = (torch.cdist(points, points, compute_mode=exact) < closest).numpy()  # (len(points), len(points))
    for index in torch.argsort(speed).tolist():
        near = np.flatnonzero(same[index, kept])
        group[index] = near[0] if len(near) else len(kept)
        if not len(near):
            kept.append(index)
    return kept, group
