"""The game's own random numbers: regrowth of resources, moves of NPCs, the order of actions, loot."""

from collections.abc import Sequence
from typing import Any

import nmmo
import numpy as np


def throw_anew(game: nmmo.Env, seed: Sequence[int]) -> None:
    """Replace the game's random numbers from here on; everything else about the world stays as it is.

    Args:
        game: in the middle of an episode.
    """
    # Tiles and entities hold this very generator, so it is changed in place.
    generator: Any = game.realm._np_random
    generator.bit_generator.state = np.random.PCG64(np.random.SeedSequence(list(seed))).state
    generator._dir_seq[:] = generator.integers(0, 4, size=len(generator._dir_seq)).tolist()
