"""What settings say of agents: what they are shown and paid, and their codebook; without torch, so it loads at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

FULL_RADIUS = 7
"""How far the game lets agents see, in tiles in each direction."""

SHOWN: Mapping[str, Any] = {
    "mask_intrinsics": "off", "relative_position": False, "view_radius": FULL_RADIUS, "narrow_from": 0,
    "task_shown_for": None,
}  # fmt: skip
"""Their names and defaults."""


@dataclass(frozen=True)
class RewardRules:
    """What an agent is paid beyond its task, and what it may not do."""

    heal: float = 0  # for a tick that restored health
    explore: float = 0  # for each event of a kind that is new to the life, and each kill and sale; at most 3 a tick
    hp: float = 0  # for each point of health gained; negative for each lost
    experience: float = 0  # for each point by which the largest experience of all skills grew
    defence: float = 0  # for each 15 points of the mean defence over the three styles, in every tick
    attack: float = 0  # for each point of damage inflicted
    gold: float = 0  # for each coin gained; negative for each lost
    scale: float = 1  # of the sum of `hp` to `gold`
    disable_give: bool = False  # whether giving items or gold is illegal
    spare_dangerous_npcs: bool = False  # whether attacking NPCs that fight back is illegal
    as_published: bool = True
    """False for the rules of this toolkit's older policies: kills and sales pay only if they are new, `experience` pays
    for the skill that gained most, `defence` for changes of the mean defence; and an agent may name the prices of gifts
    that it cannot give."""


MOST_CODES = 512
BETA = 0.25
"""Weight of moving places to codes, relative to moving codes to places."""
PAIRWISE_WEIGHT = 500.0
"""Weight of the pairwise loss, relative to that of quantisation."""

Feed = Literal["number", "embedding"]
"""How a code enters the action heads and the critic: its number divided by the number of codes, added to all units, or
a learnt vector."""


@dataclass(frozen=True)
class SemanticShape:
    """Everything needed to build a `SemanticModule`, except its number of inputs and its weights."""

    codes: Annotated[int, Field(ge=2, le=MOST_CODES)]
    plane_dimensions: Annotated[int, Field(ge=2, le=3)] = 2  # 2 or 3
    feed: Feed = "number"  # how a code enters the action heads and the critic

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")
