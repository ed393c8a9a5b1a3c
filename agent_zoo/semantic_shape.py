"""The shape of a semantic plane and its codebook, and defaults; without torch, so that options are checked early."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

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
