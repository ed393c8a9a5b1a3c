"""All listed features, the next ticks' behaviour and the state of an analysis' records: the input of its meter."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from activation_store.lives import life_keys, places_of
from activation_store.reader import Progress, read_dump
from activation_store.records import Records
from activation_store.schema import MAY_BE_UNRECORDED, DumpMetadata
from activation_store.selection import Subsample
from analysis.clusters.blindness import Blindness, coverage
from analysis.clusters.components import Components
from analysis.clusters.dataset import Dataset
from analysis.features import EXTENDED_FEATURES, Feature, feature_matrix, read_history
from analysis.features.body import later
from analysis.features.observed import Observed, feature_columns
from analysis.features.registry import check_unbroken
from analysis.lives import places_among
from analysis.statistics.inference import FEWEST_LIVES, Inference
from analysis.statistics.resampling import resampled_units
from common.user_error import UserError

MOST_RECORDS = 5_000
"""Whole lives are drawn at random so that no more records are measured."""

AHEAD = 10
"""Ticks over which movement and changes of the body are measured, or to the end of the life."""

STATE_SHARE = 0.9
"""The state is the first principal components that explain this share of the activations' variance."""

BEHAVIOUR, STATE = "the next ticks' behaviour", "the state"

_FEW_OPTIONS = 8
_ALMOST_ALWAYS = 0.99
_BODY = ("health", "food", "water")
_GROUPS = 30


@dataclass(frozen=True, eq=False)
class Listed:
    """The records measured, b of the B of a dataset, each with a next tick. F features."""

    kept: np.ndarray  # which records of the dataset, (B,) bool
    values: np.ndarray  # all listed features that can be computed, (b, F) float64
    left_out: tuple[str, ...]  # names of those that cannot
    behaviour: dict[str, np.ndarray]  # parts of the next ticks' behaviour, (b, columns) each
    reason: str  # why there are none, else ""


def read_listed(folder: Path, subsample: Subsample, data: Dataset, seed: int, progress: Progress) -> Listed:
    """Compute all listed features, and what the agent does next, of the records that have a next tick.

    What they need is read of at most `MOST_RECORDS` records, in whole lives.
    """
    metadata = data.metadata
    drawn = np.random.default_rng([seed, 9]).permutation(len(data.lives))
    before = np.cumsum(data.lives.lengths[drawn]) - data.lives.lengths[drawn]
    among = np.isin(data.lives.index, drawn[before < MOST_RECORDS])  # records of all lives, or of lives at random
    lives = np.unique(life_keys(places_of(data.records))[among], axis=0).tolist()
    try:
        history = read_history(folder, progress, lives)
        seen = Observed(history, metadata)
        check_unbroken(seen, [feature for feature in EXTENDED_FEATURES if feature.over_time])
    except UserError as error:
        return Listed(np.zeros(len(data), bool), np.empty((0, 0)), (), {}, str(error))
    records = read_dump(
        folder, subsample=subsample, layers=[], columns=feature_columns(metadata),
        leave_out=["tables", *MAY_BE_UNRECORDED], lives=lives,
    )  # fmt: skip
    place = places_among(places_of(records), places_of(history))
    has_next = later(np.arange(len(history)), seen.lives, 1)[place] != place
    kept = among.copy()
    kept[among] = has_next
    if not has_next.any():
        return Listed(kept, np.empty((0, 0)), (), {}, "no record has a next tick")
    records, place = records.take(has_next), place[has_next]
    features, values = _computable(records, metadata, history)
    left_out = tuple(feature.name for feature in EXTENDED_FEATURES if feature not in features)
    return Listed(kept, values, left_out, next_ticks(seen, place), "")


def next_ticks(seen: Observed, place: np.ndarray) -> dict[str, np.ndarray]:
    """Return what agents do in the ticks after some records, as parts of several columns each.

    The options chosen in each action head at the next tick, one column each (of a head with many options, whether it is
    not the no-op); where the agent is, and how its health, food and water have changed, `AHEAD` ticks later or at its
    life's end. Left out is what (almost) never changes. `seen` has every tick of the lives, and `place` says where the
    records are among them, (b,) int64.
    """
    lives, columns = seen.lives, seen.metadata.entity_columns
    parts = {}
    for head in seen.metadata.action_heads:
        option = later(seen.option(head.name), lives, 1)[place]
        if head.size > _FEW_OPTIONS:
            option = option != head.noop
        values, number = np.unique(option, return_counts=True)
        if number.max() <= _ALMOST_ALWAYS * len(place) and (head.size <= _FEW_OPTIONS or head.noop is not None):
            parts[head.name] = (option[:, None] == values).astype(np.float64)
    ahead = {}
    for name in ("row", "col", *_BODY):
        if name in columns:
            now = seen.own(name).astype(np.int64)
            ahead[name] = (later(now, lives, AHEAD) - now)[place].astype(np.float64)
    changes = {"displacement": ["row", "col"]} | {f"change of {name}": [name] for name in _BODY}
    for name, of in changes.items():
        moved = np.column_stack([ahead[one] for one in of if one in ahead] or [np.zeros(len(place))])
        if (moved != moved[0]).any():
            parts[name] = moved
    return parts


def blindness(
    listed: Listed, data: Dataset, components: Components, name: str, studied: np.ndarray, settings: Inference
) -> Blindness:
    """Measure how much of what is studied tells about behaviour and state is in the listed features."""
    kept = listed.kept
    episode, life = data.records.episode[kept], data.lives.index[kept]
    name_of_unit, unit = resampled_units(life, episode)
    meter = Blindness(
        studied=name, features=listed.values.shape[1], left_out=listed.left_out, records=int(kept.sum()),
        unit=name_of_unit, units=len(np.unique(unit)), measures=(), reason=listed.reason,
    )  # fmt: skip
    if not meter.reason and len(np.unique(life)) < FEWEST_LIVES:
        meter = replace(meter, reason=f"fewer than {FEWEST_LIVES} lives have records with a next tick")
    if not meter.reason and (studied[kept] == studied[kept][0]).all():
        meter = replace(meter, reason="all records are in one group")
    if meter.reason:
        return meter
    state = components.scores(data.activations[kept], components.needed_for((STATE_SHARE,))[STATE_SHARE])
    groups = columns = studied[kept]
    if studied.ndim == 1:
        columns = (groups[:, None] == np.unique(groups)).astype(np.float64)
    else:  # scores are divided by K-means (Lloyd 1982)
        from sklearn.cluster import KMeans

        number = min(_GROUPS, len(np.unique(columns, axis=0)))
        model = KMeans(number, n_init=1, random_state=settings.seed)
        groups = np.asarray(model.fit_predict(columns), np.int64)
    targets = {BEHAVIOUR: listed.behaviour, STATE: {STATE: state}}
    measured = coverage(
        listed.values, columns, groups, {about: parts for about, parts in targets.items() if parts}, unit, settings
    )
    return replace(meter, measures=measured)


def _computable(records: Records, metadata: DumpMetadata, history: Records) -> tuple[tuple[Feature, ...], np.ndarray]:
    """Compute all listed features, without those for which the dump lacks something."""
    try:
        return EXTENDED_FEATURES, feature_matrix(records, metadata, EXTENDED_FEATURES, history)
    except UserError:
        there: list[Feature] = []
        for feature in EXTENDED_FEATURES:
            with contextlib.suppress(UserError):
                feature_matrix(records.take(np.arange(1)), metadata, (feature,), history)
                there.append(feature)
        return tuple(there), feature_matrix(records, metadata, there, history)
