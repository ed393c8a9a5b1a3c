"""The axes along which the groups of a partition differ most, as directions that interventions can use."""

import numpy as np

from activation_store.directions import Direction, Source, direction_from
from analysis.lives import Lives

AXES = 3
"""Axes of a partition, so that editing them edits as many dimensions whatever the partition is."""
UNIT = "activation units along the axis, from the mean state"


def group_axes(
    states: np.ndarray, label: np.ndarray, name: str, layer: str, lives: Lives, episodes: int, source: Source
) -> list[Direction]:
    """Return the principal axes of the groups' mean states, weighted by the groups' sizes.

    Args:
        states: of the policy's layer, (B, U).
        label: group of each state, (B,) int64 from 0.
        name: of the partition; directions are called NAME_1 and so on.
        layer: of the states.
        lives: of the states.
        episodes: of the states.
        source: of the directions.

    Returns:
        At most `AXES` directions of length 1, the one with most variance between groups first.
    """
    count = np.bincount(label)  # (G,)
    mean = states.mean(axis=0, dtype=np.float64)
    total = np.zeros((len(count), states.shape[1]))
    np.add.at(total, label, states)
    between = np.sqrt(count)[:, None] * (total / np.maximum(count, 1)[:, None] - mean)  # (G, U)
    _, size, axes = np.linalg.svd(between, full_matrices=False)
    kept = size[:AXES] > 1e-6 * max(size[0], np.finfo(np.float64).tiny)
    return [
        direction_from(f"{name}_{number}", layer, axis, mean, UNIT, states, len(lives), episodes, source)
        for number, axis in enumerate(axes[:AXES][kept], 1)
    ]
