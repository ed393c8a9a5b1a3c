"""Directions found by an analysis, for use by other stages: cluster differences and principal components."""

from collections.abc import Iterator

import numpy as np

from activation_store.directions import Direction, Source, SourceKind, direction_from
from analysis.clusters.components import Components
from analysis.clusters.dataset import Dataset
from analysis.labels import NOISE

WRITTEN_SHARE = 0.99
"""Share of the variance that the written components explain together."""

CLUSTER_UNIT = "share of the way from the mean of all other records (0) to the cluster's mean (1)"
COMPONENT_UNIT = "component score"


def cluster_directions(data: Dataset, labels: np.ndarray, run: str, dump: str) -> Iterator[Direction]:
    """Yield a direction `cluster_NUMBER` for each cluster: its mean minus that of all other records, including noise.

    The weight is that difference divided by its squared length, so the read-out is 0 at the mean of the other records
    and 1 at the cluster's. If there are no other records, or both means are equal, there is no direction.
    """
    total = data.activations.sum(axis=0, dtype=np.float64)  # (U,)
    for number in np.unique(labels[labels != NOISE]).tolist():
        inside = labels == number
        own, count = data.activations[inside].sum(axis=0, dtype=np.float64), int(inside.sum())
        rest = (total - own) / max(len(data) - count, 1)  # (U,)
        difference = own / count - rest
        length = difference @ difference
        if count < len(data) and length > 0:
            weight = difference / length
            yield _direction(f"cluster_{number}", "cluster difference", weight, rest, CLUSTER_UNIT, data, run, dump)


def component_directions(data: Dataset, components: Components, run: str, dump: str) -> Iterator[Direction]:
    """Yield a direction `component_NUMBER`, from 1, for each component needed to explain `WRITTEN_SHARE`.

    Its weight has length 1; its read-out is the component's score, 0 at the mean of the activations. The other
    arguments are as in `cluster_directions`.
    """
    for i in range(components.needed_for((WRITTEN_SHARE,))[WRITTEN_SHARE]):
        weight = components.directions[i]
        name = f"component_{i + 1}"
        yield _direction(name, "principal component", weight, components.mean, COMPONENT_UNIT, data, run, dump)


def _direction(
    name: str, kind: SourceKind, weight: np.ndarray, origin: np.ndarray, unit: str, data: Dataset, run: str, dump: str
) -> Direction:
    """Return the direction with this weight whose read-out is 0 at the origin, (U,) each."""
    source = Source(kind, run, dump, data.metadata.policy, data.metadata.checkpoint_sha256)
    episodes = len(np.unique(data.records.episode))
    return direction_from(name, data.layer, weight, origin, unit, data.activations, len(data.lives), episodes, source)
