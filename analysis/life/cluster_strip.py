"""The clusters along one life."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClusterStrip:
    """The clusters of one life's records, (B,) each, and the run that found them.

    Attributes:
        label: cluster from 0, or `clustering.NOISE`.
        exact: whether the run labelled the record itself; other labels were propagated.
    """

    label: np.ndarray
    exact: np.ndarray
    run: str
