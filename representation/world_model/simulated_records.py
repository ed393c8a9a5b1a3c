"""Write simulated ticks as records of a dump: the most probable tiles, entities and items, in the game's units."""

import numpy as np
import torch

from activation_store.columns import pack_legal
from activation_store.layers import ACTION_DECODER, BOTTLENECK, ENCODER_OUTPUT, LSTM_CELL, LSTM_HIDDEN, memory_names
from activation_store.layers import WORLD_HIDDEN as HIDDEN
from activation_store.layers import WORLD_LATENT as LATENT
from activation_store.records import RaggedRows, Records
from agent_zoo.layers import RowFeatures, entity_features, item_features
from agent_zoo.memory import MemoryState
from agent_zoo.observation import ActionHead, ObservationLayout, PackedRows
from representation.world_model.imagination import ImaginedTick
from representation.world_model.model import WorldModel
from representation.world_model.policy_interface import Surroundings
from representation.world_model.states import WorldState

LIVES_IN_EPISODE = 128
"""Simulations in a file of a dump."""

_FIRST_PLAYER = 1001
_LARGEST = 32767


def layer_units(model: WorldModel) -> dict[str, int]:
    """Return the layers of a simulated dump and their units."""
    units, sizes = model.policy.policy.hidden_size, model.network.sizes
    memory = [name for kind in (LSTM_HIDDEN, LSTM_CELL) for name in memory_names(kind, model.policy.layers)]
    policy = dict.fromkeys((ENCODER_OUTPUT, *memory, ACTION_DECODER), units)
    return policy | {HIDDEN: sizes.hidden, LATENT: sizes.latent, BOTTLENECK: sizes.bottleneck}


def records_of(
    model: WorldModel, tick: ImaginedTick, number: int, lives: np.ndarray, done: np.ndarray, vector: torch.Tensor,
    around: Surroundings,
) -> Records:  # fmt: skip
    """Return the records of one tick.

    Args:
        model: that simulated it.
        tick: of L lives.
        number: of the tick, from 0.
        lives: number of each of them in the whole dump, (L,) int64.
        done: whether the life ends with the tick, (L,) bool.
        vector: bottleneck that each began from.
        around: what stayed as it was.
    """
    layout, scene = model.layout, tick.scene
    agent_id = lives % LIVES_IN_EPISODE + 1
    entity, entity_place = _entities(tick, agent_id, layout)
    inventory, slot_place = _items(tick, layout)
    heads = layout.heads
    return Records(
        step=np.full(len(lives), number), env_id=lives % LIVES_IN_EPISODE, agent_id=agent_id,
        episode=lives // LIVES_IN_EPISODE, tick=np.full(len(lives), number), reward=_array(tick.reward),
        value=_array(tick.choices.value),
        action=np.stack([_option(tick, head, entity_place, slot_place) for head in heads], axis=1),
        log_probability=np.stack([_log_probability(tick, head) for head in heads], axis=1),
        activations={
            **{name: _array(each) for name, each in tick.layers.items()}, **_memory_layers(tick.memory),
            **_world_layers(tick.state), BOTTLENECK: _array(vector),
        },
        tile=_tiles(scene.material, scene.own, layout),
        entity=entity, inventory=inventory,
        columns={
            "done": done, "task": _array(around.task),
            "legal": pack_legal(_legal(tick, layout, entity_place, slot_place)),
        },
        tables={"Market": _ragged(around.market)},
    )  # fmt: skip


def _memory_layers(memory: MemoryState) -> dict[str, np.ndarray]:
    states = {LSTM_HIDDEN: memory.hidden, LSTM_CELL: memory.cell}
    return {
        name: _array(units)
        for kind, layers in states.items()
        for name, units in zip(memory_names(kind, len(layers)), layers, strict=True)
    }


def _world_layers(state: WorldState) -> dict[str, np.ndarray]:
    return {HIDDEN: _array(state.hidden), LATENT: _array(state.latent)}


def _tiles(material: torch.Tensor, own: torch.Tensor, layout: ObservationLayout) -> np.ndarray:
    """Rows, columns and materials of the view, (L, tiles, 3) int16."""
    columns = [name for name in layout.entity_columns if name != "npc_type"]
    features, side = entity_features(layout), layout.view_side
    where = [columns.index(name) for name in ("row", "col")]
    centre = (own[:, where] * features.scale[where]).round().numpy()  # (L, 2)
    offsets = np.stack(np.meshgrid(*[np.arange(side) - side // 2] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    kinds = material.argmax(dim=1).numpy()[:, :, None]
    return np.concatenate([centre[:, None] + offsets, kinds], axis=2).astype(np.int16)


def _entities(tick: ImaginedTick, agent_id: np.ndarray, layout: ObservationLayout) -> tuple[RaggedRows, np.ndarray]:
    """Rows that are there or attacked, the agent's own first, and the place of each candidate row among them."""
    rows = tick.view.observation.entity
    kept = rows.presence.numpy() > 0.5  # (L, R + 1)
    attacked = tick.options["Attack.Target"].numpy()
    chosen = np.flatnonzero(attacked < kept.shape[1])
    kept[chosen, attacked[chosen]] = True
    values = _raw(rows.category, rows.values, entity_features(layout), layout.entity_columns)
    kind, cell = tick.view.kind.numpy(), tick.view.cell.numpy()
    others = np.where(kind == 0, _FIRST_PLAYER + cell, -1 - (kind * layout.tiles + cell))
    values[:, :, layout.entity_columns.index("id")] = np.concatenate([agent_id[:, None], others], axis=1)
    return RaggedRows(values[kept], np.concatenate([[0], np.cumsum(kept.sum(axis=1))])), _places(kept)


def _items(tick: ImaginedTick, layout: ObservationLayout) -> tuple[RaggedRows, np.ndarray]:
    """Items that are there, used or destroyed, and the place of each slot among them."""
    scene = tick.scene
    kept = scene.item_type.argmax(dim=2).numpy() > 0  # (L, slots)
    for head in ("Use.InventoryItem", "Destroy.InventoryItem"):
        option = tick.options[head].numpy()
        chosen = np.flatnonzero(option < kept.shape[1])
        kept[chosen, option[chosen]] = True
    items = scene.item_type.clone()
    items[:, :, 0] = -1  # an item that is there has some type
    values = _raw(items, scene.items, item_features(layout), layout.item_columns)
    number = layout.item_columns.index("id")
    values[:, :, number] = np.maximum(values[:, :, number], 1)
    return RaggedRows(values[kept], np.concatenate([[0], np.cumsum(kept.sum(axis=1))])), _places(kept)


def _raw(category: torch.Tensor, values: torch.Tensor, features: RowFeatures, columns: tuple[str, ...]) -> np.ndarray:
    """Rows in the game's units, (L, R, columns) int16."""
    ((place, kinds),) = features.categories
    raw = np.zeros((*values.shape[:2], len(columns)), np.int16)
    scaled = (values * features.scale).round().clamp(-_LARGEST, _LARGEST)
    raw[:, :, features.other_columns.numpy()] = scaled.numpy().astype(np.int16)
    raw[:, :, place] = category.argmax(dim=2).numpy() + kinds.first
    return raw


def _places(kept: np.ndarray) -> np.ndarray:
    """Place of each kept row among its agent's, (L, R) int64; -1 for the others."""
    return np.where(kept, np.cumsum(kept, axis=1) - 1, -1)


def _option(tick: ImaginedTick, head: ActionHead, entity: np.ndarray, slots: np.ndarray) -> np.ndarray:
    option = tick.options[head.name].numpy()
    if head.candidates is None:
        return option
    rows = tick.choices.log_probabilities[head.name].shape[1] - 1
    found = np.full(len(option), head.size - 1)
    places = {"entity": entity, "inventory": slots}.get(head.candidates)
    (chosen,) = (option < rows).nonzero()
    if places is not None:
        found[chosen] = places[chosen, option[chosen]]
    return found


def _log_probability(tick: ImaginedTick, head: ActionHead) -> np.ndarray:
    option = tick.options[head.name].unsqueeze(1)
    return _array(tick.choices.log_probabilities[head.name].gather(1, option)[:, 0])


def _legal(tick: ImaginedTick, layout: ObservationLayout, entity: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Legality of all options, (L, mask size) bool: what is more likely legal than not, and what was chosen."""
    parts = []
    for head in layout.heads:
        likely = tick.view.observation.legal[head.name].numpy() > 0.5
        likely[np.arange(len(likely)), tick.options[head.name].numpy()] = True
        if head.candidates:
            flags = np.zeros((len(likely), head.size), bool)
            flags[:, -1] = likely[:, -1]
            places = {"entity": entity, "inventory": slots}.get(head.candidates)
            if places is not None:
                agent, row = np.nonzero(likely[:, :-1] & (places >= 0))
                flags[agent, places[agent, row]] = True
            likely = flags
        parts.append(likely)
    return np.concatenate(parts, axis=1)


def _ragged(rows: PackedRows) -> RaggedRows:
    return RaggedRows(rows.values.numpy(), np.concatenate([[0], np.cumsum(rows.counts.numpy())]))


def _array(values: torch.Tensor) -> np.ndarray:
    return values.detach().numpy().astype(np.float32)
