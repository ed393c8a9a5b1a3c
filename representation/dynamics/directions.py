"""Directions found by an analysis of dynamics: components, clusters and slow modes, in raw activation units."""

from collections.abc import Iterator

import numpy as np

from activation_store.directions import Direction, Source, SourceKind
from analysis.clusters.dataset import Dataset
from analysis.clusters.directions import cluster_directions
from representation.dynamics.decompositions import Kind
from representation.dynamics.jacobians import SlowMode
from representation.dynamics.results import States

KINDS: dict[Kind, SourceKind] = {
    "pca": "principal component", "ica": "independent component", "nmf": "non-negative component"
}  # fmt: skip
COMPONENT_UNIT = "standard deviations of the component"
MODE_UNIT = "activity of the mode"


def state_directions(states: States, run: str, dump: str) -> Iterator[Direction]:
    """Yield `pc_N`, `ic_N` and `nmf_N`, from 1, and `cluster_N`, from 0.

    Read-outs of components are in standard deviations, 0 at the mean state. That of a non-negative component is the
    best linear one.

    Args:
        states: what was found.
        run: name of the run's folder.
        dump: name of the dump's folder.
    """
    for found in states.decompositions.values():
        weights = found.axes.read_outs / states.scale.spread
        source = _source(KINDS[found.kind], states.data, run, dump)
        for name, weight in zip(found.names, weights, strict=True):
            yield _direction(name, weight, states.scale.mean, COMPONENT_UNIT, states.data, source)
    yield from cluster_directions(states.data, states.label, run, dump)


def mode_directions(modes: list[SlowMode], states: States, run: str, dump: str) -> Iterator[Direction]:
    """Yield `slow_N`, from 1: the activity of the layer's slow modes, 0 at the mean state."""
    source = _source("slow mode", states.data, run, dump)
    for number, mode in enumerate(modes, start=1):
        yield _direction(f"slow_{number}", mode.read_out, states.scale.mean, MODE_UNIT, states.data, source)


def _source(kind: SourceKind, data: Dataset, run: str, dump: str) -> Source:
    return Source(kind, run, dump, data.metadata.policy, data.metadata.checkpoint_sha256)


def _direction(
    name: str, weight: np.ndarray, origin: np.ndarray, unit: str, data: Dataset, source: Source
) -> Direction:
    rounded = weight.astype(np.float32)
    bias = float(-(origin @ rounded.astype(np.float64)))
    value = np.einsum("bu,u->b", data.activations, rounded, dtype=np.float64) + bias
    return Direction(
        name=name, layer=data.layer, weight=rounded, bias=bias, unit=unit, mean=float(value.mean()),
        spread=float(value.std()), records=len(data), lives=len(data.lives),
        episodes=len(np.unique(data.records.episode)), source=source,
    )  # fmt: skip
