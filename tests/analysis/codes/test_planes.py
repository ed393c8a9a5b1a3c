"""Neighbourhoods kept by a plane equal scikit-learn's trustworthiness and a plain count."""

import numpy as np
import pytest
from sklearn.manifold import trustworthiness
from sklearn.neighbors import NearestNeighbors

from analysis.codes.planes import NEIGHBOURS, PlaneStates, kept_by


def neighbours(points: np.ndarray) -> list[set[int]]:
    near = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(points).kneighbors(points, return_distance=False)
    return [set(row.tolist()) - {i} for i, row in enumerate(near)]


def test_numbers_are_the_known_ones() -> None:
    activations = np.random.default_rng(0).normal(size=(160, 6)).astype(np.float32)
    lives = np.repeat(np.arange(16), 10)
    states = PlaneStates(activations, np.zeros(160, np.int64), lives, activations[:, :2], "layer")
    planes = {"part": states.plane, "noise": np.random.default_rng(1).normal(size=(160, 2)), "same": states.activations}
    kept = {item["name"]: item for item in kept_by(states, planes, 200, 0)}
    for name, plane in planes.items():
        assert kept[name]["trustworthiness"] == pytest.approx(
            trustworthiness(states.activations, plane, n_neighbors=NEIGHBOURS)
        )
        pairs = zip(neighbours(states.activations), neighbours(plane), strict=True)
        assert kept[name]["neighbours"] == pytest.approx(np.mean([len(a & b) / NEIGHBOURS for a, b in pairs]))
        assert kept[name]["neighbours_low"] <= kept[name]["neighbours"] <= kept[name]["neighbours_high"]
    assert kept["same"]["trustworthiness"] == kept["same"]["neighbours"] == 1
    assert kept["noise"]["neighbours"] < kept["part"]["neighbours_low"]
