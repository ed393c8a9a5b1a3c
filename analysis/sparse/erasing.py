"""Three ways to take a variable out of states: what can still be read of it, and what the policy does then.

LEACE (Belrose et al. 2023, arXiv:2306.03819) removes all that can be read linearly with the least change. Nulling holds
one linear read-out, by ridge regression, at its mean. Removing features takes out the sparse features whose strengths
correlate most with the variable.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.sparse_codes import SparseCoder
from analysis.sparse.meaning import correlations

REMOVED = (1, 4, 16)
"""Numbers of features that are removed."""

NOTHING = "nothing"
_PENALTY = 1e-4

Edit = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class ErasureRow:
    """One way to erase one variable.

    Attributes:
        by: how: `nothing`, `leace`, `nulling` or `N features`.
        r2: share of the variable's variance that a linear read-out, fitted again to edited training states, explains in
            edited test states.
        moved: mean squared distance that states are moved, as a share of their variance.
        kl: divergence of the policy's actions from those on the recorded state, in nats; NaN if not spliced.
    """

    variable: str
    by: str
    r2: float
    moved: float
    kl: float


def edits(
    states: np.ndarray, variable: np.ndarray, strengths: sparse.csr_array, dictionary: SparseDictionary
) -> dict[str, Edit]:
    """Fit every way to erase a variable to training states.

    Args:
        states: (B, U) float32.
        variable: (B,), not constant.
        strengths: of the dictionary's features in these states, (B, F).
    """
    order = np.argsort(-np.abs(correlations(strengths, variable[:, None])[:, 0]), kind="stable")
    by_name: dict[str, Edit] = {NOTHING: lambda state: state, "leace": _leace(states, variable)}
    by_name["nulling"] = _nulling(states, variable)
    for count in REMOVED:
        by_name[f"{count} feature{'s' * (count > 1)}"] = _removal(dictionary, order[:count].tolist())
    return by_name


def row(
    variable: str, by: str, edit: Edit, training: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray],
    kl: float,
) -> ErasureRow:  # fmt: skip
    """Measure what is left of a variable after an edit; states, (B, U), and the variable, (B,), of both parts."""
    edited = [edit(torch.from_numpy(states)).numpy() for states, _ in (training, test)]
    weight, mean, offset = _read_out(edited[0], training[1])
    predicted = (edited[1] - mean) @ weight + offset
    left = np.square(test[1] - predicted).mean() / np.square(test[1] - training[1].mean()).mean()
    moved = np.square(edited[1] - test[0]).sum(axis=1).mean() / test[0].var(axis=0).sum()
    return ErasureRow(variable, by, float(1 - left), float(moved), kl)


def _leace(states: np.ndarray, variable: np.ndarray) -> Edit:
    from concept_erasure import LeaceFitter

    values = torch.from_numpy(states).double()
    fitter = LeaceFitter.fit(
        values, torch.from_numpy(variable.astype(np.float64) / variable.std())[:, None], constrain_cov_trace=False,
        shrinkage=False,
    )  # fmt: skip
    eraser = fitter.eraser
    return lambda state: eraser(state.double()).float()


def _nulling(states: np.ndarray, variable: np.ndarray) -> Edit:
    weight, mean, _ = _read_out(states, variable)
    direction = torch.from_numpy(weight / np.linalg.norm(weight))
    origin = torch.from_numpy(mean)

    def null(states: torch.Tensor) -> torch.Tensor:
        along = (states.double() - origin) @ direction
        return (states.double() - along[:, None] * direction).float()

    return null


def _removal(dictionary: SparseDictionary, numbers: list[int]) -> Edit:
    coder = SparseCoder(dictionary)

    def remove(states: torch.Tensor) -> torch.Tensor:
        parts = [chunk - coder.strengths(chunk)[:, numbers] @ coder.decoder[numbers] for chunk in states.split(4096)]
        return torch.cat(parts)

    return remove


def _read_out(states: np.ndarray, variable: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit a ridge regression; returns its weight, the states' mean, (U,) each, and the variable's mean."""
    mean, offset = states.mean(axis=0, dtype=np.float64), float(variable.mean())
    centred = states - mean
    products = centred.T @ centred / len(states)
    penalty = _PENALTY * np.trace(products) / len(products)
    weight = np.linalg.solve(products + penalty * np.eye(len(products)), centred.T @ (variable - offset) / len(states))
    return weight, mean, offset
