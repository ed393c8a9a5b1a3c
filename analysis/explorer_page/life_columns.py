"""How agents fared at every tick of their lives: what each column of the explorer's time line is drawn as."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.life.events import DIED, EVENT_KINDS, LifeEvents
from analysis.life.timeline import ESTIMATES, LANES, Timeline


@dataclass(frozen=True)
class Panel:
    """Lines over time that share an axis: its title with the unit, and the columns with their names in words."""

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
"""Features that are acts, and what their lane is called; intentions all."""


def life_columns(timeline: Timeline) -> dict[str, np.ndarray]:
    """Return the columns of T ticks that are drawn, (T,) each; of the estimates, those that the dump records."""
    names = [*ACTS, *(name for panel in PANELS for name in panel.columns if name not in ESTIMATES)]
    recorded = {name: timeline.columns[name] for name in ESTIMATES if not np.isnan(timeline.columns[name]).all()}
    # Estimates are float32 in every dump, so nothing is lost.
    estimates = {name: column.astype(np.float32) for name, column in recorded.items()}
    return {name: timeline.columns[name].astype(np.int32) for name in names} | estimates


def panels_of(columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the panels of which there are columns, as the page reads them."""
    panels = [(panel.title, {key: name for key, name in panel.columns.items() if key in columns}) for panel in PANELS]
    return [{"title": title, "columns": drawn} for title, drawn in panels if drawn]


def events_in_words(events: LifeEvents, whole_episodes: bool) -> list[str]:
    """Return what each event is, such as "hit passive NPC".

    Where only some lives of an episode were read, nobody can tell who struck an agent dead, so it is not said.
    """
    told = (
        detail if whole_episodes or kind != DIED else ""
        for kind, detail in zip(events.kind.tolist(), events.detail, strict=True)
    )
    names = [EVENT_KINDS[kind] for kind in events.kind]
    return [f"{name}: {detail}" if detail else name for name, detail in zip(names, told, strict=True)]
