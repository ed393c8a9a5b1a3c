"""Remove from activations what named variables explain."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from activation_store.schema import Records
from analysis.lives import Lives
from analysis.position import positions
from common.user_error import UserError

OWN_VARIABLES = ("tick", "age", "row", "column", "agent", "episode")
_CATEGORIES = ("agent", "episode")
_KNOTS = 8


@dataclass(frozen=True)
class Residuals:
    """Residual activations, (B, units) float32, and the share of the variance that was removed, 0 to 1."""

    activations: np.ndarray
    variance_removed: float


def residual_variables(
    names: Sequence[str], records: Records, lives: Lives, features: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the variables with the given names, (B,) each.

    Args:
        names: of `OWN_VARIABLES` (age is the number of ticks since the first kept record of the life), or of features.
        features: of this run, by name, (B,) each.

    Raises:
        UserError: a variable does not exist, or is not among the features of this run.
    """
    check_residual_names(names, tuple(features))
    row, column = positions(records)
    birth = records.tick[lives.order[lives.starts]]
    own = {
        "tick": records.tick,
        "age": records.tick - birth[lives.index],
        "row": row,
        "column": column,
        "agent": records.agent_id,
        "episode": records.episode,
    }
    return {name: own[name] if name in own else features[name] for name in names}


def check_residual_names(names: Sequence[str], features: Sequence[str]) -> None:
    """Refuse names that are neither in `OWN_VARIABLES` nor features of this run.

    Raises:
        UserError: names the first unknown one, and a similar name.
    """
    there = dict.fromkeys((*OWN_VARIABLES, *features))
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, there, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UserError(
                f"--residualize {name}: there is no such variable; {hint}there are {', '.join(OWN_VARIABLES)}, and "
                "features that --features names"
            )


def residualize(activations: np.ndarray, variables: Mapping[str, np.ndarray]) -> Residuals:
    """Regress variables out of activations by least squares for each unit, and return the residuals, with mean 0.

    A numeric variable enters as a cubic spline with 8 knots at its quantiles (scikit-learn's SplineTransformer), which
    fits any smooth function, and a straight line exactly. Agent, episode and any variable with at most 8 values enter
    as categories. Effects are additive: interactions, such as of row and column at a single place, are not removed.

    Args:
        activations: (B, units).
        variables: (B,) each, finite; one that never changes removes nothing.
    """
    centre = activations.mean(axis=0, dtype=np.float64)
    values = activations - centre
    design = np.column_stack([np.ones(len(values)), *(_basis(name, variable) for name, variable in variables.items())])
    # Orthonormal basis of the design matrix, without linearly dependent columns.
    basis, sizes, _ = np.linalg.svd(design, full_matrices=False)
    basis = basis[:, sizes > sizes[0] * len(design) * np.finfo(float).eps]
    left = values - basis @ (basis.T @ values)
    total = float((values**2).sum())
    removed = 1 - float((left**2).sum()) / total if total > 0 else 0.0
    return Residuals(left.astype(np.float32), removed)


def _basis(name: str, values: np.ndarray) -> np.ndarray:
    """Return a variable's columns in the design matrix, (B, columns)."""
    distinct, number = np.unique(values, return_inverse=True)
    if name in _CATEGORIES or len(distinct) <= _KNOTS:
        return (number[:, None] == np.arange(1, len(distinct))).astype(np.float64)
    from sklearn.preprocessing import SplineTransformer

    knots = np.unique(np.quantile(values.astype(np.float64), np.linspace(0, 1, _KNOTS)))
    transformer = SplineTransformer(degree=3, knots=knots[:, None], include_bias=False)
    return np.asarray(transformer.fit_transform(values.astype(np.float64)[:, None]))
