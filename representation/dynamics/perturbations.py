"""How long a change of a component lasts in the memory."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from analysis.interventions.persistence import half_life
from analysis.statistics.resampling import Estimate
from representation.dynamics.jacobians import AT_ONCE, Probes
from representation.dynamics.tracks import Tracks, tensor
from representation.dynamics.update import Update

_RESAMPLES = 500
_TAIL = 0.025


@dataclass(frozen=True, eq=False)
class Lasting:
    """What is left of a change, on average over states.

    Attributes:
        left: share of the first value after 0, 1, ... ticks, (ticks + 1,).
        half_life: ticks until half is left; infinite if more is left at the end. With its interval over lives.
    """

    left: np.ndarray
    half_life: Estimate


@torch.no_grad()
def distances(
    update: Update, tracks: Tracks, records: np.ndarray, probes: Probes, ticks: int, progress: Callable[[float], None]
) -> np.ndarray:
    """Return how far the layer is from where it would have been, after each component was raised by one unit.

    Inputs are held as recorded. A changed cell state changes the hidden state with it.

    Args:
        update: of the policy.
        tracks: recorded lives.
        records: the changed ticks, (n,), each with so many ticks after it.
        probes: the components.
        ticks: to follow.
        progress: called with the share done.

    Returns:
        Euclidean distances in the layer's raw units, (K, n, ticks + 1).
    """
    own, count = update.place(probes.layer), len(probes.patterns)
    found = np.empty((count, len(records), ticks + 1))
    for start in range(0, len(records), AT_ONCE):
        some = records[start : start + AT_ONCE]
        unchanged = tensor(tracks.state[some])
        edited = torch.cat(
            [update.edited(probes.layer, unchanged, tensor(each).expand(len(some), -1)) for each in probes.patterns]
        )
        for tick in range(ticks + 1):
            if tick:
                read = tensor(tracks.read[tracks.ahead(some, tick)])
                unchanged, edited = update(unchanged, read), update(edited, read.repeat(count, 1))
            apart = edited[:, own].unflatten(0, (count, -1)) - unchanged[:, own]  # (K, B, units)
            found[:, start : start + len(some), tick] = apart.norm(dim=2).numpy()
        progress(min(1.0, (start + AT_ONCE) / len(records)))
    return found


def lasting(values: np.ndarray, life: np.ndarray, seed: int) -> Lasting:
    """Average over states, and resample lives for the interval.

    Args:
        values: at n states after 0, 1, ... ticks, (n, ticks + 1).
        life: of each state, (n,).
        seed: of the resamples.
    """
    _, number = np.unique(life, return_inverse=True)
    count = np.bincount(number)
    sums = np.stack([np.bincount(number, column) for column in values.T], axis=1)  # (lives, ticks + 1)
    draws = np.random.default_rng([seed, 7]).multinomial(len(count), np.full(len(count), 1 / len(count)), _RESAMPLES)
    means = (draws @ sums) / (draws @ count)[:, None]
    mean = values.mean(axis=0)
    low, high = np.quantile(half_life(means), [_TAIL, 1 - _TAIL], method="nearest")
    return Lasting(mean / mean[0], Estimate(float(half_life(mean[None])[0]), float(low), float(high)))
