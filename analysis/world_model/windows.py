"""Training and test windows of a dump's lives, as tensors; maps are divided between training and testing."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isqrt
from pathlib import Path

import numpy as np
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from activation_store.reader import read_metadata
from activation_store.recording import record_again
from activation_store.schema import DumpMetadata, refuse_kept_memory
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo
from agent_zoo.memory import MemoryState
from agent_zoo.soft_path import check_reads_probabilities
from analysis.recorded.recorded_observation import check_shows_everything, packed_observation, state_layers
from analysis.recorded.sequences import Parts, SequenceBatch, windows
from analysis.world_model.policy_interface import Surroundings, recorded_actions
from analysis.world_model.scene import (
    MOVES,
    UNKNOWN,
    Scene,
    SoftScene,
    displacement,
    kind_totals,
    moved_terrain,
    scene_of,
    unknown_terrain,
    with_view,
)
from common.user_error import UserError

CONTEXT = 3
"""Ticks that the model sees before it predicts."""
FIRST_END = CONTEXT + 1
"""First tick of a window in which it is asked whether the life has ended. In the one before, which a window predicts
first, none ever has: of a life that ends there, the window before asks, in the tick after its last record. It asks of
those that go on, too. Otherwise an end would be known by how many ticks ago the context was."""

_TEST_SHARE = 4
"""One of so many maps is tested on."""


@dataclass(frozen=True, eq=False)
class Windows:
    """W windows of the same policy's lives, padded at the end to T ticks; N records in total.

    The first `CONTEXT` ticks are given, the others are to be predicted. If a life ends with a window's last record,
    one tick more is to be predicted: that there is none.
    """

    scene: Scene  # of all records, window by window, N
    place: torch.Tensor  # position of each record in a flattened grid of windows and ticks, (N,) int64
    lengths: torch.Tensor  # ticks of each window, (W,) int64, above `CONTEXT` - 1
    action: torch.Tensor  # code of each action, (W, T, size)
    reward: torch.Tensor  # (W, T)
    ends: torch.Tensor  # whether the life ends with the tick, (W, T)
    hidden: torch.Tensor  # of the policy's memory after each tick, (W, T, layers, units)
    cell: torch.Tensor
    around: Surroundings  # as of the last tick of the context
    where: torch.Tensor  # row and column on the map, (W, T, 2) int64
    # kind_totals: sums of the other entities' columns of `Scene.own` by kind, and their number, (kinds, columns + 1)
    kind_totals: torch.Tensor
    identity: torch.Tensor  # episode, agent and tick of each window's first record, (W, 3) int64

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def ticks(self) -> int:
        """T."""
        return self.action.shape[1]

    def at(self, tick: int) -> tuple[torch.Tensor, Scene]:
        """Return the windows that have a tick, (some,) int64, and the scenes that they show in it."""
        (there,) = (self.lengths > tick).nonzero(as_tuple=True)
        return there, self.scene.take(self.starts[there] + tick)

    def last_given(self, materials: int) -> SoftScene:
        """Return the scenes of the last tick of the context, with the terrain that was in view until then."""
        terrain = unknown_terrain(len(self), isqrt(self.scene.material.shape[1]))
        for tick in range(CONTEXT):
            if tick:
                step = self.where[:, tick] - self.where[:, tick - 1]
                moved = displacement(self.where[:, tick - 1], self.where[:, tick])
                terrain = moved_terrain(terrain, moved)
                terrain[(step != torch.tensor(MOVES)[moved]).any(dim=1)] = UNKNOWN  # it did not walk there
            terrain = with_view(terrain, self.scene.material[self.starts + tick])
        return replace(self.at(CONTEXT - 1)[1].soft(materials), terrain=terrain)

    @property
    def starts(self) -> torch.Tensor:
        """Position of each window's first record, (W,) int64."""
        return torch.cumsum(self.lengths, 0) - self.lengths

    def part(self, first: int, last: int) -> "Windows":
        """Return consecutive windows."""
        ends = torch.cat([torch.zeros(1, dtype=torch.int64), self.lengths.cumsum(0)])
        records, kept = slice(int(ends[first]), int(ends[last])), torch.arange(first, last)
        whole = ("lengths", "action", "reward", "ends", "hidden", "cell", "where", "identity")
        return replace(
            self, scene=self.scene.take(torch.arange(records.start, records.stop)),
            place=self.place[records] - first * self.ticks, around=self.around.take(kept),
            **{name: getattr(self, name)[first:last] for name in whole},
        )  # fmt: skip

    def going(self, left: torch.Tensor, tick: int) -> torch.Tensor:
        """Return the places in `left`, (W,) int64, of windows that have this tick, or end in death just before.

        In the tick after the longest windows, these too: whether the life goes on is known of them as well.
        """
        there = self.lengths[left] > tick
        over = (self.lengths[left] == tick) & ((self.ends[left, tick - 1] > 0) | (tick == self.ticks))
        return (there | over).nonzero(as_tuple=True)[0]

    def memory(self, tick: int, chosen: torch.Tensor | None = None) -> MemoryState:
        """Return the memory after a tick, of the chosen windows."""
        hidden, cell = self.hidden[:, tick], self.cell[:, tick]  # (W, layers, units)
        if chosen is not None:
            hidden, cell = hidden[chosen], cell[chosen]
        return MemoryState(hidden.transpose(0, 1), cell.transpose(0, 1))


def memory_layers(metadata: DumpMetadata) -> tuple[str, ...]:
    """Return the recorded layers that are states of the policy's memory."""
    return tuple(name for name in metadata.layers if name.startswith((LSTM_HIDDEN, LSTM_CELL)))


def check_dump(
    folder: Path, metadata: DumpMetadata, policy: RecurrentPolicy, info: CheckpointInfo, sha256: str
) -> None:
    """Refuse a dump that a world model of this policy cannot be trained on.

    Raises:
        UserError: the dump lacks something, or is of another policy; or the policy cannot read probabilities.
    """
    refuse_kept_memory(folder, metadata)
    if metadata.format != "parquet":
        raise UserError(f"{folder} is a JSON dump: {record_again(folder, metadata)}")
    if policy.layers == 0 or policy.cell != "lstm":
        raise UserError(f"a world model holds policies with an LSTM, but {metadata.policy} has another memory or none")
    if missing := [layer for layer in state_layers(policy) if layer not in metadata.layers]:
        raise UserError(f"{folder} lacks layer {', '.join(missing)}: {record_again(folder, metadata)}")
    if metadata.checkpoint_sha256 != sha256:
        raise UserError(
            f"{folder} was recorded from a policy with hash {str(metadata.checkpoint_sha256)[:12]}, not {sha256[:12]}: "
            "give the policies folder that it came from with --policies-dir"
        )
    check_reads_probabilities(policy, info.agent)
    check_shows_everything(folder, info.layout)
    if "done" not in metadata.columns or "reward" in metadata.unrecorded:
        raise UserError(f"{folder} lacks rewards or ends of lives: {record_again(folder, metadata)}")


def split_maps(folder: Path, metadata: DumpMetadata, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Divide a dump's episodes by their maps, ascending, into those to train on and those to test on.

    A quarter of the maps, drawn at random, are tested on.

    Raises:
        UserError: the episodes are not on two or more known maps.
    """
    maps = maps_of_episodes(metadata)
    known = np.unique([number for number in maps.values() if number is not None])
    if len(known) < 2:
        raise UserError(
            f"{folder} holds episodes on {'1 map' if len(known) else '0 maps'}: a world model is trained on some maps "
            "and tested on others: extract again with more --episodes"
        )
    drawn = np.random.default_rng(seed).permutation(known)[: max(1, round(len(known) / _TEST_SHARE))]
    test = tuple(episode for episode, number in maps.items() if number in drawn)
    return tuple(episode for episode in maps if episode not in test), test


def maps_of_episodes(metadata: DumpMetadata) -> dict[int, int | None]:
    """Return the number of the map of each stored episode, in order; None where it is unknown."""
    maps = {int(episode["episode"]): episode.get("map") for episode in metadata.episodes}
    stored = sorted(file.episode for file in metadata.files.values() if file.episode is not None)
    return {episode: maps.get(episode) for episode in stored}


def maps_of(metadata: DumpMetadata, episodes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of the maps of some episodes, in order."""
    maps = maps_of_episodes(metadata)
    return tuple(sorted({number for episode in episodes if (number := maps[episode]) is not None}))


def world_of(metadata: DumpMetadata) -> tuple[int, int]:
    """Return what maps are generated from: their seed and their size in tiles."""
    return int(metadata.environment["map_seed"]), int(metadata.environment["map_size"])


def read_windows(
    folder: Path, episodes: tuple[int, ...], horizon: int, batch: int, policy: RecurrentPolicy, info: CheckpointInfo,
    seed: int,
) -> Iterator[Windows]:  # fmt: skip
    """Yield the windows of some episodes; every tick after a life's first three is to be predicted in just one window.

    Args:
        seed: of the order.
    """
    for sequences in read_sequences(folder, episodes, horizon, batch, seed):
        yield as_windows(sequences, policy, info)


def read_sequences(
    folder: Path, episodes: tuple[int, ...], horizon: int, batch: int, seed: int
) -> Iterator[SequenceBatch]:
    """Yield the records of the same windows; arguments as for `read_windows`."""
    parts = Parts(layers=memory_layers(read_metadata(folder)), leave_out=("log_probability",), episodes=episodes)
    for sequences in windows(folder, CONTEXT + horizon, stride=horizon, batch=batch, seed=seed, parts=parts):
        kept = sequences.lengths > CONTEXT  # a tick after the context
        if kept.any():
            yield sequences if kept.all() else chosen_sequences(sequences, kept)


def as_windows(batch: SequenceBatch, policy: RecurrentPolicy, info: CheckpointInfo) -> Windows:
    """Turn sequences of at least `CONTEXT` ticks into tensors."""
    layout = info.layout
    observation = packed_observation(batch.records, layout, policy.mask)
    lengths = torch.from_numpy(batch.lengths)
    starts = torch.cumsum(lengths, 0) - lengths
    last = observation.take(starts + CONTEXT - 1)
    action = recorded_actions(torch.from_numpy(batch.records.action), observation, layout)
    identity = np.stack([batch.records.episode, batch.records.agent_id, batch.records.tick], axis=1)
    grid = torch.from_numpy(batch.there)
    where = np.stack([batch.records.column(name) for name in ("row", "col")], axis=1).astype(np.int64)

    def padded(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(batch.padded(values))

    return Windows(
        scene=scene_of(observation, layout), place=grid.flatten().nonzero()[:, 0], lengths=lengths,
        action=padded(action.numpy()), reward=padded(batch.records.reward),
        ends=padded(batch.records.column("done").astype(np.float32)),
        hidden=_states(batch, LSTM_HIDDEN, policy.layers), cell=_states(batch, LSTM_CELL, policy.layers),
        around=Surroundings(last.market, last.task.float()), where=padded(where),
        kind_totals=kind_totals(observation, layout), identity=torch.from_numpy(identity)[starts],
    )  # fmt: skip


def _states(batch: SequenceBatch, kind: str, layers: int) -> torch.Tensor:
    """States of the memory after each tick, (W, T, layers, units)."""
    return torch.from_numpy(np.stack([batch.layer(name) for name in memory_names(kind, layers)], axis=2))


def chosen_sequences(batch: SequenceBatch, kept: np.ndarray) -> SequenceBatch:
    """Return some of the sequences, (S,) bool."""
    records = np.repeat(kept, batch.lengths)
    before = {layer: values[kept] for layer, values in batch.before.items()}
    return SequenceBatch(batch.records.take(records), batch.lengths[kept], batch.first[kept], before)
