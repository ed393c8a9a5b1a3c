"""Windows of ticks that end at the states under study, and the policy on them as a differentiable function.

Materials become one-hot planes, table rows their features, which is what the encoders embed. Gradient times input of a
one-hot plane is gradient times input of the tile's embedding, since embedding is linear.

The windows belong to sampled segments of lives, with what the policy saw and remembered in them.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import ACTION_DECODER, ENCODER_OUTPUT, LSTM_CELL, LSTM_HIDDEN, STATES, memory_names
from activation_store.lives import Places, number_lives, rank_in_life
from activation_store.reader import Progress, read_dump, read_identity
from activation_store.recording import record_again
from activation_store.records import Records
from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import memory_from_layers
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.layers import Candidates, RowFeatures, own_rows
from agent_zoo.network_parts.tiles import TileConvolution
from agent_zoo.observation import ObservationLayout, PackedObservation, PackedRows
from analysis.attribution.settings import SaliencySettings
from analysis.attribution.targets import MemoryComponents, Outcome, Target
from analysis.lives import places_among
from analysis.recorded.recorded_observation import packed_observation, state_layers
from common.user_error import UserError

_NEEDED = {"tile_convolution": TileConvolution, "entity_features": RowFeatures, "item_features": RowFeatures}
MEMORY = ("hidden", "cell")
COMPONENTS = "components"
"""Name of the input that holds the strengths of the memory's components."""


class SoftInputs(NamedTuple):
    """The inputs of B observations."""

    tiles: torch.Tensor  # one-hot materials, (B, tiles, materials)
    # entities: features of the visible entities, (B, most entities, features); zeros beyond an agent's entities
    entities: torch.Tensor
    own: torch.Tensor  # features of the agent's own row, (B, features)
    inventory: torch.Tensor  # features of its items, (B, most items, features)
    task: torch.Tensor  # embedding of its task, (B, task size)


def check_agent(policy: RecurrentPolicy) -> None:
    """Refuse a policy whose encoder is not made of the blocks that observations can be softened for.

    Raises:
        UserError: names the missing block.
    """
    for name, kind in _NEEDED.items():
        if not isinstance(getattr(policy.policy, name, None), kind):
            raise UserError(
                f"attribution needs an encoder with a {kind.__name__} called {name}, as those in agent_zoo/ have"
            )


def soft_inputs(policy: RecurrentPolicy, observation: PackedObservation) -> SoftInputs:
    """Return the inputs that stand for an observation exactly."""
    encoder = policy.policy
    with torch.no_grad():
        return SoftInputs(
            tiles=functional.one_hot(observation.material.long(), encoder.layout.materials).float(),
            entities=padded(encoder.entity_features(observation.entity.values), observation.entity),  # type: ignore[operator]
            own=encoder.entity_features(own_rows(observation)),  # type: ignore[operator]
            inventory=padded(encoder.item_features(observation.inventory.values), observation.inventory),  # type: ignore[operator]
            task=observation.task.float(),
        )


def padded(values: torch.Tensor, rows: PackedRows) -> torch.Tensor:
    """Arrange values of packed rows, (rows, ...), by agent, with zeros: (B, most rows, ...)."""
    grid = values.new_zeros(len(rows.counts), rows.most, *values.shape[1:])
    grid[rows.owner, rows.place] = values
    return grid


@contextlib.contextmanager
def softened(
    policy: RecurrentPolicy, observation: PackedObservation, inputs: SoftInputs
) -> Iterator[PackedObservation]:
    """Within the block, the policy encodes these inputs in place of the observation's own.

    Which rows there are, which options are legal and what the market shows stay the observation's.

    Yields:
        The observation to give to `policy.encode`.
    """
    encoder = policy.policy
    entity, inventory = observation.entity, observation.inventory

    def tiles(module: nn.Module, arguments: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        assert isinstance(module, TileConvolution)
        return module.soft(inputs.tiles, *arguments[1:])

    def entities(module: nn.Module, arguments: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        if arguments[0] is entity.values:
            return inputs.entities[entity.owner, entity.place]
        return inputs.own if arguments[0].any() else output  # a padding row is all zeros

    def items(module: nn.Module, arguments: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        return inputs.inventory[inventory.owner, inventory.place] if arguments[0] is inventory.values else output

    hooks = {"tile_convolution": tiles, "entity_features": entities, "item_features": items}
    handles = [getattr(encoder, name).register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        yield replace(observation, task=inputs.task)
    finally:
        for handle in handles:
            handle.remove()


def by_column(features: RowFeatures, values: torch.Tensor) -> torch.Tensor:
    """Add up what belongs to the features of each column of a table, (..., features) to (..., columns)."""
    others = features.other_columns.tolist()
    placed = values.new_zeros(*values.shape[:-1], len(features.columns))
    start = 0
    for column, category in features.categories:
        size = features._category_size(category)
        placed[..., column] = values[..., start : start + size].sum(dim=-1)
        start += size
    placed[..., others] = values[..., start:]
    return placed


@dataclass(frozen=True)
class LifeWindows:
    """N windows of T ticks."""

    observation: PackedObservation  # of all ticks, window by window, (N * T)
    ticks: int  # T
    memory: MemoryState  # before the first tick of each
    action: torch.Tensor  # what was chosen in the last tick, (N, heads) int64

    def __len__(self) -> int:
        return len(self.action)

    def take(self, chosen: torch.Tensor) -> "LifeWindows":
        """Return some windows, (n,) int64, in their order."""
        rows = (chosen.unsqueeze(1) * self.ticks + torch.arange(self.ticks)).flatten()
        return LifeWindows(self.observation.take(rows), self.ticks, self.memory.take(chosen), self.action[chosen])

    @staticmethod
    def concatenate(parts: "Sequence[LifeWindows]") -> "LifeWindows":
        """Put windows of the same number of ticks one after the other."""
        memory = MemoryState(*(torch.cat([getattr(part.memory, name) for part in parts], dim=1) for name in MEMORY))
        observation = PackedObservation.concatenate([part.observation for part in parts])
        return LifeWindows(observation, parts[0].ticks, memory, torch.cat([part.action for part in parts]))

    @torch.no_grad()
    def last(self, policy: RecurrentPolicy) -> "LifeWindows":
        """Return windows of the last tick alone, from the memory that the ticks before it left."""
        if self.ticks == 1:
            return self
        everything = torch.arange(len(self.observation)).view(-1, self.ticks)
        encoded, _ = policy.encode(self.observation.take(everything[:, :-1].flatten()))
        memory = self.memory
        for step in encoded.unflatten(0, (-1, self.ticks - 1)).unbind(1):
            _, memory = policy.remember(step, memory)
        return LifeWindows(self.observation.take(everything[:, -1]), 1, memory, self.action)


class Differentiable:
    """A target as a function of everything that the policy reads in some windows.

    Attributes:
        names: of the inputs, in the order of the arguments: parts of the observation in all ticks, (N, T, ...), and the
            memory before the window, (N, layers * units); last, if components were given, their strengths in that
            memory, (N, K). These are another description of the same memory: the target does not depend on their
            values, but its gradient with respect to each is that with respect to the memory along its pattern.
    """

    def __init__(
        self, policy: RecurrentPolicy, windows: LifeWindows, target: Target, components: MemoryComponents | None = None
    ):
        self._policy, self._windows, self._target, self._components = policy, windows, target, components
        self._states = MEMORY[: 2 if policy.cell == "lstm" else 1] if policy.layers else ()
        self.names = (*SoftInputs._fields, *self._states, *((COMPONENTS,) if components else ()))

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Return the recorded inputs, which need gradients."""
        soft, ticks = soft_inputs(self._policy, self._windows.observation), self._windows.ticks
        parts = [part.unflatten(0, (-1, ticks)) for part in soft]
        state = {"hidden": self._windows.memory.hidden, "cell": self._windows.memory.cell}
        memory = [state[name].transpose(0, 1).flatten(1) for name in self._states]
        parts += memory
        if self._components is not None:
            parts.append(self._components.strengths(torch.cat(memory, dim=1)))
        return tuple(part.clone().requires_grad_(True) for part in parts)

    def __call__(self, *arguments: torch.Tensor) -> torch.Tensor:
        """Return the target, (M,), given the inputs and, last, the window that each belongs to, (M,) int64."""
        *inputs, index = arguments
        windows = self._windows.take(index)
        soft = SoftInputs(*(part.flatten(0, 1) for part in inputs[: len(SoftInputs._fields)]))
        memory = self._memory(inputs[len(soft) :], windows.memory)
        with softened(self._policy, windows.observation, soft) as observation:
            encoded, candidates = self._policy.encode(observation)
        # What a target does not depend on, such as a value on others that the encoder does not read, gets zeros.
        nothing = sum(part.sum() * 0 for part in inputs)
        return self._target(decided(self._policy, windows, encoded, candidates, memory)) + nothing

    def _memory(self, parts: Sequence[torch.Tensor], recorded: MemoryState) -> MemoryState:
        units, states = self._policy.policy.hidden_size, list(parts[: len(self._states)])
        if self._components is not None:
            strength = parts[-1]
            # Nothing is added, but gradients flow to the strengths as if each moved the memory along its pattern.
            moved = (strength - strength.detach()) @ self._components.pattern
            parts = moved.split([state.shape[1] for state in states], dim=1)
            states = [state + more for state, more in zip(states, parts, strict=True)]
        states = [part.unflatten(1, (-1, units)).transpose(0, 1) for part in states]
        return MemoryState(*(*states, *(recorded.hidden, recorded.cell)[len(states) :]))


def decided(
    policy: RecurrentPolicy, windows: LifeWindows, encoded: torch.Tensor, candidates: Candidates, memory: MemoryState
) -> Outcome:
    """Carry encoder outputs of all ticks, (N * T, units), through the memory and decide in the last tick."""
    ticks, count = windows.ticks, len(windows)
    steps = encoded.unflatten(0, (count, ticks))  # (N, T, units)
    hidden = steps[:, -1]
    for tick in range(ticks):
        hidden, memory = policy.remember(steps[:, tick], memory)
    last = torch.arange(count) * ticks + ticks - 1
    observation = windows.observation.take(last) if ticks > 1 else windows.observation
    ending = _at(candidates, last) if ticks > 1 else candidates
    distribution, value = policy.decode(hidden, ending, observation)
    layers = {ENCODER_OUTPUT: steps[:, -1], ACTION_DECODER: policy.read(hidden)}
    states = {LSTM_HIDDEN: memory.hidden, LSTM_CELL: memory.cell}
    for kind in STATES[policy.cell]:
        for number, name in enumerate(memory_names(kind, policy.layers)):
            layers[name] = states[kind][number]
    return Outcome(value, distribution, layers, windows.action)


def _at(candidates: Candidates, last: torch.Tensor) -> Candidates:
    rows, keys = {}, {}
    for table, ragged in candidates.rows.items():
        places = replace(ragged, values=torch.arange(len(ragged.values)).unsqueeze(1)).take(last).values.squeeze(1)
        rows[table] = ragged.take(last)
        keys[table] = candidates.keys[table].index_select(0, places)
    return Candidates(rows, keys, candidates.layers)


@dataclass(frozen=True, eq=False)
class Sample:
    """Consecutive ticks of one life."""

    records: Records  # the ticks, and those before them that the windows need
    lead: int  # ticks before the first one that is attributed

    @property
    def shown(self) -> Records:
        """The ticks that are attributed."""
        return self.records.take(np.arange(self.lead, len(self.records)))

    def __len__(self) -> int:
        return len(self.records) - self.lead

    def windows(self, policy: RecurrentPolicy, layout: ObservationLayout, ticks: int) -> LifeWindows:
        """Return a window of this many ticks for each tick that is attributed.

        The memory before a window is the recorded one; that before a life is empty.
        """
        ends = np.arange(self.lead, len(self.records))
        rows = (ends[:, None] - np.arange(ticks - 1, -1, -1)).ravel()
        before = ends - ticks
        names = state_layers(policy)
        if names:
            recorded = {name: self.records.activations[name][np.maximum(before, 0)] for name in names}
            memory = memory_from_layers(policy, recorded)
            memory.clear(torch.from_numpy(np.flatnonzero(before < 0)))
        else:
            memory = policy.initial_state(len(ends))
        observation = packed_observation(self.records.take(rows), layout, policy.mask)
        return LifeWindows(observation, ticks, memory, torch.from_numpy(self.records.action[ends]))


def read_samples(
    settings: SaliencySettings, metadata: DumpMetadata, policy: RecurrentPolicy, progress: Progress,
    among: np.ndarray | None = None, starts: Mapping[tuple[int, ...], Sequence[int]] | None = None,
) -> list[Sample]:  # fmt: skip
    """Draw lives, and a segment of each, at random.

    Args:
        among: slot, agent and episode of the lives to draw from, (L, 3); all where None.
        starts: ticks of each life, counted from its first record, that a segment may begin with; lives without any are
            left out. Any tick where None.

    Raises:
        UserError: the dump lacks a state of the memory, or has too few lives that are long enough.
    """
    dump, ticks = settings.dump, settings.ticks
    if missing := [name for name in state_layers(policy) if name not in metadata.layers]:
        raise UserError(f"{dump} lacks {', '.join(missing)}, the policy's memory: {record_again(dump, metadata)}")
    keys, index = number_lives(read_identity(dump))
    lengths = np.bincount(index)
    lead = settings.window - 1
    # Where the first memory of a life is not known, windows begin after a tick of it.
    earliest = 0 if metadata.begins_empty or not state_layers(policy) else 1
    possible = lengths >= earliest + lead + ticks
    if among is not None:
        possible &= (keys[:, None, :] == among[None]).all(axis=2).any(axis=1)
    if starts is not None:
        late = {key: [start for start in those if start >= earliest + lead] for key, those in starts.items()}
        starts = {key: those for key, those in late.items() if those}
        possible &= np.array([tuple(key) in starts for key in keys.tolist()], dtype=bool)
    random = np.random.default_rng([settings.seed, 1])
    chosen = random.permutation(np.flatnonzero(possible))[: settings.samples]
    if len(chosen) < settings.samples:
        raise UserError(_too_few(settings, len(chosen), earliest + lead, labelled=among is not None))
    first = {}
    for life in chosen:
        key = tuple(keys[life].tolist())
        if starts is None:
            first[key] = int(random.integers(earliest, lengths[life] - lead - ticks + 1))
        else:
            first[key] = int(random.choice(starts[key])) - lead
    records = read_dump(
        dump, layers=state_layers(policy), columns=["task", "legal"], lives=keys[chosen].tolist(), progress=progress
    )
    own_keys, own = number_lives({"env_id": records.env_id, "agent_id": records.agent_id, "episode": records.episode})
    samples = []
    for number, key in enumerate(own_keys.tolist()):
        (place,) = (own == number).nonzero()
        place = place[np.argsort(records.tick[place], kind="stable")]
        start = first[tuple(key)]
        # One record more than the windows need, for the memory before the first of them.
        begin = max(start - 1, 0)
        samples.append(Sample(records.take(place[begin : start + lead + ticks]), lead + start - begin))
    return samples


def _too_few(settings: SaliencySettings, lives: int, lead: int, labelled: bool) -> str:
    """Say which lives are too few for --samples, and what to do; so many ticks of a life must come before a sample."""
    dump, ticks, before = settings.dump, settings.ticks, settings.before
    where = "that --clusters labels " if labelled else ""
    if settings.event:
        return (
            f"only {lives} lives {where}of {dump} have the --event at least {lead + before} ticks after their start, "
            f"the last {before} without it, and {ticks - before} before their end; --samples needs {settings.samples}: "
            "lower --samples, --ticks or --lags, or extract more"
        )
    selected = "with points of --selection " if settings.selection else ""
    more = "select points of more lives" if selected else "extract more"
    return (
        f"{dump} has {lives} lives {selected}{where}of {lead + ticks} ticks or more, --samples {settings.samples} "
        f"needs as many: lower --samples, --ticks or --lags, or {more}"
    )


def starts_around(settings: SaliencySettings, places: Places) -> dict[tuple[int, ...], list[int]]:
    """Return the ticks of each life that a sample around one of some records may begin with, as `read_samples` takes.

    Args:
        places: of records of the dump.
    """
    identity = read_identity(settings.dump)
    keys, life = number_lives(identity)
    lengths, rank = np.bincount(life), rank_in_life(life, identity["tick"])
    rows = places_among(places, identity)
    starts: dict[tuple[int, ...], list[int]] = {}
    for row in rows[rows >= 0].tolist():
        last = int(lengths[life[row]]) - settings.ticks
        start = min(max(int(rank[row]) - settings.before, settings.window - 1), last)
        starts.setdefault(tuple(keys[life[row]].tolist()), []).append(start)
    return starts
