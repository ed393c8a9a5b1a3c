"""Let a policy act on reconstructed states, and compare what it does with what it does on the recorded ones.

Each recorded tick is computed again from the recorded memory before it and the recorded observation, once as it was and
once with the layer replaced by its reconstruction. Of a replaced cell state, the hidden state is computed again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from analysis.sparse.scores import Estimate, Units
from common.files import sha256
from common.user_error import UserError

MEAN = "mean"
"""Name of the control that replaces every state by the mean state."""

_RECORDS = 16_000
_BATCH = 1024
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
    return RecordedPolicy(policy, info)


def load_untrained(folder: Path, metadata: DumpMetadata, recorded: RecordedPolicy) -> RecordedPolicy | None:
    """Build the untrained network that watched a policy, and prove that it is the one that was recorded.

    Returns:
        None if it cannot be built again: the dump does not know its seed, holds only part of its memory, or another
        version of torch draws other weights.
    """
    if metadata.seed is None or recorded.policy.layers != 1:
        return None
    untrained = RecordedPolicy(build_untrained(recorded.info, metadata.seed), recorded.info, f"{UNTRAINED}_")
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
    # A record without a previous one is the first of its life, which begins with an empty memory.
    known = previous >= 0
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
