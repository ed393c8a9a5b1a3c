"""Variables that are taken as known, such as the tick or the present action, as columns that probes can read."""

import numpy as np

_KNOTS = 8
SCALE = 30.0
"""What these columns are scaled by beside a baseline: their penalty is 900 times smaller, so they are used in full.

Otherwise a wide baseline, which needs a large penalty, would drown them, and the memory would get the credit.
"""


def smooth_basis(given: np.ndarray) -> np.ndarray:
    """Expand variables so that a linear probe of them can bend: cubic splines, (B, G) to (B, columns) float32.

    A variable of few values gets a column for each of them instead.
    """
    from sklearn.preprocessing import OneHotEncoder, SplineTransformer

    blocks = [np.empty((len(given), 0))]
    for column in given.T[:, :, None]:
        few = len(np.unique(column)) <= _KNOTS
        basis = OneHotEncoder(sparse_output=False) if few else SplineTransformer(_KNOTS, knots="quantile")
        blocks.append(basis.fit_transform(column))
    return np.concatenate(blocks, axis=1).astype(np.float32)
