"""Lives written down tick by tick, so that what follows each tick is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from activation_store.columns import COLUMNS
from activation_store.exchange.original_tools import ACTION_HEADS, ENTITY_COLUMNS
from activation_store.schema import DumpMetadata, RaggedRows, Records
from activation_store.writer import DumpWriter
from analysis.features.surroundings import RADIUS, SIDE
from tests.planted import planted_metadata

STAY = 4
_COLUMN = {name: i for i, name in enumerate(ENTITY_COLUMNS)}
_HEAD = {head.name: i for i, head in enumerate(ACTION_HEADS)}
Other = tuple[int, int, int, int]
"""Another entity in view: id, npc_type, row, col."""


@dataclass(frozen=True)
class HandMade:
    """One life, every sequence with one entry per tick."""

    row: Sequence[int]  # of the agent
    col: Sequence[int]  # of the agent
    moves: Sequence[int] | None = None  # options of `Move.Direction`; none by default
    own: Mapping[str, Sequence[int]] = field(default_factory=dict)  # further columns of the agent's own row
    others: Mapping[int, Sequence[Other]] = field(default_factory=dict)  # in view, in every tick
    attacks: Mapping[int, int] = field(default_factory=dict)  # tick -> index of the attacked one among the others
    done: bool = True  # whether the last record says that the life ended with it
    agent: int = 1
    episode: int = 0


def hand_made(
    lives: Sequence[HandMade], layers: dict[str, np.ndarray] | None = None, shuffle: int | None = None
) -> tuple[Records, DumpMetadata]:
    """Return records of the lives, one after the other, unless they are to be shuffled, and their metadata.

    Args:
        lives: to make records of; every episode is on a map of its own.
        layers: activations, layer -> (B, units), in the order of the lives; by default a layer of zeros.
        shuffle: a seed.
    """
    lengths = [len(life.row) for life in lives]
    count = sum(lengths)
    activations = layers or {"lstm_hidden": np.zeros((count, 2), np.float32)}
    tick = np.concatenate([np.arange(n) for n in lengths])
    agent, episode = (np.repeat([getattr(life, name) for life in lives], lengths) for name in ("agent", "episode"))
    tables = [_entities(life, t) for life in lives for t in range(len(life.row))]
    offsets = np.concatenate([[0], np.cumsum([len(table) for table in tables])]).astype(np.int64)
    tile = np.zeros((count, 225, 3), np.int16)
    place = np.concatenate([np.stack([life.row, life.col], axis=1) for life in lives])  # (count, 2)
    tile[:, :, :2] = place[:, None] + (np.indices((SIDE, SIDE)).reshape(2, -1).T - RADIUS)
    tile[:, :, 2] = 2
    done = np.concatenate([np.arange(n) == n - 1 for n in lengths]) & np.repeat([life.done for life in lives], lengths)
    records = Records(
        step=tick, env_id=agent - 1, agent_id=agent, episode=episode, tick=tick,
        reward=np.zeros(count, np.float32), value=np.zeros(count, np.float32),
        action=np.array([_action(life, t) for life in lives for t in range(len(life.row))], np.int64),
        log_probability=np.zeros((count, len(ACTION_HEADS)), np.float32),
        activations={name: values.astype(np.float32) for name, values in activations.items()},
        tile=tile, entity=RaggedRows(np.concatenate(tables), offsets),
        inventory=RaggedRows(np.zeros((0, 16), np.int16), np.zeros(count + 1, np.int64)),
        columns={"done": done, "map": episode.astype(np.int32)},
    )  # fmt: skip
    metadata = planted_metadata({name: values.shape[1] for name, values in activations.items()})
    metadata = replace(metadata, columns={name: COLUMNS[name] for name in ("done", "map")})
    if shuffle is not None:
        records = records.take(np.random.default_rng(shuffle).permutation(count))
    return records, metadata


def write_hand_made(folder: Path, records: Records, metadata: DumpMetadata) -> Path:
    """Write records, whose episodes are each on a map of its own, as a dump; return its folder."""
    with DumpWriter(folder, replace(metadata, format="parquet")) as writer:
        writer.write(records)
        writer.close([{"episode": n, "seed": n, "map": n} for n in np.unique(records.episode).tolist()])
    return folder


def _entities(life: HandMade, tick: int) -> np.ndarray:
    """Return the others in view, then the agent's own row."""
    table = np.zeros((len(life.others.get(tick, ())) + 1, len(ENTITY_COLUMNS)), np.int16)
    for place, other in enumerate(life.others.get(tick, ())):
        table[place, [_COLUMN[name] for name in ("id", "npc_type", "row", "col")]] = other
    own = {"id": life.agent, "row": life.row[tick], "col": life.col[tick], "time_alive": tick, "health": 100}
    own |= {name: values[tick] for name, values in life.own.items()}
    table[-1, [_COLUMN[name] for name in own]] = list(own.values())
    return table


def _action(life: HandMade, tick: int) -> list[int]:
    chosen = [head.noop or 0 for head in ACTION_HEADS]
    chosen[_HEAD["Move.Direction"]] = STAY if life.moves is None else life.moves[tick]
    if tick in life.attacks:
        chosen[_HEAD["Attack.Target"]] = life.attacks[tick]
    return chosen
