"""Where simulated lives begin."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from representation.world_model.imagination import Start, informed_start, random_start
from representation.world_model.imagined_view import Surroundings
from representation.world_model.model import Origin, WorldModel
from representation.world_model.simulated_records import LIVES_IN_EPISODE
from representation.world_model.windows import Windows, read_windows
from user_error import UserError

Beginning = Literal["informed", "random"]


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
    model: WorldModel, origin: Origin, recorded: Path, beginning: Beginning, lives: int, seed: int
) -> Iterator[Batch]:
    """Yield starts; the same arguments give the same ones.

    Args:
        model: to simulate with.
        origin: of the model.
        recorded: dump that starts are taken from; random ones take market and task from it.
        beginning: informed: from recorded ticks on maps that the model was not trained on; random: from bottlenecks
            drawn by lot.
        lives: number of starts.
        seed: of which ticks are taken, and of what is drawn.

    Raises:
        UserError: the dump has too few windows.
    """
    left, epoch = lives, 0
    while left > 0:
        before = left
        for windows in held_out_windows(model, origin, recorded, seed + epoch):
            windows = first_windows(windows, left)
            generator = torch.Generator().manual_seed(seed * 2 + 1 + left)
            if beginning == "informed":
                yield Batch(informed_start(model, windows, generator), life_numbers(windows))
            else:
                yield Batch(random_start(model, windows.around, generator), lives - left + np.arange(len(windows)))
            left -= len(windows)
            if left <= 0:
                return
        if left == before:
            raise UserError(f"{recorded} holds no life of more than three ticks on the maps kept for testing")
        epoch += 1


def life_numbers(windows: Windows, chosen: torch.Tensor | None = None) -> np.ndarray:
    """Return a number for each window's life, (some,) int64; no episode has as many as 100,000 agents."""
    identity = windows.identity if chosen is None else windows.identity[chosen]
    return (identity[:, 0] * 100_000 + identity[:, 1]).numpy()


def held_out_windows(model: WorldModel, origin: Origin, recorded: Path, seed: int) -> Iterator[Windows]:
    """Yield up to 128 windows at a time of the episodes on maps that the model was not trained on."""
    return read_windows(recorded, origin.test, origin.horizon, LIVES_IN_EPISODE, model.policy, model.info, seed)


def first_windows(windows: Windows, most: int) -> Windows:
    """Return the first windows of a batch."""
    if len(windows) <= most:
        return windows
    kept = torch.arange(most)
    ticks = int(windows.lengths[:most].sum())
    return replace(
        windows, scene=windows.scene.take(torch.arange(ticks)), place=windows.place[:ticks],
        around=Surroundings(windows.around.market.take(kept), windows.around.task[:most]),
        **{
            name: getattr(windows, name)[:most]
            for name in ("lengths", "action", "reward", "ends", "hidden", "cell", "where", "identity")
        },
    )  # fmt: skip
