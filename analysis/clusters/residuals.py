"""Activations without what named variables explain of them."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from activation_store.schema import Records
from analysis.lives import Lives
from analysis.position import positions
from user_error import UserError

OWN_VARIABLES = ("tick", "age", "row", "column", "agent", "episode")
_CATEGORIES = ("agent", "episode")
_KNOTS = 8


@dataclass(frozen=True)
class Residuals:
    """What is left of activations, (B, units) float32, and the share of their variance that was removed, 0 to 1."""

    activations: np.ndarray
    variance_removed: float


def residual_variables(
    names: Sequence[str], records: Records, lives: Lives, features: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the variables of the given names, (B,) each.

    Args:
        names: of `OWN_VARIABLES` (age is the number of ticks since the first kept record of the life), or of features.
        features: that can be named, (B,) each.

    Raises:
        UserError: there is no such variable, or it is not among the features of this run.
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
    """Refuse variables that are neither ours nor features of this run.

    Raises:
        UserError: names the first unknown one, and what is like it.
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
    """Regress variables out of activations, by least squares for each unit, and return what is left, mean 0.

    A number enters as a cubic spline with 8 knots at its quantiles (scikit-learn's SplineTransformer), which follows
    any smooth course, and a straight line exactly; agent, episode and any variable with at most 8 values enter as
    categories. Effects add up: what depends on row and column together, such as a single place, is not removed.

    Args:
        activations: (B, units).
        variables: (B,) each, finite; one that never changes removes nothing.
    """
    centre = activations.mean(axis=0, dtype=np.float64)
    values = activations - centre
    design = np.column_stack([np.ones(len(values)), *(_basis(name, each) for name, each in variables.items())])
    # Orthonormal columns of the design, without those that others make up already.
    basis, sizes, _ = np.linalg.svd(design, full_matrices=False)
    basis = basis[:, sizes > sizes[0] * len(design) * np.finfo(float).eps]
    left = values - basis @ (basis.T @ values)
    total = float((values**2).sum())
    removed = 1 - float((left**2).sum()) / total if total > 0 else 0.0
    return Residuals(left.astype(np.float32), removed)


def _basis(name: str, values: np.ndarray) -> np.ndarray:
    """Return the columns that a variable enters a regression with, (B, columns)."""
    distinct, number = np.unique(values, return_inverse=True)
    if name in _CATEGORIES or len(distinct) <= _KNOTS:
        return (number[:, None] == np.arange(1, len(distinct))).astype(np.float64)
    from sklearn.preprocessing import SplineTransformer

    knots = np.unique(np.quantile(values.astype(np.float64), np.linspace(0, 1, _KNOTS)))
    transformer = SplineTransformer(degree=3, knots=knots[:, None], include_bias=False)
    return np.asarray(transformer.fit_transform(values.astype(np.float64)[:, None]))
