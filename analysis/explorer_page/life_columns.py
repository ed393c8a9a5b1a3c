"""How agents fared at every tick of their lives: the columns of the explorer's time line, and what each is drawn as."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.features import Feature, feature_matrix, features_named
from analysis.features.observed import Observed


@dataclass(frozen=True)
class Panel:
    """Lines over time that share an axis: its title with the unit, and the columns with their names in words."""

    title: str
    columns: dict[str, str]


LINES = (
    Panel("vitals (points)", {"self_health": "health", "self_food": "food", "self_water": "water"}),
    Panel("highest level", {"max_combat_level": "combat", "max_harvesting_level": "harvesting"}),
    Panel("in view", {"n_visible_players": "players", "n_visible_npcs": "NPCs"}),
    Panel("inventory (items)", {"n_inventory_items": "items"}),
    Panel("gold", {"self_gold": "gold"}),
    Panel("reward", {"reward": "reward"}),
    Panel("value", {"value": "value"}),
)
ACTS = {
    "is_moving": "move", "is_attacking_with_melee": "melee", "is_attacking_with_range": "range",
    "is_attacking_with_mage": "mage", "is_using_item": "use", "is_destroying_item": "destroy", "is_buying": "buy",
    "is_selling": "sell", "is_giving_item": "give item", "is_giving_gold": "give gold",
}  # fmt: skip
"""Features that are acts, and what their lane is called; intentions all."""

_RECORDED = ("reward", "value")


def line_panels(names: Collection[str]) -> list[dict[str, Any]]:
    """Return the panels of which there are columns of these names, as the page reads them."""
    panels = [(panel.title, {key: name for key, name in panel.columns.items() if key in names}) for panel in LINES]
    return [{"title": title, "columns": columns} for title, columns in panels if columns]


def life_columns(seen: Observed) -> dict[str, np.ndarray]:
    """Return the columns of T ticks, (T,) each; reward and value only where the dump records them."""
    features = features_named([name for panel in LINES for name in panel.columns if name not in _RECORDED] + [*ACTS])
    columns = _columns(feature_matrix(seen.records, seen.metadata, features), features)
    recorded = {name: getattr(seen.records, name) for name in _RECORDED}
    return columns | {name: values for name, values in recorded.items() if not np.isnan(values).all()}


def _columns(matrix: np.ndarray, features: Sequence[Feature]) -> dict[str, np.ndarray]:
    return {feature.name: matrix[:, i].astype(np.int32) for i, feature in enumerate(features)}
