"""What each feature does to the policy's value and action within a tick: predicted by gradients, and measured.

The prediction is gradient times activation: how much the value, or the log-probability of the action that was taken,
would fall if the feature were taken out of the state and both were linear. The measurement takes it out: the recorded
tick is computed again with the feature's strength times its direction subtracted from the state, and all else, what the
dictionary misses included, as it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from agent_zoo.observation import PackedObservation
from agent_zoo.sparse_codes import SparseCoder
from analysis.recorded.recorded_observation import packed_observation
from analysis.sparse.scores import CONFIDENCE, Estimate, Units
from analysis.sparse.splicing import RecordedPolicy, read_ticks
from analysis.statistics.inference import student_stretch

TICKS = 1000
"""Recorded ticks that features are taken out of, in all episodes together."""
REMOVALS = 6000
"""Pairs of a tick and an active feature that are measured, at most."""

OUTPUTS = ("value", "action")

_BATCH = 1000
_FEWEST = 3


@dataclass(frozen=True, eq=False)
class Attributions:
    """What removing features from recorded ticks changes. R removals."""

    feature: np.ndarray  # number of the feature, (R,) int64
    predicted: np.ndarray  # change of the value, and of the action's log-probability in nats, (2, R)
    measured: np.ndarray  # the same, (2, R)
    units: Units

    def correlation(self, output: int) -> Estimate:
        """Return the correlation of predicted and measured changes of an output, with its interval over the units.

        The interval is as much wider than percentiles as that of `Units.mean`; NaN with fewer than two units.
        """
        count = self.units.draws.shape[1]
        x, y = self.predicted[output], self.measured[output]
        x, y = x - x.mean(), y - y.mean()
        parts = (np.ones_like(x), x, y, x * x, y * y, x * y)
        sums = np.stack([np.bincount(self.units.of_record, part, count) for part in parts], axis=1)  # (units, 6)
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = _correlation(self.units.draws @ sums)
            value = float(_correlation(sums.sum(axis=0, keepdims=True))[0])
        tail = (1 - CONFIDENCE) / 2
        if count < 2 or not np.isfinite(drawn).any():
            return Estimate(value)
        ends = np.nanquantile(drawn, [tail, 1 - tail])
        low, high = np.clip(value + student_stretch(count, CONFIDENCE) * (ends - value), -1, 1)
        return Estimate(value, float(low), float(high))

    def of_features(self, features: int) -> np.ndarray:
        """Return each feature's mean measured change of value and action, (2, F); NaN below three removals."""
        counts = np.bincount(self.feature, minlength=features)
        values = np.full((2, features), np.nan)
        known = counts >= _FEWEST
        for output in range(2):
            sums = np.bincount(self.feature, self.measured[output], features)
            values[output, known] = sums[known] / counts[known]
        return values


def attribute(
    folder: Path, recorded: RecordedPolicy, layer: str, dictionary: SparseDictionary, episodes: Sequence[int],
    seed: int, progress: Callable[[float], None] = lambda _: None,
) -> Attributions:  # fmt: skip
    """Predict and measure what removing active features changes.

    Args:
        layer: that the dictionary writes, of the policy.
    """
    coder = SparseCoder(dictionary)
    parts: list[tuple[np.ndarray, ...]] = []
    for number, episode in enumerate(episodes):
        ticks = read_ticks(folder, recorded, episode, TICKS // len(episodes), seed)
        observation = packed_observation(ticks.records, recorded.info.layout, recorded.policy.mask)
        tick = observation, ticks.before, torch.from_numpy(ticks.records.action)
        states, gradients = _gradients(recorded.policy, layer, tick)
        strengths = coder.strengths(states)
        rows, features = (strengths != 0).nonzero(as_tuple=True)
        drawn = np.random.default_rng([seed, episode]).permutation(len(rows))[: REMOVALS // len(episodes)]
        kept = torch.from_numpy(np.sort(drawn))
        rows, features = rows[kept], features[kept]
        removed = -strengths[rows, features, None] * coder.decoder[features]  # (R, U)
        predicted = torch.stack([(gradient[rows] * removed).sum(dim=1) for gradient in gradients])
        measured = _measured(recorded.policy, layer, tick, rows, removed)
        life = ticks.life[rows.numpy()]
        parts.append((features.numpy(), predicted.numpy(), measured.numpy(), life, np.full(len(life), episode)))
        progress((number + 1) / len(episodes))
    feature, predicted_all, measured_all, lives, episode_of = (
        np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)
    )
    named = np.unique(np.stack([episode_of, lives]), axis=1, return_inverse=True)[1].reshape(-1)
    units = Units.of(named, episode_of, seed)
    return Attributions(feature, predicted_all.astype(np.float64), measured_all.astype(np.float64), units)


_Tick = tuple[PackedObservation, MemoryState, torch.Tensor]
"""What B agents see, the memory before, and the actions that they took."""


def _gradients(policy: RecurrentPolicy, layer: str, tick: _Tick) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the layer's states, (B, U), and the gradients of value and action with respect to them."""
    seen, before, action = tick
    captured: list[torch.Tensor] = []

    def watch(states: torch.Tensor) -> torch.Tensor:
        captured.append(states.detach().requires_grad_())
        return captured[-1]

    with policy.hooked({layer: watch}):
        distribution, value, _ = policy(seen, before)
    (states,) = captured
    outputs = value.sum(), distribution.log_probability(action).sum()
    return states.detach(), [torch.autograd.grad(output, states, retain_graph=True)[0] for output in outputs]


@torch.no_grad()
def _measured(
    policy: RecurrentPolicy, layer: str, tick: _Tick, rows: torch.Tensor, moves: torch.Tensor
) -> torch.Tensor:
    """Return how value and action change if states of some records are moved, (R,) and (R, U) to (2, R)."""
    changes = []
    for place, move in zip(rows.split(_BATCH), moves.split(_BATCH), strict=True):
        some = tick[0].take(place), tick[1].take(place), tick[2][place]
        plain = _outputs(policy, layer, some, None)
        changes.append(_outputs(policy, layer, some, move) - plain)
    return torch.cat(changes, dim=1)


def _outputs(policy: RecurrentPolicy, layer: str, tick: _Tick, move: torch.Tensor | None) -> torch.Tensor:
    seen, before, action = tick
    hooks = {} if move is None else {layer: lambda states: states + move}
    with policy.hooked(hooks):
        distribution, value, _ = policy(seen, before)
    return torch.stack([value, distribution.log_probability(action).sum(dim=1)]).double()


def _correlation(sums: np.ndarray) -> np.ndarray:
    """Return correlations from rows of sums: count, x, y, x squared, y squared, x times y."""
    count, x, y, xx, yy, xy = sums.T
    return (count * xy - x * y) / np.sqrt((count * xx - x**2) * (count * yy - y**2))
