"""Whole lives of a dump as tracks of the memory's state, and the update by which the policy that made them goes on.

The update is a function of one vector: the state of an agent, hidden states of all layers, then cell states; with its
derivatives by automatic differentiation. Inputs of the memory (`encoder_output`) are held as recorded: nothing passes
through the game.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from activation_store.layers import ENCODER_OUTPUT, LSTM_CELL, LSTM_HIDDEN
from activation_store.lives import number_lives
from activation_store.reader import Progress, read_dump, read_identity
from activation_store.recording import record_again
from activation_store.records import Records
from activation_store.schema import MAY_BE_UNRECORDED, DumpMetadata, refuse_kept_memory
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, load_checkpoint
from agent_zoo.checkpoint_files import policy_path
from agent_zoo.memory import MemoryState
from analysis.features.observed import feature_columns
from analysis.lives import Lives, lives_of
from analysis.recorded.recorded_observation import state_layers
from common.files import sha256
from common.user_error import UserError

BEFORE = 6
"""Ticks before the first that has a behaviour: trajectories are so long."""
_SHORTEST_REACHED = 6
SHORTEST_LIFE = 16
"""Ticks of the shortest life that is drawn."""
_CLOSE = {"float32": 1e-3, "float16": 3e-2}
"""How far a recomputed state may be from the recorded one, by the dump's precision."""
_NO_CELL = 1e-4
"""Below this |tanh(c)|, the output gate cannot be told from h = o tanh(c)."""


@dataclass(frozen=True, eq=False)
class Tracks:
    """B records of whole lives, every tick of each."""

    records: Records
    lives: Lives
    state: np.ndarray  # of the memory after the tick, (B, S) float32; (B, 0) if the layer under study is no state of it
    read: np.ndarray  # what the memory reads in the tick, (B, units) float32; (B, 0) likewise
    layer: np.ndarray  # the states of the layer under study, (B, units) float32

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def place(self) -> np.ndarray:
        """Each record's place in its life, from 0, (B,) int64."""
        places = np.empty(len(self), np.int64)
        places[self.lives.order] = np.arange(len(self)) - np.repeat(self.lives.starts, self.lives.lengths)
        return places

    def ahead(self, records: np.ndarray, ticks: int) -> np.ndarray:
        """Return the records this many ticks later (earlier if negative) in the same life; -1 if there is none.

        Args:
            records: (n,) int64.
        """
        life, place = self.lives.index[records], self.place[records] + ticks
        there = (place >= 0) & (place < self.lives.lengths[life])
        position = np.where(there, self.lives.starts[life] + place, 0)
        return np.where(there, self.lives.order[position], -1)

    def with_ticks_around(self, before: int, after: int) -> np.ndarray:
        """Return the records with so many ticks of the same life before and after them, ascending, (n,) int64."""
        return np.flatnonzero((self.place >= before) & (self.place + after < self.lives.lengths[self.lives.index]))


class Update:
    """One tick of a memory, in double precision.

    Attributes:
        states: the memory's state layers, in the order in which they make up the vector.
        units: of each of them.
    """

    def __init__(self, policy: RecurrentPolicy):
        """Copy the memory of a policy.

        Raises:
            UserError: the policy has no memory.
        """
        if policy.memory is None:
            raise UserError("the policy is feed-forward: it has no memory whose dynamics could be analysed")
        self._memory = copy.deepcopy(policy.memory).double().requires_grad_(False)
        self._layers = policy.layers
        self.states = tuple(state_layers(policy))
        self.units = policy.policy.hidden_size

    @property
    def size(self) -> int:
        """Numbers in the state vector."""
        return len(self.states) * self.units

    def place(self, layer: str) -> slice:
        """Return where a state layer lies in the vector.

        Raises:
            UserError: it is no state of this memory.
        """
        if layer not in self.states:
            raise UserError(f"{layer} is not a state of this policy's memory, which has: {', '.join(self.states)}")
        start = self.states.index(layer) * self.units
        return slice(start, start + self.units)

    def vector(self, activations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the state vectors of records, (B, S) float32."""
        return np.concatenate([activations[name] for name in self.states], axis=1)

    def __call__(self, state: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        """Return the state after one tick.

        Args:
            state: before it, (B, S) float64.
            read: what the memory reads, (B, units) float64.
        """
        parts = state.unflatten(1, (-1, self.units)).transpose(0, 1)  # (states, B, units)
        before = MemoryState(parts[: self._layers].contiguous(), parts[self._layers :].contiguous())
        _, after = self._memory.play(read.unsqueeze(0), before)
        return torch.cat([after.hidden, after.cell]).transpose(0, 1).flatten(1)

    def push(
        self, state: torch.Tensor, read: torch.Tensor, tangents: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the state after one tick, (B, S), and what becomes of small changes of the state before.

        Args:
            state: before the tick, (B, S).
            read: (B, units).
            tangents: changes, (K, B, S).

        Returns:
            The state, and Jacobian @ change of every record, (K, B, S); by forward-mode differentiation.
        """

        def along(change: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            after, moved = torch.func.jvp(lambda before: self(before, read), (state,), (change,))[:2]
            return after, moved

        after, moved = torch.func.vmap(along)(tangents)
        return after[0], moved

    def jacobian(self, state: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        """Return the derivative of every state after the tick by every state before: (B, S after, S before)."""
        units = torch.eye(self.size, dtype=torch.float64).unsqueeze(1).expand(-1, len(state), -1)
        return self.push(state, read, units)[1].permute(1, 2, 0)

    def changed(self, layer: str, state: torch.Tensor, changes: torch.Tensor) -> torch.Tensor:
        """Return changes of the whole state for small changes of one layer.

        A changed cell state changes its layer's hidden state too, h = o tanh(c), as an intervention does; a changed
        hidden state leaves the cell as it is.

        Args:
            state: (B, S).
            changes: of the layer, (K, units).

        Returns:
            (K, B, S).
        """
        own = self.place(layer)
        whole = state.new_zeros(len(changes), len(state), self.size)
        whole[:, :, own] = changes.unsqueeze(1)
        if layer.startswith(LSTM_CELL):
            follows, gate = self._gate(layer, state)
            slope = gate * (1 - state[:, own].tanh() ** 2)  # (B, units)
            whole[:, :, follows] = changes.unsqueeze(1) * slope
        return whole

    def edited(self, layer: str, state: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
        """Return the state, (B, S), once a change, (B, units), was added to one layer; as `changed`, but not small."""
        own = self.place(layer)
        after = state.clone()
        after[:, own] += change
        if layer.startswith(LSTM_CELL):
            follows, gate = self._gate(layer, state)
            after[:, follows] = gate * after[:, own].tanh()
        return after

    def _gate(self, layer: str, state: torch.Tensor) -> tuple[slice, torch.Tensor]:
        """Where a cell's hidden state lies, and its output gate in this tick, from h = o tanh(c), (B, units)."""
        read, hidden = state[:, self.place(layer)].tanh(), self.place(LSTM_HIDDEN + layer.removeprefix(LSTM_CELL))
        known = read.abs() > _NO_CELL
        return hidden, torch.where(known, state[:, hidden] / torch.where(known, read, 1.0), 0.5).clamp(0, 1)


def load_policy_of(
    metadata: DumpMetadata, dump: Path, policy: Path | None, policies_dir: Path
) -> tuple[RecurrentPolicy, CheckpointInfo]:
    """Load the policy that a dump was recorded from, found by its checkpoint's hash.

    Args:
        policy: checkpoint file; None to look for it in `policies_dir`.

    Raises:
        UserError: the dump names no checkpoint, or the file is missing or another one.
    """
    refuse_kept_memory(dump, metadata)
    if metadata.checkpoint_sha256 is None:
        raise UserError(f"{dump} was recorded from a policy without a checkpoint, so its weights are not known")
    if policy is None:
        candidates = [policy_path(place, metadata.policy) for place in (policies_dir, policies_dir / "checkpoints")]
        there = [path for path in candidates if path.is_file()]
        if not there:
            raise UserError(
                f"{candidates[0]} does not exist: name the checkpoint that {dump} was recorded from with --policy"
            )
        policy = there[0]
    if not policy.is_file():
        raise UserError(f"there is no policy {policy}: name the checkpoint file that {dump} was recorded from")
    if sha256(policy) != metadata.checkpoint_sha256:
        raise UserError(f"{policy} is not the checkpoint that {dump} was recorded from: their hashes differ")
    return load_checkpoint(policy)


def check_lengths(dump: Path, count: int, seed: int, reach: int, lags: int) -> None:
    """Refuse a reach or lags for which the lives that will be drawn are too short, before anything is computed.

    Raises:
        UserError: names the option, and the largest value that fits.
    """
    _, lengths, drawn = _drawn(dump, count, SHORTEST_LIFE, seed)
    longest = np.sort(lengths[drawn])[::-1]
    if longest[0] <= lags + BEFORE:
        raise UserError(f"--lags is {lags}: no life drawn is long enough; lower it or extract longer episodes")
    second = int(longest[min(1, len(longest) - 1)])
    if second < 2 * reach + 2 or len(longest) < 2:
        fits = f"--reach {(second - 2) // 2} fits" if len(longest) > 1 and second >= _SHORTEST_REACHED else "lower it"
        raise UserError(
            f"--reach is {reach}: fewer than two of the lives drawn last {2 * reach + 2} ticks; {fits}, or extract "
            "longer episodes"
        )


def evenly(values: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many of some values, evenly spread over all of them."""
    count = min(most, len(values))
    return values[np.arange(count) * len(values) // max(count, 1)]


def _drawn(dump: Path, count: int, shortest: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw lives that last at least `shortest` ticks.

    Returns:
        Slot, agent and episode of all lives, (L, 3) int64; their ticks, (L,); and the places of those drawn, ascending,
        `count` of them at most.

    Raises:
        UserError: no life is that long.
    """
    keys, index = number_lives(read_identity(dump))
    lengths = np.bincount(index)
    (long,) = (lengths >= shortest).nonzero()
    if not len(long):
        raise UserError(f"no life in {dump} lasts {shortest} ticks: extract more or longer episodes")
    return keys, lengths, np.sort(np.random.default_rng([seed, 1]).permutation(long)[:count])


def read_tracks(
    dump: Path, metadata: DumpMetadata, update: Update | None, layer: str, count: int, seed: int,
    progress: Progress | None = None, others: Sequence[str] = (), shortest: int = SHORTEST_LIFE,
) -> Tracks:  # fmt: skip
    """Read whole lives, drawn at random, and check that the policy gives their states if its update is needed.

    Args:
        update: of its policy; None if the layer is no state of the memory.

    Raises:
        UserError: the dump lacks a layer, or has too short lives, or its states are not the policy's.
    """
    needed = () if update is None else (ENCODER_OUTPUT, *update.states)
    if missing := [name for name in needed if name not in metadata.layers]:
        raise UserError(
            f"{dump} lacks {', '.join(missing)}, which the policy's update needs: {record_again(dump, metadata)}"
        )
    keys, _, drawn = _drawn(dump, count, shortest, seed)
    records = read_dump(
        dump, layers=list(dict.fromkeys((*needed, layer, *others))), columns=feature_columns(metadata),
        lives=keys[drawn].tolist(), leave_out=["tables", *MAY_BE_UNRECORDED], progress=progress,
    )  # fmt: skip
    studied, nothing = records.activations[layer], np.empty((len(records), 0), np.float32)
    if update is None:
        return Tracks(records, lives_of(records), nothing, nothing, studied)
    state, read = update.vector(records.activations), records.activations[ENCODER_OUTPUT]
    tracks = Tracks(records, lives_of(records), state, read, studied)
    _check_policy(tracks, update, metadata, dump)
    return tracks


def portions(
    records: np.ndarray, progress: Callable[[float], None], at_once: int = 128
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield records, (n,), a few at a time, with their places among all."""
    for start in range(0, len(records), at_once):
        yield slice(start, start + at_once), records[start : start + at_once]
        progress(min(1.0, (start + at_once) / len(records)))


def tensor(array: np.ndarray) -> torch.Tensor:
    """Return an array as float64 tensor."""
    return torch.from_numpy(np.asarray(array, np.float64))


def _check_policy(tracks: Tracks, update: Update, metadata: DumpMetadata, dump: Path) -> None:
    """Refuse states that do not follow from each other by the policy's update."""
    some = tracks.with_ticks_around(0, 1)[:: max(1, len(tracks) // 256)]
    later = tracks.ahead(some, 1)
    with torch.no_grad():
        computed = update(tensor(tracks.state[some]), tensor(tracks.read[later])).numpy()
    if (apart := float(np.abs(computed - tracks.state[later]).max())) > _CLOSE[metadata.precision]:
        raise UserError(
            f"{dump} does not belong to this policy: its states are up to {apart:.2g} from what the policy makes of "
            "the ones before; give the policy that was recorded"
        )
