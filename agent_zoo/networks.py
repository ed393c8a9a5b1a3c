"""Names of the networks that an agent may have; without torch, so that options are checked early."""

from typing import Literal

Network = Literal["published", "earlier"]
