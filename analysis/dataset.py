"""What one analysis is about: the records kept of a dump, one layer's activations, and the features beside them."""

from dataclasses import dataclass

import numpy as np

from activation_store.records import Records
from activation_store.schema import DumpMetadata
from analysis.features import Feature
from analysis.lives import Lives


@dataclass(frozen=True, eq=False)
class Dataset:
    """B records, U units, F features.

    Attributes:
        metadata: of the dump.
        layer: the layer that `activations` are of.
        features: the columns of `values`.
        records: those kept.
        lives: of the records.
        activations: (B, U) float32, finite.
        values: (B, F) float64, finite.
    """

    metadata: DumpMetadata
    layer: str
    features: tuple[Feature, ...]
    records: Records
    lives: Lives
    activations: np.ndarray
    values: np.ndarray
