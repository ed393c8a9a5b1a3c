"""Directions for tests."""

from collections.abc import Sequence

import numpy as np

from activation_store.directions import Direction, Source


def direction(weight: Sequence[float], name: str = "one", layer: str = "lstm_hidden", **given: float) -> Direction:
    """A direction with this weight; its read-out has the mean 0 and the spread 1 unless given."""
    about = {"bias": 0.0, "mean": 0.0, "spread": 1.0} | given
    return Direction(
        name, layer, np.array(weight, dtype=np.float32), about["bias"], "units", about["mean"], about["spread"],
        records=100, lives=10, episodes=2, source=Source("probe", "run", "dump", "policy", None),
    )  # fmt: skip


def unit(place: int, units: int, name: str = "one", layer: str = "lstm_hidden", **given: float) -> Direction:
    """The direction of one unit."""
    return direction(np.eye(units)[place].tolist(), name, layer, **given)
