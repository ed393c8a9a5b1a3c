"""Recorded lives as other trainings' networks see them: each network's hidden state and code in the same ticks.

Whole lives are replayed from birth, with the memory that each network builds up itself from what the recorded agents
saw. Which acts they took follows from the recording, whatever the other networks would have done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from activation_store.layers import ENCODER_OUTPUT, LSTM_HIDDEN, SEMANTIC_CODE
from activation_store.lives import number_lives
from activation_store.reader import Progress, read_identity
from activation_store.recording import record_again
from activation_store.schema import DumpMetadata, refuse_kept_memory
from activation_store.subsample import Subsample
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, build_policy, load_checkpoint
from agent_zoo.checkpoint_files import policy_names, policy_path
from agent_zoo.shown_settings import SHOWN
from analysis.lives import Lives
from analysis.recorded.recorded_observation import check_shows_everything, packed_observation
from analysis.recorded.sequences import Parts, SequenceBatch, lives
from common.files import sha256
from common.user_error import UserError

EVERY = 10
"""One record in so many of each life is compared; neighbouring ticks are nearly the same."""
_FEWEST = 100
_TOGETHER = 16
_ENCODING = ("encoder", "language_model", "language_model_revision", "embeddings_sha256")


@dataclass(frozen=True, eq=False)
class Network:
    """A policy with a codebook, trained or not; `sha256` is of its file, None if it has none."""

    name: str
    policy: RecurrentPolicy
    info: CheckpointInfo
    sha256: str | None = None


@dataclass(frozen=True, eq=False)
class Seen:
    """What one network makes of N records.

    Attributes:
        hidden: its hidden state, or the encoder's output if it has no memory, (N, units) float32.
        code: number of its nearest code, (N,) int64.
    """

    name: str
    codes: int
    hidden: np.ndarray
    code: np.ndarray


@dataclass(frozen=True, eq=False)
class Drawn:
    """Whole lives of a dump, and which of their records are compared.

    Attributes:
        lives: slot, agent and episode of each, (L, 3) int64, ascending.
        states: number of records that are compared.
    """

    lives: np.ndarray
    subsample: Subsample
    states: int


def load_networks(dump: Path, metadata: DumpMetadata, names: Sequence[str], folder: Path) -> list[Network]:
    """Load trainings that can see the lives of a dump.

    Raises:
        UserError: the dump lacks something, or a training is not there, has no codes, or sees the world in another way.
    """
    if metadata.origin != "game":
        raise UserError(f"{dump} holds simulated lives, which do not begin at birth: give a dump of played ones")
    refuse_kept_memory(dump, metadata)
    if SEMANTIC_CODE not in metadata.layers:
        raise UserError(f"{dump} holds no layer {SEMANTIC_CODE}: record a policy that has codes with --record standard")
    if (hidden := hidden_layer(metadata)) not in metadata.layers:
        raise UserError(f"{dump} holds no layer {hidden}, which k-means is fitted to: {record_again(dump, metadata)}")
    networks = []
    for name in policy_names(folder, names):
        path = policy_path(folder, name)
        policy, info = load_checkpoint(path)
        if not policy.semantic:
            raise UserError(f"{name} has no codes: it was trained without --semantic.codes")
        _check_sees_the_same(name, info, dump, metadata)
        check_shows_everything(dump, info.layout)
        networks.append(Network(name, policy, info, sha256(path)))
    return networks


def hidden_layer(metadata: DumpMetadata) -> str:
    """Return the layer that the codes of a dump's policy are read from."""
    return LSTM_HIDDEN if metadata.environment.get("memory", {}).get("layers", 1) else ENCODER_OUTPUT


def _check_sees_the_same(name: str, info: CheckpointInfo, dump: Path, metadata: DumpMetadata) -> None:
    recorded, own = metadata.environment, {**SHOWN, **info.environment}
    task, own_task = recorded.get("task", {}), info.task
    encoding = _ENCODING if own_task.get("encoder") != "structural" else _ENCODING[:1]
    pairs = [
        ("agent", info.agent, metadata.agent),
        *((setting, own[setting], recorded.get(setting, default)) for setting, default in SHOWN.items()),
        *((f"task {setting}", own_task.get(setting), task.get(setting)) for setting in encoding),
    ]
    for setting, ours, theirs in pairs:
        if ours != theirs:
            raise UserError(
                f"{name} cannot see the lives of {dump} as its policy {metadata.policy} saw them: its {setting} is "
                f"{ours}, not {theirs}"
            )


def untrained(like: CheckpointInfo, seed: int) -> Network:
    """Build a network of the same architecture whose weights the seed decides."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Network(f"untrained (seed {seed})", build_policy(like).eval(), like)


def draw_lives(dump: Path, most: int, seed: int) -> Drawn:
    """Draw whole lives at random.

    Args:
        most: records to compare.
        seed: of the draw.

    Raises:
        UserError: too few records would be compared.
    """
    subsample = Subsample(EVERY, seed=seed)
    keys, index = number_lives(read_identity(dump))
    kept = np.maximum(0, -(-(np.bincount(index) - subsample.first_kept(keys)) // EVERY))
    order = np.random.default_rng(seed).permutation(np.flatnonzero(kept))
    chosen = np.sort(order[np.cumsum(kept[order]) <= most])
    states = int(kept[chosen].sum())
    if states < _FEWEST or len(chosen) < 2:
        raise UserError(
            f"too few states: one record in {EVERY} of whole lives in {dump} gives {states} with --states {most}, and "
            f"{_FEWEST} are needed"
        )
    return Drawn(keys[chosen], subsample, states)


@torch.no_grad()
def replay(
    dump: Path, metadata: DumpMetadata, drawn: Drawn, networks: Sequence[Network], progress: Progress | None = None
) -> tuple[list[Seen], Lives]:
    """Show lives of a dump to networks.

    Args:
        drawn: lives of the dump.
        progress: called with the share of the episodes done.

    Returns:
        What the recorded policy, then each network makes of the records compared; and their lives.
    """
    layer, own = hidden_layer(metadata), metadata.layers[SEMANTIC_CODE]
    parts = Parts(
        layers=(layer, SEMANTIC_CODE), columns=("task", "legal"), leave_out=("reward", "value", "log_probability"),
        episodes=tuple(np.unique(drawn.lives[:, 2]).tolist()), lives=tuple(map(tuple, drawn.lives.tolist())),
    )  # fmt: skip
    hidden: list[list[np.ndarray]] = [[] for _ in range(1 + len(networks))]  # the recorded policy's first
    code: list[list[np.ndarray]] = [[] for _ in hidden]
    life, before = [], 0
    for batch in lives(dump, batch=_TOGETHER, parts=parts, progress=progress):
        kept = _kept(batch, drawn.subsample)
        life.append(before + np.repeat(np.arange(len(batch)), batch.lengths)[kept])
        before += len(batch)
        hidden[0].append(batch.records.activations[layer][kept])
        code[0].append(batch.records.activations[SEMANTIC_CODE][kept].argmax(axis=1))
        mask, layout = networks[0].policy.mask, networks[0].info.layout  # the same in all of them
        observation, lengths = packed_observation(batch.records, layout, mask), torch.from_numpy(batch.lengths)
        for number, network in enumerate(networks, start=1):
            policy = network.policy
            assert policy.semantic
            seen = policy.forward_segments(observation, lengths, policy.initial_state(len(batch))).hidden[kept]
            hidden[number].append(seen.numpy())
            code[number].append(policy.semantic.nearest(policy.semantic.plane(seen)).numpy())
    names = [(metadata.policy, own), *((network.name, _codes(network)) for network in networks)]
    seen_by_network = [
        Seen(name, codes, np.concatenate(states), np.concatenate(numbers))
        for (name, codes), states, numbers in zip(names, hidden, code, strict=True)
    ]
    index = np.unique(np.concatenate(life), return_inverse=True)[1]
    states = np.bincount(index)
    return seen_by_network, Lives(index, np.arange(len(index)), np.cumsum(states) - states, states)


def _kept(batch: SequenceBatch, subsample: Subsample) -> np.ndarray:
    """Say which records of whole lives are compared, (B,) bool."""
    starts = np.cumsum(batch.lengths) - batch.lengths
    records = batch.records
    keys = np.stack([records.env_id, records.agent_id, records.episode], axis=1)[starts]
    rank = np.arange(len(records)) - np.repeat(starts, batch.lengths)
    return subsample.keep(rank, np.repeat(subsample.first_kept(keys), batch.lengths))


def _codes(network: Network) -> int:
    assert network.info.semantic
    return network.info.semantic.codes
