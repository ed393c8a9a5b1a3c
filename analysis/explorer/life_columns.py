"""The columns of the explorer's timeline, and how each is drawn."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.life.events import DIED, EVENT_KINDS, LifeEvents
from analysis.life.timeline import ESTIMATES, LANES, Timeline


@dataclass(frozen=True)
class Panel:
    """Lines over time that share an axis: its title with the unit, and the columns with their labels."""

    title: str
    columns: dict[str, str]


PANELS = (
    Panel("vitals (points)", {"self_health": "health", "self_food": "food", "self_water": "water"}),
    Panel("highest level", {"max_combat_level": "combat", "max_harvesting_level": "harvesting"}),
    Panel(
        "in view",
        {
            "n_visible_players": "players",
            "n_passive_npcs": "passive NPCs",
            "n_neutral_npcs": "neutral NPCs",
            "n_aggressive_npcs": "aggressive NPCs",
        },
    ),
    Panel("inventory (items)", {"n_inventory_items": "items"}),
    Panel("gold", {"self_gold": "gold"}),
    Panel("reward", {"reward": "reward"}),
    Panel("value", {"value": "value"}),
)
ACTS = dict(
    zip(
        LANES,
        ("move", "melee", "range", "mage", "use", "destroy", "buy", "sell", "give item", "give gold"),
        strict=True,
    )
)
"""Features that are actions (all of them intentions), and the labels of their lanes."""


def life_columns(timeline: Timeline) -> dict[str, np.ndarray]:
    """Return the columns of T ticks to draw, (T,) each; of the estimates, only those that the dump records."""
    names = [*ACTS, *(name for panel in PANELS for name in panel.columns if name not in ESTIMATES)]
    recorded = {name: timeline.columns[name] for name in ESTIMATES if not np.isnan(timeline.columns[name]).all()}
    # Estimates are float32 in every dump, so no precision is lost.
    estimates = {name: column.astype(np.float32) for name, column in recorded.items()}
    return {name: timeline.columns[name].astype(np.int32) for name in names} | estimates


def panels_of(columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the panels for which there are columns, in the page's format."""
    panels = [(panel.title, {key: name for key, name in panel.columns.items() if key in columns}) for panel in PANELS]
    return [{"title": title, "columns": drawn} for title, drawn in panels if drawn]


def events_in_words(events: LifeEvents, whole_episodes: bool) -> list[str]:
    """Return a description of each event, such as "hit passive NPC".

    If only some lives of an episode were read, the killer of an agent is unknown and is not named.
    """
    details = (
        detail if whole_episodes or kind != DIED else ""
        for kind, detail in zip(events.kind.tolist(), events.detail, strict=True)
    )
    names = [EVENT_KINDS[kind] for kind in events.kind]
    return [f"{name}: {detail}" if detail else name for name, detail in zip(names, details, strict=True)]
