"""Compute a matrix of features from records, and read the full lives that some features need."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from activation_store.lives import places_of
from activation_store.reader import Progress, read_batches, read_metadata
from activation_store.records import RaggedRows, Records
from activation_store.schema import IDENTITY, DumpMetadata
from activation_store.selection import Subsample, join_rows, no_rows, select
from analysis.features.feature import Feature
from analysis.features.observed import Observed, own_truth_columns
from analysis.features.registry import FEATURES
from analysis.lives import places_among
from common.user_error import UserError


def feature_matrix(
    records: Records, metadata: DumpMetadata, features: Sequence[Feature] = FEATURES, history: Records | None = None
) -> np.ndarray:
    """Return features of every record, (B, features) float64 without NaN, in the order of `features`.

    Args:
        history: every tick of the records' lives, from `read_history`; features over time need it unless `records`
            already holds every tick. Must be consecutive ticks from each agent's spawn on.

    Raises:
        UserError: the dump lacks a column or an action head that a feature needs, a record's agent is not among the
            entities that it sees, or a feature over time is requested for lives that lack a tick.
        ValueError: a record is not in the history.
    """
    seen = past = Observed(records, metadata)
    place: slice | np.ndarray = slice(None)
    if over_time := [feature for feature in features if feature.over_time]:
        past = seen if history is None else Observed(history, metadata)
        check_unbroken(past, over_time)
        place = place if history is None else _places(records, history)
    matrix = np.empty((len(records), len(features)))
    for i, feature in enumerate(features):
        matrix[:, i] = feature.compute(past)[place] if feature.over_time else feature.compute(seen)
    return matrix


def read_history(
    folder: Path, progress: Progress | None = None, lives: Iterable[Sequence[int]] | None = None,
    episodes: Iterable[int] | None = None,
) -> Records:  # fmt: skip
    """Return every tick of a dump with only its identity and each agent's own row, some 300 bytes a tick.

    Args:
        progress: called with the share of the work done, from 0 to 1.
        lives: only these, each a slot, an agent and an episode; None for all.
        episodes: only these; None for all.

    Raises:
        UserError: as `activation_store.reader.read_dump`, or an agent is not among the entities that it sees.
    """
    metadata = read_metadata(folder)
    truth = own_truth_columns(metadata)
    wanted = select(
        folder, metadata, layers=[], columns=truth, leave_out=["tile", "inventory", "tables"], lives=lives,
        episodes=episodes,
    )  # fmt: skip
    parts = [_own_rows_only(batch, metadata) for batch in read_batches(folder, metadata, wanted, progress)]
    entity = join_rows([part.entity for part in parts], len(metadata.entity_columns))
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _KEPT}
    no_items = no_rows(len(arrays["step"]), len(metadata.inventory_columns))
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in truth}
    return Records(**arrays, activations={}, entity=entity, inventory=no_items, columns=columns)


def needs_history(features: Sequence[Feature], subsample: Subsample) -> bool:
    """Return whether these features need every tick, while the subsample keeps only some."""
    return not subsample.keeps_all and any(feature.over_time for feature in features)


_KEPT = (*IDENTITY, "reward", "value", "action", "log_probability", "tile")


def _own_rows_only(batch: Records, metadata: DumpMetadata) -> Records:
    own = batch.entity.values[Observed(batch, metadata).own_rows]
    return Records(
        **{name: getattr(batch, name) for name in _KEPT},
        activations={},
        entity=RaggedRows(own, np.arange(len(own) + 1)),
        inventory=batch.inventory,
        columns=batch.columns,
    )


def check_unbroken(seen: Observed, features: Sequence[Feature]) -> None:
    """Refuse records that do not include every tick of each life from its spawn on.

    Raises:
        UserError: a tick is missing; names the features that need it and the agent that lacks it.
    """
    lives = seen.lives
    tick, age = seen.records.tick[lives.order], seen.own("time_alive")[lives.order]
    expected = (
        np.repeat(tick[lives.starts], lives.lengths) + np.arange(len(tick)) - np.repeat(lives.starts, lives.lengths)
    )
    missing = tick != expected
    missing[lives.starts] |= age[lives.starts] != 0
    if missing.any():
        i = lives.order[int(np.argmax(missing))]
        names = ", ".join(feature.name for feature in features)
        raise UserError(
            f"agent {seen.records.agent_id[i]} in episode {seen.records.episode[i]} has no record of the tick before "
            f"{seen.records.tick[i]}, which {names} need: leave them out, or extract every tick of whole lives"
        )


def _places(records: Records, history: Records) -> np.ndarray:
    places = places_among(places_of(records), places_of(history))
    if (places < 0).any():
        raise ValueError("a record is not in the history: both must come from the same dump")
    return places
