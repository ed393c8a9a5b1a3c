"""The registry of behavioural features: what an agent was doing, read from its observations and its actions.

To add a feature, add one entry to the theme that it belongs to, and run `python -m analysis.features` for its page.
"""

import difflib
from collections.abc import Iterable

from analysis.features.actions import ACTIONS
from analysis.features.basics import BASICS
from analysis.features.belongings import BELONGINGS
from analysis.features.body import BODY
from analysis.features.feature import Feature
from analysis.features.over_time import OVER_TIME
from analysis.features.place import PLACE
from analysis.features.surroundings import SURROUNDINGS
from analysis.features.view import VIEW
from user_error import UserError

THEMES = {
    "Default": BASICS,
    "Who is in view": SURROUNDINGS,
    "What the view is made of": VIEW,
    "Place": PLACE,
    "Body and skills": BODY,
    "Belongings": BELONGINGS,
    "Actions": ACTIONS,
    "Over time": OVER_TIME,
}

FEATURES = BASICS
FEATURE_NAMES = tuple(feature.name for feature in FEATURES)
EXTENDED_FEATURES = tuple(feature for theme in THEMES.values() for feature in theme)

FEATURE_SETS = {"default": FEATURES, "extended": EXTENDED_FEATURES}
"""Sets of features that can be selected by one name."""


def features_named(names: Iterable[str]) -> tuple[Feature, ...]:
    """Return the features with the given names, or in the sets with those names, each once, in the order given.

    Raises:
        UserError: a feature or set does not exist, or `names` is empty.
    """
    single = {feature.name: (feature,) for feature in EXTENDED_FEATURES}
    there = single | FEATURE_SETS
    names = list(names)
    if unknown := [name for name in names if name not in there]:
        likely = [match for name in unknown for match in difflib.get_close_matches(name, there, n=1)]
        hint = f"did you mean {', '.join(likely)}? " if likely else ""
        wrong = ", ".join(repr(name) for name in unknown)
        raise UserError(
            f"there is no feature {wrong}: {hint}docs/features.md lists all; sets: {', '.join(FEATURE_SETS)}"
        )
    if not names:
        raise UserError(f"no features given: give names, or a set: {', '.join(FEATURE_SETS)}")
    return tuple(dict.fromkeys(feature for name in names for feature in there[name]))


def as_markdown() -> str:
    """Return the tables of all features, one section per theme, as in docs/features.md."""
    return "\n".join(_section(title, features) for title, features in THEMES.items())


def _section(title: str, features: tuple[Feature, ...]) -> str:
    rows = [f"| `{feature.name}` | {feature.unit} | {feature.definition} |" for feature in features]
    return "\n".join([f"## {title}", "", "| feature | unit | definition |", "|---|---|---|", *rows, ""])
