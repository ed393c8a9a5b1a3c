"""Probe data with planted targets: remembered, visible, forgotten and pure noise."""

import numpy as np
import torch
from torch import nn

from analysis.features.feature import YES_OR_NO, Feature
from analysis.lives import Lives
from analysis.probes.dataset import ProbeData
from analysis.probes.inputs import Input, inputs_named

WORLDS, LIVES_IN_A_WORLD, TICKS = 8, 6, 50
LONGEST_COUNT = 30
UNITS = 32

TARGETS = tuple(
    Feature(name, unit, "Planted.", lambda seen: np.zeros(len(seen)))
    for name, unit in (
        ("ticks_since_cue", "ticks"),
        ("cue_long_ago", YES_OR_NO),
        ("shown", "points"),
        ("cue", YES_OR_NO),
        ("noise", "points"),
        ("coin", YES_OR_NO),
    )
)
NAMES = tuple(target.name for target in TARGETS)
INPUTS: tuple[Input, ...] = inputs_named(["lstm_hidden", "lstm_cell", "observation", "history", "untrained"], [3])


def planted_lives(worlds: int = WORLDS) -> tuple[Lives, np.ndarray]:
    """Return lives of equal length, concatenated, and the world of each record."""
    count = worlds * LIVES_IN_A_WORLD
    index = np.repeat(np.arange(count), TICKS)
    lives = Lives(index, np.arange(len(index)), np.arange(count) * TICKS, np.full(count, TICKS))
    return lives, index // LIVES_IN_A_WORLD


def counting_memory() -> ProbeData:
    """Train an LSTM to count the ticks since a cue, and record it together with an untrained one.

    The cue and a smooth quantity are inputs at each tick; noise and coin flips are in no input.
    """
    rng = np.random.default_rng(0)
    lives, world = planted_lives()
    shape = (len(lives), TICKS)
    cue = rng.random(shape) < 0.06
    shown = np.cumsum(rng.normal(size=shape), axis=1)
    since = _since(cue)
    stream = np.stack([cue, shown / 5, rng.normal(size=shape)], axis=2).astype(np.float32)  # (lives, TICKS, 3)
    torch.manual_seed(0)
    counter, fresh = (nn.LSTM(3, UNITS, batch_first=True) for _ in range(2))
    _train(counter, torch.from_numpy(stream), torch.from_numpy(since[..., None] / LONGEST_COUNT).float())
    hidden, cell = _states(counter, stream)
    noise, coin = np.cumsum(rng.normal(size=shape), axis=1), rng.random(shape) < 0.5
    targets = [since, since > 15, shown, cue, noise, coin]
    past = [np.concatenate([np.zeros_like(stream[:, :back]), stream[:, : TICKS - back]], axis=1) for back in (1, 2)]
    inputs = {
        "lstm_hidden": hidden, "lstm_cell": cell, "observation": stream,
        "history_3": np.concatenate([stream, *past], axis=2),
        "untrained": np.concatenate(_states(fresh, stream), axis=2),
    }  # fmt: skip
    flat = {name: values.reshape(len(world), -1) for name, values in inputs.items()}
    return ProbeData(
        inputs=flat, varying={name: np.ones(values.shape[1], bool) for name, values in flat.items()}, bands={},
        targets=np.stack([target.ravel() for target in targets], axis=1).astype(np.float64),
        given=np.empty((len(world), 0)), world=world, episode=world, lives=lives, by_map=True, networks={},
    )  # fmt: skip


def _since(cue: np.ndarray) -> np.ndarray:
    since = np.empty(cue.shape)
    count = np.full(len(cue), float(LONGEST_COUNT))
    for tick in range(cue.shape[1]):
        count = np.where(cue[:, tick], 0, np.minimum(count + 1, LONGEST_COUNT))
        since[:, tick] = count
    return since


def _train(lstm: nn.LSTM, stream: torch.Tensor, wanted: torch.Tensor) -> None:
    head = nn.Linear(UNITS, 1)
    optimiser = torch.optim.Adam([*lstm.parameters(), *head.parameters()], 2e-2)
    for _ in range(120):
        optimiser.zero_grad()
        loss = ((head(lstm(stream)[0]) - wanted) ** 2).mean()
        loss.backward()
        optimiser.step()


@torch.no_grad()
def _states(lstm: nn.LSTM, stream: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return hidden and cell states at every tick, (lives, TICKS, UNITS) each."""
    state, hidden, cell = None, [], []
    for tick in range(TICKS):
        _, state = lstm(torch.from_numpy(stream[:, tick : tick + 1]), state)
        hidden.append(state[0][-1].numpy())
        cell.append(state[1][-1].numpy())
    return np.stack(hidden, axis=1), np.stack(cell, axis=1)
