"""Dumps with planted behaviours, lives and clusters, so that results of analyses are known in advance."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.columns import COLUMNS, legal_column, logits_column, pack_legal, task_column, truth_column
from activation_store.exchange.original_tools import ACTION_HEADS, ENTITY_COLUMNS, INVENTORY_COLUMNS
from activation_store.schema import DumpMetadata, RaggedRows, Records
from activation_store.writer import DumpWriter

STILL, FIGHTING, TRADING = range(3)
BEHAVIOURS = 3
AGENTS_IN_AN_EPISODE = 8


@dataclass(frozen=True)
class Planted:
    """A dump and the truth about it: the behaviour of each record, (B,) int64."""

    records: Records
    metadata: DumpMetadata
    behaviour: np.ndarray


def planted_metadata(layers: dict[str, int] | None = None) -> DumpMetadata:
    """Return the metadata of a dump without a checkpoint."""
    return DumpMetadata(
        policy="planted",
        agent="planted_agent",
        checkpoint_sha256=None,
        steps_trained=0,
        layers=layers or {"action_decoder": 16},
        entity_columns=ENTITY_COLUMNS,
        inventory_columns=INVENTORY_COLUMNS,
        action_heads=ACTION_HEADS,
        environment={"horizon": 1024},
        combat_status_ticks=3,
        seed=0,
    )


def planted_dump(
    seed: int = 0,
    agents: int = AGENTS_IN_AN_EPISODE,
    episodes: int = 2,
    ticks: int = 60,
    separation: float = 8.0,
    layers: dict[str, int] | None = None,
) -> Planted:
    """Plant lives of uneven length, each a chain of bouts of one behaviour, `separation` standard deviations apart."""
    rng = np.random.default_rng(seed)
    metadata = planted_metadata(layers)
    centres = {name: separation * rng.normal(size=(BEHAVIOURS, units)) for name, units in metadata.layers.items()}
    rows = []
    for episode in range(episodes):
        lifespans = rng.integers(max(2, ticks // 2), ticks + 1, agents)
        behaviours = np.array([_bouts(rng, ticks) for _ in range(agents)])
        for tick in range(ticks):
            for slot in np.flatnonzero(lifespans > tick):
                rows.append((episode * ticks + tick, slot, slot + 1, episode, tick, behaviours[slot, tick]))
    step, env_id, agent_id, episode_of, tick_of, behaviour = np.array(rows, np.int64).T
    count = len(step)
    entity = [_entities(rng, *row) for row in zip(agent_id, tick_of, behaviour, strict=True)]
    records = Records(
        step=step,
        env_id=env_id,
        agent_id=agent_id,
        episode=episode_of,
        tick=tick_of,
        reward=rng.normal(size=count).astype(np.float32),
        value=rng.normal(size=count).astype(np.float32),
        action=np.array([_action(rng, kind) for kind in behaviour], np.int64),
        log_probability=-rng.exponential(size=(count, len(ACTION_HEADS))).astype(np.float32),
        activations={
            name: (centres[name][behaviour] + rng.normal(size=(count, units))).astype(np.float32)
            for name, units in metadata.layers.items()
        },
        tile=rng.integers(0, 128, (count, 225, 3)).astype(np.int16),
        entity=_ragged(entity),
        inventory=_ragged([rng.integers(0, 50, (rng.integers(0, 4), 16)).astype(np.int16) for _ in range(count)]),
    )
    return Planted(records, metadata, behaviour)


def with_optional_parts(planted: Planted) -> Planted:
    """Return the same dump with every kind of optional column and another table."""
    rng, count = np.random.default_rng(1), len(planted.records)
    sizes = [head.size for head in ACTION_HEADS]
    declared = {
        "map": COLUMNS["map"],
        "done": COLUMNS["done"],
        "legal": legal_column(sizes),
        "logits": logits_column(sizes),
        "task": task_column(8),
        "truth/attack_level": truth_column("int16", "levels", "The engine's own attack level."),
        "truth/distance": truth_column("float32", "tiles", "Distance to the centre of the map."),
    }
    columns = {
        "map": planted.records.episode.astype(np.int32) + 1,
        "done": rng.random(count) < 0.1,
        "legal": pack_legal(rng.random((count, sum(sizes))) < 0.5),
        "logits": rng.normal(size=(count, sum(sizes))).astype(np.float32),
        "task": rng.normal(size=(count, 8)).astype(np.float32),
        "truth/attack_level": rng.integers(-5, 50, count).astype(np.int16),
        "truth/distance": rng.normal(size=count).astype(np.float32),
    }
    market = _ragged([rng.integers(0, 50, (rng.integers(0, 3), 16)).astype(np.int16) for _ in range(count)])
    return replace(
        planted,
        records=replace(planted.records, columns=columns, tables={"Market": market}),
        metadata=replace(planted.metadata, columns=declared, tables={"Market": INVENTORY_COLUMNS}),
    )


def write_planted(folder: Path, planted: Planted, batch: int = 50, **changes: Any) -> Path:
    """Write a planted dump to `folder` in batches, as an extraction would, and return the folder.

    `changes` are made to the metadata, for example `format="parquet"`.
    """
    with DumpWriter(folder, replace(planted.metadata, **changes)) as writer:
        for start in range(0, len(planted.records), batch):
            writer.write(planted.records.take(np.arange(start, min(start + batch, len(planted.records)))))
        writer.close([{"episode": 0, "seed": 1, "map": 1}])
    return folder


def _bouts(rng: np.random.Generator, ticks: int) -> np.ndarray:
    bouts = rng.integers(0, BEHAVIOURS, ticks)
    return np.repeat(bouts, rng.integers(5, 15, ticks))[:ticks]


def _entities(rng: np.random.Generator, agent_id: int, tick: int, behaviour: int) -> np.ndarray:
    """Visible entities, with the agent in a random row; fighters were last in combat up to three ticks ago."""
    players, npcs = rng.integers(0, 4), rng.integers(0, 6)
    table = np.zeros((1 + players + npcs, len(ENTITY_COLUMNS)), np.int16)
    column = {name: i for i, name in enumerate(ENTITY_COLUMNS)}
    table[:, column["id"]] = np.concatenate([[agent_id], 1000 + np.arange(players), -1 - np.arange(npcs)])
    table[:, column["npc_type"]] = np.concatenate([[0], rng.integers(-1, 1, players), rng.integers(1, 4, npcs)])
    for name in ("gold", "health", "food", "water", "melee_level", "range_level", "mage_level"):
        table[:, column[name]] = rng.integers(0, 100, len(table))
    if behaviour == FIGHTING:
        table[0, column["latest_combat_tick"]] = max(0, tick - rng.integers(0, 5))
    return rng.permutation(table)


def _action(rng: np.random.Generator, behaviour: int) -> list[int]:
    chosen = {head.name: head.noop or 0 for head in ACTION_HEADS}
    if behaviour == FIGHTING:
        chosen["Attack.Target"] = int(rng.integers(0, 100))
    if behaviour == TRADING:
        head, others = [
            ("Buy.MarketItem", {}),
            ("Sell.InventoryItem", {}),
            ("GiveGold.Target", {}),
            ("Give.InventoryItem", {"Give.Target": 3}),
        ][rng.integers(0, 4)]
        chosen |= {head: int(rng.integers(0, 10)), **others}
    if behaviour != STILL:
        chosen["Move.Direction"] = int(rng.integers(0, 5))
    if rng.random() < 0.1:
        chosen["Give.Target"] = 7
    return list(chosen.values())


def _ragged(tables: list[np.ndarray]) -> RaggedRows:
    counts = np.array([len(table) for table in tables])
    return RaggedRows(np.concatenate(tables), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
