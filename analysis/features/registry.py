"""The registry of behavioural features: what an agent was doing, read from its observations and its actions.

And their values for any records, with the full lives that some of them need.

To add a feature, add one entry to the theme that it belongs to, and run `python -m analysis.features` for its page.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from activation_store.lives import places_of
from activation_store.reader import Progress, read_batches, read_metadata
from activation_store.records import RaggedRows, Records
from activation_store.schema import IDENTITY, DumpMetadata
from activation_store.selection import Subsample, no_rows, select
from analysis.features.body import BASICS, BELONGINGS, BODY, OVER_TIME, PLACE
from analysis.features.choices import ACTIONS, CHOICES, GOAL, MOVED, WAYS
from analysis.features.feature import Category, Feature
from analysis.features.observed import Observed, own_truth_columns
from analysis.features.surroundings import SURROUNDINGS, VIEW
from analysis.lives import places_among
from common.argument_checks import nearest
from common.user_error import UserError


def _options(categories: Iterable[Category]) -> tuple[Feature, ...]:
    return tuple(feature for category in categories for feature in category.features)


THEMES = {
    "Default": BASICS,
    "Who is in view": SURROUNDINGS,
    "What the view is made of": VIEW,
    "Place": PLACE,
    "Body and skills": BODY,
    "Belongings": BELONGINGS,
    "Actions": ACTIONS,
    "Over time": (*OVER_TIME, *MOVED.features),
    "Choices": _options(CHOICES),
    "Which way things are": _options(WAYS),
    "Task": GOAL.features,
}

FEATURES = BASICS
FEATURE_NAMES = tuple(feature.name for feature in FEATURES)
EXTENDED_FEATURES = tuple(feature for theme in THEMES.values() for feature in theme)

CATEGORIES = {category.name: category for category in (*CHOICES, *WAYS, MOVED, GOAL)}
"""The categorical features, whose options are features."""

FEATURE_SETS = {
    "default": FEATURES,
    "choices": THEMES["Choices"],
    "ways": THEMES["Which way things are"],
    **{name: category.features for name, category in CATEGORIES.items()},
    "extended": EXTENDED_FEATURES,
}
"""Sets of features that can be selected by one name: each categorical feature is one."""


def features_named(names: Iterable[str]) -> tuple[Feature, ...]:
    """Return the features with the given names, or in the sets with those names, each once, in the order given.

    Raises:
        UserError: a feature or set does not exist, or `names` is empty.
    """
    single = {feature.name: (feature,) for feature in EXTENDED_FEATURES}
    there = single | FEATURE_SETS
    names = list(names)
    if unknown := [name for name in names if name not in there]:
        likely = [match for name in unknown for match in nearest(name, there, 1)]
        hint = f"did you mean {', '.join(likely)}? " if likely else ""
        wrong = ", ".join(repr(name) for name in unknown)
        raise UserError(
            f"there is no feature {wrong}: {hint}docs/features.md lists all; sets: {', '.join(FEATURE_SETS)}"
        )
    if not names:
        raise UserError(f"no features given: give names, or a set: {', '.join(FEATURE_SETS)}")
    return tuple(dict.fromkeys(feature for name in names for feature in there[name]))


def with_heads_of(metadata: DumpMetadata, features: Iterable[Feature]) -> tuple[Feature, ...]:
    """Leave out choices in action heads that a dump does not have, such as those of a policy that cannot trade.

    Raises:
        UserError: nothing is left.
    """
    heads = {"", *(head.name for head in metadata.action_heads)}
    kept = tuple(feature for feature in features if not feature.choice or CATEGORIES[feature.choice].head in heads)
    if not kept:
        raise UserError("the dump has none of the action heads whose choices are to be compared: name other features")
    return kept


def as_markdown() -> str:
    """Return the tables of all features, one section per theme, as in docs/features.md."""
    return "\n".join(_section(title, features) for title, features in THEMES.items())


def _row(category: Category) -> str:
    options = ", ".join(f"`_{option}`" for option in category.options)
    return f"| `{category.name}` and {options} | 0 or 1 | {category.definition} |"


def _section(title: str, features: tuple[Feature, ...]) -> str:
    rows = [
        f"| `{feature.name}` | {feature.unit} | {feature.definition} |" for feature in features if not feature.choice
    ]
    rows += [_row(CATEGORIES[name]) for name in dict.fromkeys(f.choice for f in features if f.choice)]
    return "\n".join([f"## {title}", "", "| feature | unit | definition |", "|---|---|---|", *rows, ""])


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
    parts = []
    for batch in read_batches(folder, metadata, wanted, progress):
        own = batch.entity.values[Observed(batch, metadata).own_rows]
        parts.append({"own": own, **batch.columns, **{name: getattr(batch, name) for name in _KEPT}})
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in ("own", *truth, *_KEPT)}
    own = arrays.pop("own")
    no_items = no_rows(len(own), len(metadata.inventory_columns))
    columns = {name: arrays.pop(name) for name in truth}
    entity = RaggedRows(own, np.arange(len(own) + 1))
    return Records(**arrays, activations={}, entity=entity, inventory=no_items, columns=columns)


def needs_history(features: Sequence[Feature], subsample: Subsample) -> bool:
    """Return whether these features need every tick, while the subsample keeps only some."""
    return not subsample.keeps_all and any(feature.over_time for feature in features)


_KEPT = (*IDENTITY, "reward", "value", "action", "log_probability", "tile")


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
