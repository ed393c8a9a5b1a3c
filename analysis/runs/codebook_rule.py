"""Codes for any record of a dump, from the codebook of a semantic run; needs no torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from analysis.runs.finished_files import FinishedFiles
from common.arrays import arrays_of
from common.user_error import UserError

CODEBOOK_FILE = "codebook.npz"
_ARRAYS = ("weight", "bias", "places", "label")
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class CodebookRule:
    """The rule of a semantic run: the code nearest to a record's place in the plane. U units, D dimensions, K codes.

    Attributes:
        weight: of the map from activations to the plane, (U, D) float32.
        places: of the codes, (K, D) float32.
        label: cluster of each code, (K,) int64; `NOISE` for a code that no record of the run had.
    """

    exact: ClassVar[bool] = True
    """Whether it labels every record as the run would have."""

    weight: np.ndarray
    bias: np.ndarray
    places: np.ndarray
    label: np.ndarray

    def plane(self, activations: np.ndarray) -> np.ndarray:
        """Return places in the plane, (B, D) float32."""
        return np.asarray(activations @ self.weight + self.bias, np.float32)

    def labels_of(self, activations: np.ndarray) -> np.ndarray:
        """Label activations of the run's layer, (B, units) to (B,) int64."""
        parts = []
        for start in range(0, len(activations), _ROWS_AT_ONCE):
            plane = self.plane(activations[start : start + _ROWS_AT_ONCE])
            squared = np.square(plane[:, None] - self.places).sum(axis=2)  # (rows, K)
            parts.append(self.label[squared.argmin(axis=1)])
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def in_words(self) -> str:
        """Return sentences that describe the rule and its accuracy."""
        return (
            "Every record has the code that is nearest to its place in the plane, also those that the run left out: "
            "labels are exact."
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the rule as arrays."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def numbers(self) -> dict[str, Any]:
        """Return the rule's numbers for JSON."""
        return {"codes": len(self.places), "plane_dimensions": len(self.bias)}


def read_codebook(finished: FinishedFiles) -> CodebookRule:
    """Read the codebook of a finished semantic run.

    Raises:
        UserError: the run has none, or it is damaged.
    """
    if CODEBOOK_FILE not in finished:
        raise UserError(f"{finished.path} holds no {CODEBOOK_FILE}: give a run of semantic_clusters.py fit")
    try:
        arrays = arrays_of(finished.read(CODEBOOK_FILE), _ARRAYS)
        weight, bias, places, label = (arrays[name] for name in _ARRAYS)
        floats = all(array.dtype == np.float32 and np.isfinite(array).all() for array in (weight, bias, places))
        fits = bias.ndim == 1 and weight.shape[1:] == places.shape[1:] == bias.shape and label.shape == places.shape[:1]
        if not (floats and fits and label.dtype.kind == "i" and len(label)):
            raise ValueError("its arrays do not fit each other")
    except ValueError as error:
        raise UserError(f"{finished.path / CODEBOOK_FILE} is no codebook ({error}): fit it again") from None
    return CodebookRule(weight, bias, places, label)
