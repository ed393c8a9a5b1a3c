"""Repeat what an agent chose in one course of an episode in another course, where it may see other rows."""

import numpy as np
import torch

from activation_store.records import Records
from agent_zoo.observation import ActionHead, CandidateTable, ObservationLayout, PackedObservation

_KIND = ("type_id", "level")
"""Columns that tell kinds of items apart."""


def same_choices(
    records: Records, observation: PackedObservation, rows: torch.Tensor, layout: ObservationLayout
) -> torch.Tensor:
    """Return the options that mean in one course what was chosen in another.

    An option that is a row stands for the entity or item there: the row of the same one is chosen. If it is not to be
    seen, an item of the same type and level is chosen instead, the first of them; if there is none, and of entities,
    the no-op. All other options are the same.

    Args:
        records: of P agents in the course to repeat, with the Market.
        observation: of agents in the other course, after their policy's mask.
        rows: which of these are the same P agents, (P,) int64.

    Returns:
        (P, heads) int64.
    """
    seen = observation.take(rows)
    tables = {
        "entity": (records.entity, seen.entity),
        "inventory": (records.inventory, seen.inventory),
        "market": (records.tables["Market"], seen.market),
    }
    options = torch.from_numpy(records.action.copy())
    for column, head in enumerate(layout.heads):
        if head.candidates is None:
            continue
        before, now = tables[head.candidates]
        for agent, option in enumerate(records.action[:, column].tolist()):
            then = before.values[before.offsets[agent] : before.offsets[agent + 1]]
            start = int(now.starts[agent])
            there = now.values[start : start + int(now.counts[agent])].numpy()
            options[agent, column] = _same_row(head, option, then, there, layout)
    return options


def _same_row(head: ActionHead, option: int, then: np.ndarray, now: np.ndarray, layout: ObservationLayout) -> int:
    """Return the row of the same thing, or of one like it, in another table; the no-op if there is none."""
    assert head.noop is not None and head.candidates is not None
    if option >= len(then):
        return head.noop
    (matches,) = np.nonzero(now[:, 0] == then[option, 0])  # column 0 is the id
    if not len(matches) and (columns := _kind(head.candidates, layout)):
        (matches,) = np.nonzero((now[:, columns] == then[option, columns]).all(axis=1))
    return int(matches[0]) if len(matches) else head.noop


def _kind(table: CandidateTable, layout: ObservationLayout) -> list[int]:
    return [] if table == "entity" else [layout.item_columns.index(name) for name in _KIND]
