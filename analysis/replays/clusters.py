"""Clusters of hidden states, matched to the replay of the same episode."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.reader import read_dump, read_metadata
from activation_store.schema import DumpMetadata, Records
from analysis.replays.replay import UNLABELLED, Replay
from analysis.runs.cluster_run import LABELS_FILE, read_cluster_run
from common.user_error import UserError


@dataclass(frozen=True)
class ReplayClusters:
    """The cluster of each agent at each tick."""

    label: np.ndarray
    """`labels.NOISE`, `UNLABELLED` or a cluster from 0; a label is kept until the life's next one, (T, P) int32."""
    exact: np.ndarray  # whether the run labelled the record itself, (T, P) bool
    episode: int  # number in the dump of the episode that the replay shows

    @property
    def clusters(self) -> list[int]:
        """Clusters that occur, excluding noise."""
        return [int(label) for label in np.unique(self.label) if label >= 0]


def clusters_of(
    replay: Replay, source: Path, dump: Path, run: Path, progress: Callable[[float], None] | None = None
) -> ReplayClusters:
    """Find the dump's episode that a replay shows, and return the run's labels of its records.

    Args:
        source: file of the replay, for messages.
        dump: folder of extract_activations.py.
        run: folder of analyze_activations.py, made from that dump.

    Raises:
        UserError: the dump or the run is damaged or unfinished, the run is of another dump, or the replay's episode is
            not in the dump.
    """
    metadata = read_metadata(dump)
    labelled = read_cluster_run(run, dump)
    records = read_dump(dump, layers=[], progress=progress)
    episode = _episode(replay, source, dump, records, metadata)
    label = np.full(replay.players.row.shape, UNLABELLED, dtype=np.int32)
    chosen = labelled.places["episode"] == episode
    columns = _columns(replay, labelled.places["agent_id"][chosen])
    ticks = labelled.places["tick"][chosen]
    if (columns < 0).any() or (ticks < 0).any() or (ticks >= replay.ticks).any():
        raise UserError(f"{run / LABELS_FILE} labels records that {dump} does not hold: analyse the dump again")
    label[ticks, columns] = labelled.label[chosen]
    # Each label is carried forward until the life's next one.
    latest = np.maximum.accumulate(np.where(label != UNLABELLED, np.arange(len(label))[:, None], -1), axis=0)
    held = np.take_along_axis(label, np.maximum(latest, 0), axis=0)
    carried = np.where(replay.players.alive & (latest >= 0), held, UNLABELLED).astype(np.int32)
    return ReplayClusters(carried, label != UNLABELLED, episode)


def _episode(replay: Replay, source: Path, dump: Path, records: Records, metadata: DumpMetadata) -> int:
    """Return the episode in which every agent is, at every recorded tick, where the replay shows it."""
    place = _own_place(records, metadata, dump)
    columns = _columns(replay, records.agent_id)
    inside = (columns >= 0) & (records.tick >= 0) & (records.tick < replay.ticks)
    tick, column = np.where(inside, records.tick, 0), np.where(inside, columns, 0)
    players = replay.players
    shown = np.stack([players.row[tick, column], players.col[tick, column]], axis=1)
    agrees = inside & players.alive[tick, column] & (shown == place).all(axis=1)
    differences = []
    for episode in np.unique(records.episode):
        differing = np.flatnonzero((records.episode == episode) & ~agrees)
        if not len(differing):
            return int(episode)
        differences.append(differing[np.lexsort((records.agent_id[differing], records.tick[differing]))[0]])
    latest = max(differences, key=lambda record: int(records.tick[record]))
    raise UserError(
        f"no episode of {dump} is the one that {source} shows: the closest, episode {records.episode[latest]}, differs "
        f"first at agent {records.agent_id[latest]}, tick {records.tick[latest]}; record both with the same seed"
    )


def _own_place(records: Records, metadata: DumpMetadata, dump: Path) -> np.ndarray:
    """Return the row and column of each record's agent on the map, (B, 2)."""
    if {"row", "col"} <= records.columns.keys():  # what the policy saw of them may be relative to the agent
        return np.stack([records.column(name) for name in ("row", "col")], axis=1)
    names = metadata.entity_columns
    if not {"id", "row", "col"} <= set(names):
        raise UserError(f"{dump} does not contain the agents' positions: extract it again")
    values, owner = records.entity.values, records.entity.owner
    own = np.flatnonzero(values[:, names.index("id")] == records.agent_id[owner])
    if not np.array_equal(owner[own], np.arange(len(records))):
        raise UserError(f"{dump} holds records in which the agent does not see itself once: extract it again")
    return values[own][:, [names.index("row"), names.index("col")]]


def _columns(replay: Replay, agents: np.ndarray) -> np.ndarray:
    """Return the column of each agent id among the replay's players, -1 if it is missing."""
    ids = replay.players.ids
    column = np.minimum(np.searchsorted(ids, agents), max(len(ids) - 1, 0))
    return np.where(ids[column] == agents, column, -1) if len(ids) else np.full(len(agents), -1)
