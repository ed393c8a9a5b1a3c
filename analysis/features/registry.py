"""The registry of behavioural features: what an agent was doing, read from its observations and its actions.

To add a feature, add one entry to the theme that it belongs to, and run `python -m analysis.features` for its page.
"""

from collections.abc import Iterable

from activation_store.schema import DumpMetadata
from analysis.features.basics import BASICS
from analysis.features.body import BELONGINGS, BODY, PLACE
from analysis.features.choices import ACTIONS, CHOICES
from analysis.features.feature import Category, Feature
from analysis.features.over_time import OVER_TIME
from analysis.features.surroundings import SURROUNDINGS, VIEW
from analysis.features.ways import GOAL, MOVED, WAYS
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
