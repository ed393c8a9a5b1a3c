"""Dictionaries of sparse features: the file format shared by the stage that fits them and those that use them.

A dictionary writes the state of a layer as a centre plus a weighted sum of few of its features:

    state = centre + strengths @ decoder

A file holds only arrays and text; opening it never runs code.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import orjson
from pydantic import ConfigDict

from common.array_files import Kind, read_tensors, write_tensors
from common.checked_json import in_shape
from common.user_error import UserError

FORMAT_VERSION = 1
FEATURE = "feature_"
"""Features are named by this and their numbers, from 0."""

_KIND: Kind = "sparse dictionary"
_STRICT = ConfigDict(strict=True, extra="forbid")
_UNIT_NORM = 1e-3
_FEATURE_NAME = re.compile(rf"{FEATURE}(\d{{1,7}})")

DictionaryKind = Literal["topk", "batch_topk", "jumprelu", "matryoshka", "pca", "ica", "k_means"]
"""The first four are autoencoders; the others are baselines, which have no encoder."""
AUTOENCODERS: tuple[DictionaryKind, ...] = ("topk", "batch_topk", "jumprelu", "matryoshka")
BASELINES: tuple[DictionaryKind, ...] = ("pca", "ica", "k_means")


@dataclass(frozen=True)
class DictionarySource:
    """What a dictionary was fitted to."""

    __pydantic_config__ = _STRICT

    run: str  # name of the folder of the run that fitted it
    dump: str  # name of the dump's folder
    dump_sha256: str  # of the dump's metadata file, 64 hexadecimal digits
    policy: str  # whose states the dump holds
    checkpoint_sha256: str | None  # of the policy's checkpoint file; None if unknown
    layer: str  # of the policy; a network beside it has a prefix, such as `untrained_lstm_cell`
    records: int  # states that it was fitted to
    lives: int
    episodes: int
    seed: int


@dataclass(frozen=True, eq=False)
class SparseDictionary:
    """F features of a layer of U units. How strengths follow from a state depends on the kind.

    An autoencoder computes z = (state - centre) @ encoder.T + encoder_bias. Of `topk`, the k largest positive z of a
    state are the strengths, the others are 0. Of the other kinds, the z above their feature's threshold are. Baselines
    choose k features by matching pursuit, and their strengths can be negative.
    """

    kind: DictionaryKind
    k: int  # features that a state has: exactly or at most for topk and the baselines, on average for the others
    decoder: np.ndarray  # the features' directions, each of length 1, (F, U) float32
    centre: np.ndarray  # the state without features, (U,) float32
    source: DictionarySource  # what it was fitted to
    encoder: np.ndarray | None = None  # (F, U) float32; None for baselines
    encoder_bias: np.ndarray | None = None  # (F,) float32; None for baselines
    threshold: np.ndarray | None = None  # (F,) float32, not negative; all 0 for topk; None for baselines

    @property
    def features(self) -> int:
        """How many there are."""
        return len(self.decoder)

    @property
    def units(self) -> int:
        """Of the layer."""
        return len(self.centre)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name."""
        names = ("decoder", "centre", "encoder", "encoder_bias", "threshold")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def number(self, name: str) -> int:
        """Return the number of a feature from its name, such as `feature_12` (UserError: there is no such feature)."""
        match = _FEATURE_NAME.fullmatch(name)
        if match is None or int(match[1]) >= self.features:
            raise UserError(
                f"there is no feature {name[:40]!r} in this dictionary: it has {FEATURE}0 to {FEATURE}"
                f"{self.features - 1}"
            )
        return int(match[1])

    def faults(self) -> Iterator[str]:
        """Yield one phrase per fault; nothing if the dictionary is usable."""
        arrays = self.arrays
        if any(array.dtype != np.float32 for array in arrays.values()):
            yield "its arrays are not float32"
            return
        if self.decoder.ndim != 2 or not self.decoder.size or self.centre.shape != self.decoder.shape[1:]:
            yield f"its decoder and centre have shapes {self.decoder.shape} and {self.centre.shape}"
            return
        expected = {"encoder": self.decoder.shape, "encoder_bias": (self.features,), "threshold": (self.features,)}
        wanted = expected if self.kind in AUTOENCODERS else {}
        if {name: array.shape for name, array in arrays.items() if name in expected} != wanted:
            yield f"it does not have the arrays of the kind {self.kind}"
        elif not all(np.isfinite(array).all() for array in arrays.values()):
            yield "it holds NaN or infinity"
        elif np.abs(np.linalg.norm(self.decoder, axis=1) - 1).max() > _UNIT_NORM:
            yield "its features do not have length 1"
        elif self.threshold is not None and (self.threshold < 0).any():
            yield "it has a negative threshold"
        if not 1 <= self.k <= self.features:
            yield f"it has {self.k} of {self.features} features in a state"


def feature_name(number: int) -> str:
    """Return a feature's name."""
    return f"{FEATURE}{number}"


def write_dictionary(path: Path, dictionary: SparseDictionary) -> None:
    """Write a dictionary atomically; equal dictionaries give identical files.

    Raises:
        ValueError: it is unusable.
    """
    if fault := next(dictionary.faults(), None):
        raise ValueError(f"{path.name} cannot be written: {fault}")
    header = {
        "version": FORMAT_VERSION, "kind": dictionary.kind, "k": dictionary.k, "source": vars(dictionary.source)
    }  # fmt: skip
    write_tensors(path, dictionary.arrays, orjson.dumps(header).decode(), _KIND)


def read_dictionary(path: Path) -> SparseDictionary:
    """Read a dictionary (UserError: the file is missing, damaged, of another kind or version, or unusable)."""
    arrays, text = read_tensors(path, _KIND)
    header = in_shape(_Header, text, f"{path} is damaged", "fit it again")
    if header.version != FORMAT_VERSION:
        raise UserError(f"{path} has version {header.version}; this toolkit reads version {FORMAT_VERSION}")
    optional = {"encoder", "encoder_bias", "threshold"}
    if not {"decoder", "centre"} <= arrays.keys() <= {"decoder", "centre", *optional}:
        raise UserError(f"{path} is damaged: it does not hold the arrays of a dictionary; fit it again")
    dictionary = SparseDictionary(header.kind, header.k, source=header.source, **arrays)
    if fault := next(dictionary.faults(), None):
        raise UserError(f"{path} cannot be used: {fault}; fit it again")
    return dictionary


@dataclass(frozen=True)
class _Header:
    __pydantic_config__ = _STRICT

    version: int
    kind: DictionaryKind
    k: int
    source: DictionarySource
