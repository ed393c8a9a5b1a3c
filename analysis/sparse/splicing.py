"""Let a policy act on reconstructed states, and compare what it does with what it does on the recorded ones.

Each recorded tick is computed again from the recorded memory before it and the recorded observation, once as it was and
once with the layer replaced by its reconstruction. Of a replaced cell state, the hidden state is computed again.

What a single feature does to the value and to the log-probability of the action that was taken is predicted, and
measured. The prediction is gradient times activation: how much they would fall if the feature were taken out of the
state and both were linear. The measurement subtracts the feature's strength times its direction from the state, and
leaves all else, what the dictionary misses included, as it was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from activation_store.layers import ENCODER_OUTPUT, STATES, UNTRAINED
from activation_store.reader import read_dump
from activation_store.recording import record_again
from activation_store.records import Records
from activation_store.schema import DumpMetadata, refuse_kept_memory
from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import memory_from_layers
from agent_zoo.checkpoint import CheckpointInfo, build_untrained, load_checkpoint
from agent_zoo.checkpoint_files import policy_path
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.distribution import ActionDistribution
from agent_zoo.observation import PackedObservation
from agent_zoo.sparse_codes import SparseCoder
from analysis.lives import lives_of, previous_tick
from analysis.recorded.recorded_observation import check_shows_everything, packed_observation, state_layers
from analysis.sparse.scores import CONFIDENCE, Estimate, Units
from analysis.statistics.inference import student_stretch
from common.files import sha256
from common.user_error import UserError

MEAN = "mean"
"""Name of the control that replaces every state by the mean state."""

_RECORDS = 16_000
_BATCH = 1024
_REMOVED_TOGETHER = 1000
_PROVED = 256  # ticks that an untrained network must compute as recorded
_ROUNDING = 0.01  # most that states may differ by; dumps can hold half precision

Rebuild = Callable[[torch.Tensor], torch.Tensor]


def reconstructions(dictionaries: Mapping[str, SparseDictionary]) -> dict[str, Rebuild]:
    """Return the function of each dictionary that replaces states by their reconstructions, by name."""
    return {name: SparseCoder(dictionary).reconstruction for name, dictionary in dictionaries.items()}


@dataclass(frozen=True, eq=False)
class RecordedPolicy:
    """A policy with what its checkpoint says of it."""

    policy: RecurrentPolicy
    info: CheckpointInfo
    prefix: str = ""  # of the names of its layers in the dump: none, or that of the untrained network
    begins_empty: bool = True  # as in `DumpMetadata`


def load_recorded_policy(folder: Path, metadata: DumpMetadata, policies: Path, layer: str) -> RecordedPolicy:
    """Load the policy of a dump, and refuse what cannot be spliced, before anything is trained.

    Raises:
        UserError: the policy's file is missing or another one than was recorded, or the dump lacks layers of the
            memory or parts of the observation.
    """
    refuse_kept_memory(folder, metadata)
    path = policy_path(policies, metadata.policy)
    without = "or pass --no-splice"
    if not path.exists():
        raise UserError(f"{path}, whose states {folder} holds, is not there: give --policies-dir, {without}")
    if metadata.checkpoint_sha256 is not None and sha256(path) != metadata.checkpoint_sha256:
        raise UserError(
            f"{folder} was recorded with another policy than {path} as it is now: extract it again, {without}"
        )
    policy, info = load_checkpoint(path)
    if missing := [name for name in state_layers(policy) if name not in metadata.layers]:
        raise UserError(
            f"{folder} lacks {', '.join(missing)}, from which the memory is rebuilt: {record_again(folder, metadata)}, "
            f"{without}"
        )
    if layer not in policy.layer_units:
        raise UserError(f"{layer} is not a layer of {metadata.policy}: give another --layer, {without}")
    try:
        check_shows_everything(folder, info.layout)
    except UserError as error:
        raise UserError(f"{error}; {without}") from None
    return RecordedPolicy(policy, info, begins_empty=metadata.begins_empty)


def load_untrained(folder: Path, metadata: DumpMetadata, recorded: RecordedPolicy) -> RecordedPolicy | None:
    """Build the untrained network that watched a policy, and prove that it is the one that was recorded.

    Returns:
        None if it cannot be built again: the dump does not know its seed, holds only part of its memory, or another
        version of torch draws other weights.
    """
    if metadata.seed is None or recorded.policy.layers != 1:
        return None
    twin = build_untrained(recorded.info, metadata.seed)
    untrained = replace(recorded, policy=twin, prefix=f"{UNTRAINED}_")
    layers = [untrained.prefix + state for state in STATES[untrained.policy.cell]]
    if not all(layer in metadata.layers for layer in layers):
        return None
    ticks = read_ticks(folder, untrained, metadata.episodes[0]["episode"], _PROVED, 0)
    observation = packed_observation(ticks.records, untrained.info.layout, untrained.policy.mask)
    with torch.no_grad():
        after = untrained.policy.remember(untrained.policy.encode(observation)[0], ticks.before)[1]
    wanted = memory_from_layers(untrained.policy, _without_prefix(ticks.records.activations, untrained.prefix))
    close = [
        torch.allclose(mine, theirs, atol=_ROUNDING)
        for mine, theirs in ((after.hidden, wanted.hidden), (after.cell, wanted.cell))
    ]
    return untrained if all(close) else None


def splice(
    folder: Path, recorded: RecordedPolicy, layer: str, rebuilds: Mapping[str, Rebuild],
    episodes: Sequence[int], mean: np.ndarray, seed: int, progress: Callable[[float], None] = lambda _: None,
) -> "SplicedRun":  # fmt: skip
    """Replace the states of about 16,000 recorded ticks of some episodes.

    Args:
        layer: that is replaced, as the policy names it.
        rebuilds: functions from states, (B, U), to states that replace them, by name.
        mean: state of the control `MEAN`, (U,).
        seed: draws the ticks, and the resamples of intervals.
    """
    rebuilds = {**rebuilds, MEAN: lambda states: torch.from_numpy(mean).expand_as(states).clone()}
    changed: dict[str, list[np.ndarray]] = {name: [] for name in rebuilds}  # (2, B) each: divergence, value
    values, lives, episode_of = [], [], []
    for number, episode in enumerate(episodes):
        ticks = read_ticks(folder, recorded, episode, _RECORDS // len(episodes), seed)
        for start in range(0, len(ticks.records), _BATCH):
            batch = ticks.take(np.arange(start, min(start + _BATCH, len(ticks.records))))
            observation = packed_observation(batch.records, recorded.info.layout, recorded.policy.mask)
            outputs, value = _spliced(recorded.policy, observation, batch.before, layer, rebuilds)
            values.append(value)
            for name, rebuilt in outputs.items():
                changed[name].append(rebuilt)
            progress((number + start / len(ticks.records)) / len(episodes))
        lives.append(ticks.life)
        episode_of.append(np.full(len(ticks.records), episode))
    offsets = np.cumsum([0, *(int(numbers.max()) + 1 for numbers in lives[:-1])])
    life = np.concatenate([numbers + offset for numbers, offset in zip(lives, offsets, strict=True)])
    units = Units.of(life, np.concatenate(episode_of), seed)
    joined = {name: np.concatenate(parts, axis=1) for name, parts in changed.items()}
    return SplicedRun(
        {name: kl for name, (kl, _) in joined.items()}, {name: value for name, (_, value) in joined.items()},
        float(np.concatenate(values).std()), units,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class SplicedRun:
    """What several dictionaries change in the same records, by the dictionary's name, and `MEAN`."""

    kls: Mapping[str, np.ndarray]
    """Divergence of the actions' distribution on the reconstruction from that on the recorded state, summed over heads,
    in nats, (B,) each."""
    values: Mapping[str, np.ndarray]  # absolute difference of the critic's value, (B,) each
    value_spread: float  # standard deviation of the critic's value over the records
    units: Units

    def kl(self, name: str) -> Estimate:
        """Return the mean divergence, in nats."""
        return self.units.mean(self.kls[name])

    def kl_kept(self, name: str) -> Estimate:
        """Return the share of the divergence caused by the mean state that is avoided; 1 is perfect."""
        return self.units.mean(self.kls[MEAN] - self.kls[name], self.kls[MEAN])

    def value(self, name: str) -> Estimate:
        """Return the mean difference of the value, in the critic's unit."""
        return self.units.mean(self.values[name])

    def value_share(self, name: str) -> float:
        """Return the mean difference of the value as a share of the value's standard deviation."""
        return self.value(name).value / (self.value_spread or 1.0)

    def kl_less(self, name: str, other: str) -> Estimate:
        """Return how much less divergence one dictionary causes than another, in nats; negative if it causes more."""
        return self.units.mean(self.kls[other] - self.kls[name])


@dataclass(frozen=True, eq=False)
class SplicedTicks:
    """Recorded ticks of one episode: their records, the memory before them, and their lives, (B,) int64."""

    records: Records
    before: MemoryState
    life: np.ndarray

    def take(self, chosen: np.ndarray) -> "SplicedTicks":
        """Return some of them, (R,) int64."""
        return SplicedTicks(self.records.take(chosen), self.before.take(torch.from_numpy(chosen)), self.life[chosen])


def read_ticks(folder: Path, recorded: RecordedPolicy, episode: int, most: int, seed: int) -> SplicedTicks:
    """Read ticks of one episode, drawn at random, with the memory before them."""
    policy, prefix = recorded.policy, recorded.prefix
    layers = [prefix + name for name in state_layers(policy)]
    records = read_dump(folder, layers=layers, columns=["task", "legal"], episodes=[episode])
    lives = lives_of(records)
    previous = previous_tick(records, lives)
    known = previous >= 0
    if recorded.begins_empty:  # the first record of a life has no previous one
        known[lives.order[lives.starts]] = True
    candidates = np.flatnonzero(known)
    chosen = np.sort(np.random.default_rng([seed, episode]).permutation(candidates)[:most])
    before = previous[chosen]
    memory = {
        name: np.where(before[:, None] < 0, np.float32(0), array[before])
        for name, array in _without_prefix(records.activations, prefix).items()
    }
    state = memory_from_layers(policy, memory) if memory else policy.initial_state(len(chosen))
    return SplicedTicks(records.take(chosen), state, lives.index[chosen])


def _without_prefix(layers: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in layers.items()}


@torch.no_grad()
def _spliced(
    policy: RecurrentPolicy, observation: PackedObservation, before: MemoryState, layer: str,
    rebuilds: Mapping[str, Rebuild],
) -> tuple[dict[str, np.ndarray], np.ndarray]:  # fmt: skip
    """Compute one batch of ticks; returns divergence and difference of value by name, (2, B), and values, (B,)."""
    encoded, candidates = policy.encode(observation)  # once for all: most of the work

    def outputs(rebuild: Rebuild | None) -> tuple[ActionDistribution, torch.Tensor]:
        hooks = {} if rebuild is None or layer == ENCODER_OUTPUT else {layer: rebuild}
        read = rebuild(encoded) if rebuild is not None and layer == ENCODER_OUTPUT else encoded
        with policy.hooked(hooks):
            hidden, _ = policy.remember(read, before)
            return policy.decode(hidden, candidates, observation)

    distribution, value = outputs(None)
    by_name = {}
    for name, rebuild in rebuilds.items():
        changed, changed_value = outputs(rebuild)
        kl = distribution.divergence(changed).sum(dim=1)
        by_name[name] = np.stack([kl.numpy(), (changed_value - value).abs().double().numpy()])
    return by_name, value.double().numpy()


TICKS = 1000
"""Recorded ticks that features are taken out of, in all episodes together."""
REMOVALS = 6000
"""Pairs of a tick and an active feature that are measured, at most."""

OUTPUTS = ("value", "action")

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
        ticks = read_ticks(folder, recorded, episode, max(1, TICKS // len(episodes)), seed)
        observation = packed_observation(ticks.records, recorded.info.layout, recorded.policy.mask)
        tick = observation, ticks.before, torch.from_numpy(ticks.records.action)
        states, gradients = _gradients(recorded.policy, layer, tick)
        strengths = coder.strengths(states)
        rows, features = (strengths != 0).nonzero(as_tuple=True)
        drawn = np.random.default_rng([seed, episode]).permutation(len(rows))[: max(1, REMOVALS // len(episodes))]
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
    for place, move in zip(rows.split(_REMOVED_TOGETHER), moves.split(_REMOVED_TOGETHER), strict=True):
        seen, before, action = tick[0].take(place), tick[1].take(place), tick[2][place]
        outputs = []
        for hooks in ({}, {layer: move.add}):
            with policy.hooked(hooks):
                distribution, value, _ = policy(seen, before)
            outputs.append(torch.stack([value, distribution.log_probability(action).sum(dim=1)]).double())
        changes.append(outputs[1] - outputs[0])
    return torch.cat(changes, dim=1)


def _correlation(sums: np.ndarray) -> np.ndarray:
    """Return correlations from rows of sums: count, x, y, x squared, y squared, x times y."""
    count, x, y, xx, yy, xy = sums.T
    return (count * xy - x * y) / np.sqrt((count * xx - x**2) * (count * yy - y**2))
