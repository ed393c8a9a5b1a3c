"""Codes for any record of a dump, from the codebook of a semantic run, and names given to codes; needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from analysis.runs.finished_files import FinishedFiles
from common.array_files import arrays_of
from common.files import read_bytes, write_text
from common.user_error import UserError
from common.yaml_file import parse_yaml

CODEBOOK_FILE = "codebook.npz"
_ARRAYS = ("weight", "bias", "places", "label")
_ROWS_AT_ONCE = 65_536
_MOST_AT_ONCE = 1 << 27  # distances along dimensions: many learnt codes have a dimension each
NAMES_FILE = "labels.yaml"
LONGEST_NAME = 60
_LARGEST_BYTES = 1 << 16
_HEAD = "# Names of codes: write one after the colon. `semantic_clusters.py` and `explore.py` show them.\n"


@dataclass(frozen=True, eq=False)
class CodebookRule:
    """The rule of a semantic run: the code nearest to a record's place in the plane. U units, D dimensions, K codes."""

    exact: ClassVar[bool] = True
    """Whether it labels every record as the run would have."""

    weight: np.ndarray  # of the map from activations to the plane, (U, D) float32
    bias: np.ndarray
    places: np.ndarray  # of the codes, (K, D) float32
    label: np.ndarray  # cluster of each code, (K,) int64; `NOISE` for a code that no record of the run had

    def plane(self, activations: np.ndarray) -> np.ndarray:
        """Return places in the plane, (B, D) float32."""
        return np.asarray(activations @ self.weight + self.bias, np.float32)

    def labels_of(self, activations: np.ndarray) -> np.ndarray:
        """Label activations of the run's layer, (B, units) to (B,) int64."""
        parts = []
        rows = min(_ROWS_AT_ONCE, max(1, _MOST_AT_ONCE // self.places.size))
        for start in range(0, len(activations), rows):
            plane = self.plane(activations[start : start + rows])
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
    """Read the codebook of a finished semantic run (UserError: the run has none, or it is damaged)."""
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


def read_names(run: Path) -> dict[int, str]:
    """Return the names of a run's codes, shortened to `LONGEST_NAME`; codes without a name are left out.

    Raises:
        UserError: labels.yaml is too large, is no YAML, or holds something other than `NUMBER: name`.
    """
    return {number: name[:LONGEST_NAME] for number, name in _whole_names(run).items()}


def _whole_names(run: Path) -> dict[int, str]:
    path = run / NAMES_FILE
    if not path.exists():
        return {}
    content = read_bytes(path)
    if len(content) > _LARGEST_BYTES:
        raise UserError(f"{path} is larger than {_LARGEST_BYTES >> 10} KiB: names of codes are short")
    try:
        parsed = parse_yaml(path, content)
    except UserError as error:
        raise UserError(f"{error}: write one line `NUMBER: name` for each code") from None
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise UserError(f"{path} holds no names: write one line `NUMBER: name` for each code")
    names = {}
    for number, name in parsed.items():
        if type(number) is not int or not isinstance(name, str | None):
            raise UserError(f"{path} must hold lines `NUMBER: name`, with the name in quotes if it is a number")
        if name and name.strip():
            names[number] = " ".join(name.split())
    return names


def keep_names(run: Path, labels: Sequence[int]) -> Path:
    """Write labels.yaml with a line for each code, keeping the names that it has."""
    import yaml

    names = _whole_names(run)
    lines = [yaml.safe_dump({label: names.get(label, "")}, allow_unicode=True, width=1000) for label in labels]
    write_text(run / NAMES_FILE, _HEAD + "".join(lines))
    return run / NAMES_FILE


def called(label: int, names: Mapping[int, str]) -> str:
    """Return what to call a code: its number, and its name if it has one."""
    return f"{label} ({names[label]})" if label in names else str(label)
