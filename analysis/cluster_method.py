"""How clusters are found, as something that can be done again: with another seed, other lives or other activations."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClusterMethod:
    """How activations become clusters. Both functions must be importable by name, for other processes call them too.

    Attributes:
        embed: from activations (B, units) and a keyword `seed` to the points that are clustered, (B, dimensions).
        cluster: from points to labels, (B,): clusters from 0, largest first, negative for noise.
        seeded: whether the seed makes any difference to `embed`.
    """

    embed: Callable[..., np.ndarray]
    cluster: Callable[[np.ndarray], np.ndarray]
    seeded: bool = True
