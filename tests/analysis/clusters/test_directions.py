"""Cluster differences and components as directions, on activations whose means and variances are planted."""

import numpy as np
import pytest

from activation_store.directions import Direction
from analysis.clusters.components import principal_components
from analysis.clusters.dataset import Dataset
from analysis.clusters.directions import cluster_directions, component_directions
from analysis.labels import NOISE
from tests.planted import planted_dump
from tests.planted_summary import planted_dataset

LAYER = "action_decoder"


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted_dataset(planted_dump(agents=6, episodes=3, ticks=40))


@pytest.fixture(scope="module")
def labels(data: Dataset) -> np.ndarray:
    """Arbitrary labels: two clusters and noise."""
    return np.arange(len(data)) % 3 + NOISE


def named(found: list[Direction], data: Dataset) -> dict[str, Direction]:
    for item in found:
        assert (item.layer, item.records, item.lives, item.episodes) == (LAYER, len(data), len(data.lives), 3)
        assert item.source.run == "run" and item.source.dump == "dump" and item.source.policy == "planted"
        assert next(item.faults(), None) is None
        value = item.read_out(data.activations)
        assert item.mean == pytest.approx(value.mean()) and item.spread == pytest.approx(value.std())
    return {item.name: item for item in found}


def test_a_cluster_reads_one_at_its_mean_and_zero_at_that_of_the_rest(data: Dataset, labels: np.ndarray) -> None:
    result = named(list(cluster_directions(data, labels, "run", "dump")), data)
    assert list(result) == ["cluster_0", "cluster_1"]
    for number, item in enumerate(result.values()):
        assert item.source.kind == "cluster difference"
        inside = labels == number
        value = item.read_out(data.activations)
        assert (value[inside].mean(), value[~inside].mean()) == pytest.approx((1, 0), abs=1e-5)
        # One unit of the read-out, along the weight, is the whole difference.
        step = item.weight / (item.weight @ item.weight)
        difference = data.activations[inside].mean(axis=0) - data.activations[~inside].mean(axis=0)
        np.testing.assert_allclose(step, difference, rtol=1e-3, atol=1e-5)


def test_a_cluster_that_does_not_differ_from_the_rest_has_no_direction(data: Dataset) -> None:
    assert not list(cluster_directions(data, np.zeros(len(data), int), "run", "dump"))
    assert not list(cluster_directions(data, np.full(len(data), NOISE), "run", "dump"))


def test_components_read_their_scores(data: Dataset) -> None:
    components = principal_components(data.activations)
    result = named(list(component_directions(data, components, "run", "dump")), data)
    assert len(result) == components.needed_for((0.99,))[0.99] and next(iter(result)) == "component_1"
    scores = components.scores(data.activations, len(result))
    for column, item in enumerate(result.values()):
        assert item.source.kind == "principal component"
        np.testing.assert_allclose(item.read_out(data.activations), scores[:, column], atol=1e-4)
        assert item.mean == pytest.approx(0, abs=1e-5) and item.weight @ item.weight == pytest.approx(1)
