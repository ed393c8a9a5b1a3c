"""Rebuild a policy's observations from the records of a dump, so that the policy can be run on them again.

And the probabilities of every option of the action heads whose options are not rows of a table, from recorded layers.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from activation_store.columns import unpack_legal
from activation_store.layers import LSTM_HIDDEN, STATES, memory_names
from activation_store.reader import read_metadata
from activation_store.recording import record_again
from activation_store.records import RaggedRows, Records
from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.distribution import ILLEGAL
from agent_zoo.observation import ObservationLayout, PackedObservation, PackedRows
from agent_zoo.observation_masking import ObservationMask
from common.user_error import UserError


def state_layers(policy: RecurrentPolicy) -> list[str]:
    """Return the layers that hold all states of a policy's memory: hidden states of all layers, then cell states."""
    return [name for kind in STATES[policy.cell] for name in memory_names(kind, policy.layers)]


def check_shows_everything(folder: Path, layout: ObservationLayout) -> None:
    """Refuse a dump without all observations of a policy with this layout, before its records are read.

    Raises:
        UserError: the dump cannot be read, lacks a required field, or was recorded in a world with a different layout
            of observations or actions.
    """
    metadata = read_metadata(folder)
    there = {"Market": "Market" in metadata.tables, "Task": "task" in metadata.columns}
    there["ActionTargets"] = "legal" in metadata.columns
    if missing := [name for name, recorded in there.items() if not recorded]:
        raise UserError(
            f"{folder} was recorded without {', '.join(missing)}, which the policy sees: "
            f"{record_again(folder, metadata)}"
        )
    heads = tuple((head.name, head.size, head.noop) for head in layout.heads)
    if tuple((head.name, head.size, head.noop) for head in metadata.action_heads) != heads:
        raise UserError(f"{folder} was recorded with other action heads than the policy has: give its own dump")
    if metadata.entity_columns != layout.entity_columns or metadata.inventory_columns != layout.item_columns:
        raise UserError(f"{folder} has other columns of entities or items than the policy sees: give its own dump")
    if (width := metadata.columns["task"].width) != layout.task_size:
        raise UserError(
            f"{folder} holds task embeddings of {width} numbers, the policy takes {layout.task_size}: give its own dump"
        )


def packed_observation(records: Records, layout: ObservationLayout, mask: ObservationMask) -> PackedObservation:
    """Return the policy's observation at each record, identical to the one during recording.

    A dump holds tiles and rows as the policy saw them. Only the tick, which is recorded for other readers, may have to
    be hidden again. The records are of a dump recorded with `--record standard`, read with `tile`, `entity`,
    `inventory` and `tables`; the layout is that of the policy's checkpoint, and the mask says what is hidden from the
    policy.

    Raises:
        UserError: the records lack part of the policy's observation.
        ValueError: they do not have the shapes of the layout.
    """
    _check(records, layout)
    middle = layout.tiles // 2
    tick = records.tick if mask.clock else np.zeros_like(records.tick)
    return PackedObservation(
        material=torch.from_numpy(records.tile[:, :, 2].astype(np.uint8)),
        centre=torch.from_numpy(records.tile[:, middle, :2].copy()),
        agent_id=torch.from_numpy(records.agent_id.astype(np.int16)), tick=torch.from_numpy(tick.astype(np.int16)),
        entity=_packed(records.entity), inventory=_packed(records.inventory), market=_packed(records.tables["Market"]),
        task=torch.from_numpy(records.column("task").astype(np.float16)),
        legal=torch.from_numpy(records.column("legal").copy()),
    )  # fmt: skip


def _check(records: Records, layout: ObservationLayout) -> None:
    if "Market" not in records.tables:
        raise UserError("the records hold no Market: extract with --record standard, and read all tables")
    if len(records) and (not records.tile.shape[1] or not records.entity.counts.all()):
        # Every agent sees itself.
        raise UserError("the records hold no tiles or no entities: read them with both")
    shapes = {
        "tile": (records.tile.shape[1], layout.tiles),
        "entity": (records.entity.values.shape[1], len(layout.entity_columns)),
        "inventory": (records.inventory.values.shape[1], len(layout.item_columns)),
        "market": (records.tables["Market"].values.shape[1], len(layout.item_columns)),
        "task": (records.column("task").shape[1], layout.task_size),
        "legal": (records.column("legal").shape[1], -(-layout.mask_size // 8)),
    }
    for name, (shape, expected) in shapes.items():
        if shape != expected:
            raise ValueError(f"{name} is {shape} wide in the records and {expected} in the layout")


def _packed(rows: RaggedRows) -> PackedRows:
    return PackedRows(torch.from_numpy(rows.values), torch.from_numpy(rows.counts))


SHOWN = ("Move.Direction", "Attack.Style")
"""Heads with few options, each of which has a name."""


def missing_for_probabilities(folder: Path, metadata: DumpMetadata) -> str:
    """Say what a dump lacks for `probabilities_of`, and how to record it; "" if it has everything."""
    if LSTM_HIDDEN not in metadata.layers:
        return f"{folder} has no layer {LSTM_HIDDEN}: {record_again(folder, metadata)}"
    if "legal" not in metadata.columns:
        return f"{folder} does not hold which actions were legal: {record_again(folder, metadata)}"
    return ""


def probabilities_of(policy: RecurrentPolicy, records: Records, metadata: DumpMetadata) -> Mapping[str, np.ndarray]:
    """Return the probability of each option of `SHOWN`, (B, options) float32 by head; 0 for illegal options.

    The records need the layer `lstm_hidden` and the column `legal`.
    """
    heads = metadata.action_heads
    ends = np.cumsum([head.size for head in heads])
    legal = unpack_legal(records.column("legal"), int(ends[-1]))  # (B, all options)
    decoder = policy.policy.action_decoder
    with torch.no_grad():
        read = policy.read(torch.from_numpy(records.activations[LSTM_HIDDEN]).float())  # (B, hidden)
    own = {head.name: head for head in decoder.layout.heads if head.candidates is None}
    probabilities = {}
    for head, end in zip(heads, ends.tolist(), strict=True):
        if head.name not in SHOWN or head.name not in own:
            continue
        allowed = torch.from_numpy(legal[:, end - head.size : end])
        with torch.no_grad():
            scores = decoder.own_scores(own[head.name], read).masked_fill(~allowed, ILLEGAL)
        probabilities[head.name] = scores.softmax(dim=1).numpy()
    return probabilities
