"""The agent itself: its age, injuries and skills."""

import numpy as np

from analysis.features.basics import own
from analysis.features.feature import YES_OR_NO, Feature
from analysis.features.observed import Observed

COMBAT_SKILLS = ("melee", "range", "mage")
HARVESTING_SKILLS = ("fishing", "herbalism", "prospecting", "carving", "alchemy")


def _highest(skills: tuple[str, ...], seen: Observed) -> np.ndarray:
    return np.maximum.reduce([seen.own(f"{skill}_level") for skill in skills])


def _ticks_since_combat(seen: Observed) -> np.ndarray:
    latest = seen.own("latest_combat_tick").astype(np.int64)
    return np.where(latest > 0, seen.records.tick - latest, seen.own("time_alive"))


BODY = (
    Feature("age", "ticks", "Ticks since the agent spawned.", own("time_alive")),
    Feature("freeze", "ticks", "Ticks for which the agent still cannot act.", own("freeze")),
    Feature(
        "damage_taken", "points", "Damage of the last hit that the agent took in the previous tick.", own("damage")
    ),
    Feature(
        "is_attacked",
        YES_OR_NO,
        "The agent has an attacker: it was attacked in the previous tick, or hurt in the one before.",
        lambda seen: seen.own("attacker_id") != 0,
    ),
    Feature(
        "is_attacked_by_player",
        YES_OR_NO,
        "The agent's attacker, as in is_attacked, is a player.",
        lambda seen: seen.own("attacker_id") > 0,
    ),
    Feature(
        "ticks_since_combat",
        "ticks",
        "Ticks since the agent last attacked someone within range or was attacked; ticks since spawn if never.",
        _ticks_since_combat,
    ),
    Feature("is_starving", YES_OR_NO, "The agent's food is 0, which costs health.", lambda seen: seen.own("food") == 0),
    Feature(
        "is_dehydrated", YES_OR_NO, "The agent's water is 0, which costs health.", lambda seen: seen.own("water") == 0
    ),
    *(
        Feature(f"{skill}_level", "level", f"The agent's level in {skill}.", own(f"{skill}_level"))
        for skill in COMBAT_SKILLS + HARVESTING_SKILLS
    ),
    Feature(
        "max_harvesting_level",
        "level",
        "The highest of the agent's fishing, herbalism, prospecting, carving and alchemy levels.",
        lambda seen: _highest(HARVESTING_SKILLS, seen),
    ),
    Feature(
        "max_level",
        "level",
        "The highest of the agent's eight skill levels.",
        lambda seen: _highest(COMBAT_SKILLS + HARVESTING_SKILLS, seen),
    ),
)
