"""Where simulated lives begin."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from representation.world_model.imagination import Start, bottleneck_start, informed_start, random_start
from representation.world_model.model import Origin, WorldModel
from representation.world_model.simulated_records import LIVES_IN_EPISODE
from representation.world_model.windows import Windows, read_windows
from user_error import UserError

Beginning = Literal["informed", "random", "interpolate"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Up to 128 starts.

    Attributes:
        start: of S lives.
        origin: number of the recorded life that each goes on from, or of the start itself if it is random, (S,) int64.
    """

    start: Start
    origin: np.ndarray


def starts(
    model: WorldModel, origin: Origin, recorded: Path, beginning: Beginning, lives: int, seed: int, steps: int = 1
) -> Iterator[Batch]:
    """Yield starts; the same arguments give the same ones.

    Args:
        model: to simulate with.
        origin: of the model.
        recorded: dump that starts are taken from; random ones take market and task from it.
        beginning: informed: from recorded ticks on maps that the model was not trained on; random: from bottlenecks
            drawn by lot; interpolate: from bottlenecks on the way from one recorded start to another.
        lives: number of starts; of interpolated ones, a multiple of `steps`.
        seed: of which ticks are taken, and of what is drawn.
        steps: starts on each way, both ends included.

    Raises:
        UserError: the dump has too few windows.
    """
    left, epoch = lives, 0
    while left > 0:
        before = left
        for windows in held_out_windows(model, origin, recorded, seed + epoch):
            windows = windows.part(0, min(2 * left // steps if beginning == "interpolate" else left, len(windows)))
            generator = torch.Generator().manual_seed(seed * 2 + 1 + left)
            if beginning == "informed":
                found = Batch(informed_start(model, windows, generator), life_numbers(windows))
            elif beginning == "random":
                number = lives - left + np.arange(len(windows))
                found = Batch(random_start(model, windows.around, generator), number)
            else:
                windows = windows.part(0, min(len(windows), 2 * (LIVES_IN_EPISODE // steps)) // 2 * 2)
                if not len(windows):
                    continue
                found = _between(model, windows, steps, generator)
            yield found
            left -= len(found.origin)
            if left <= 0:
                return
        if left == before:
            raise UserError(f"{recorded} holds no life of more than three ticks on the maps kept for testing")
        epoch += 1


def _between(model: WorldModel, windows: Windows, steps: int, generator: torch.Generator) -> Batch:
    """Return the starts on the ways from each even window's bottleneck to that of the window after it, way by way.

    On the sphere they are on the great circle, at equal angles. Market and task are those of the first end.
    """
    ends = informed_start(model, windows, generator).vector.unflatten(0, (-1, 2))  # (ways, 2, dimensions)
    share = torch.linspace(0, 1, steps).view(1, -1, 1)
    one, other = ends[:, :1], ends[:, 1:]
    if model.network.kind == "sphere":
        angle = (one * other).sum(dim=2, keepdim=True).clamp(-1, 1).acos().clamp(min=1e-4)
        vector = (((1 - share) * angle).sin() * one + (share * angle).sin() * other) / angle.sin()
        vector = torch.nn.functional.normalize(vector, dim=2)
    else:
        vector = (1 - share) * one + share * other
    first = torch.arange(0, len(windows), 2).repeat_interleave(steps)
    start = bottleneck_start(model, vector.flatten(0, 1), windows.around.take(first), generator)
    return Batch(start, life_numbers(windows, first))


def life_numbers(windows: Windows, chosen: torch.Tensor | None = None) -> np.ndarray:
    """Return a number for each window's life, (some,) int64; no episode has as many as 100,000 agents."""
    identity = windows.identity if chosen is None else windows.identity[chosen]
    return (identity[:, 0] * 100_000 + identity[:, 1]).numpy()


def held_out_windows(model: WorldModel, origin: Origin, recorded: Path, seed: int) -> Iterator[Windows]:
    """Yield up to 128 windows at a time of the episodes on maps that the model was not trained on."""
    return read_windows(recorded, origin.test, origin.horizon, LIVES_IN_EPISODE, model.policy, model.info, seed)
