"""Probabilities of every option of the action heads whose options are not rows of a table, from recorded layers."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from activation_store.columns import unpack_legal
from activation_store.layers import LSTM_HIDDEN
from activation_store.recording import record_again
from activation_store.records import Records
from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.distribution import ILLEGAL

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
