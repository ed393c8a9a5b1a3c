"""How worlds are split, and what the scores of worlds are made of."""

import numpy as np

FOLDS_AT_MOST = 5


def folds_of_worlds(world: np.ndarray) -> np.ndarray:
    """Deal worlds out to folds of about as many records each, five at most: (B,) worlds to (W,) int64 folds."""
    from sklearn.model_selection import GroupKFold

    worlds = int(world.max()) + 1
    folds = np.empty(worlds, np.int64)
    splitter = GroupKFold(min(FOLDS_AT_MOST, worlds))
    for fold, (_, held_out) in enumerate(splitter.split(world, groups=world)):
        folds[world[held_out]] = fold
    return folds
