"""Fixed and slow points of a memory whose input is held (Sussillo and Barak 2013, Neural Computation 25, 626-649)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from analysis.dynamics.tracks import tensor
from analysis.dynamics.update import Update

ITERATIONS = 400
_RATE = 0.05
_NEWTON_STEPS = 6
FIXED = 1e-12
"""Largest speed, q = |F(s) - s|^2 / 2, of a fixed point."""
_SAME = 1e-2
"""Points closer than this share of the spread of all starts are one."""


@dataclass(frozen=True, eq=False)
class FixedPoints:
    """Points found for one held input, most often reached first. n points, S numbers in a state."""

    state: np.ndarray  # (n, S)
    speed: np.ndarray  # q = |F(s) - s|^2 / 2, (n,)
    reached: np.ndarray  # starts that led there, (n,) int64
    eigenvalues: np.ndarray  # of the Jacobian at each point, by decreasing modulus, (n, S) complex128

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
    """Minimise the speed from many states: gradient descent (Adam), then Newton's method where it lowers the speed.

    Args:
        read: the held input of the memory, (units,).
        starts: states to start from, (n, S).
    """
    held = tensor(read).expand(len(starts), -1)
    state = tensor(starts).clone().requires_grad_(True)
    optimiser = torch.optim.Adam([state], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, ITERATIONS, eta_min=_RATE / 1000)
    for iteration in range(ITERATIONS):
        optimiser.zero_grad()
        _speed(update, state, held).sum().backward()
        optimiser.step()
        schedule.step()
        progress(0.7 * (iteration + 1) / ITERATIONS)
    points = _polished(update, state.detach(), held, progress)
    speed = _speed(update, points, held)
    return _distinct(update, points, speed, tensor(read), float(tensor(starts).std(dim=0).norm()))


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
        progress(0.7 + 0.3 * (step + 1) / _NEWTON_STEPS)
    return state


def _distinct(
    update: Update, points: torch.Tensor, speed: torch.Tensor, read: torch.Tensor, spread: float
) -> FixedPoints:
    """Merge points that lie close together, the slowest of each group stands for it."""
    kept: list[int] = []
    reached: list[int] = []
    for index in torch.argsort(speed).tolist():
        near = [
            number
            for number, place in enumerate(kept)
            if float((points[place] - points[index]).norm()) < _SAME * spread
        ]
        if near:
            reached[near[0]] += 1
        else:
            kept.append(index)
            reached.append(1)
    order = np.argsort(-np.array(reached), kind="stable")
    chosen = points[[kept[i] for i in order]]
    values = [torch.linalg.eigvals(update.jacobian(point[None], read[None])[0]).numpy() for point in chosen]
    eigenvalues = np.stack([row[np.argsort(-np.abs(row), kind="stable")] for row in values])
    return FixedPoints(chosen.numpy(), speed[[kept[i] for i in order]].numpy(), np.array(reached)[order], eigenvalues)
