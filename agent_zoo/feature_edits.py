"""Edits of sparse features: strengths set to a value, or states replaced by what a dictionary makes of them."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.edit_options import EditOptions
from agent_zoo.sparse_codes import SparseCoder
from agent_zoo.state_edits import DirectedEdit, EditOf
from user_error import UserError

_CODERS = 8


@dataclass(frozen=True, eq=False)
class EditedFeatures:
    """Features of a dictionary that an edit is about; none if whole states are replaced.

    Attributes:
        dictionary: of the layer.
        numbers: of the features.
    """

    dictionary: SparseDictionary
    numbers: tuple[int, ...] = ()

    @property
    def layer(self) -> str:
        """The layer whose states the dictionary writes."""
        return self.dictionary.source.layer


@dataclass(frozen=True, eq=False)
class FeatureEdit(DirectedEdit):
    """Gives features of every state the same strengths, and leaves all else in the state as it is.

    Attributes:
        features: that are edited.
        strength: that they get; 0 takes them out.
        of: always the state.
    """

    features: EditedFeatures
    strength: float
    of: EditOf = "state"

    @property
    def layer(self) -> str:  # type: ignore[override]
        """See `StateEdit`."""
        return self.features.layer

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """See `StateEdit.apply`."""
        coder = coder_of(self.features.dictionary, str(activations.device))
        numbers = list(self.features.numbers)
        change = self.strength - coder.strengths(activations)[:, numbers]  # (B, K)
        return activations + change @ coder.decoder[numbers]

    def axes(self) -> np.ndarray:
        """See `DirectedEdit.axes`."""
        return np.linalg.qr(self.features.dictionary.decoder[list(self.features.numbers)].T.astype(np.float64))[0].T


@dataclass(frozen=True, eq=False)
class Splice(DirectedEdit):
    """Replaces states by their reconstructions.

    Attributes:
        features: the dictionary.
        of: always the state.
    """

    features: EditedFeatures
    of: EditOf = "state"

    @property
    def layer(self) -> str:  # type: ignore[override]
        """See `StateEdit`."""
        return self.features.layer

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """See `StateEdit.apply`."""
        return coder_of(self.features.dictionary, str(activations.device)).reconstruction(activations)

    def axes(self) -> np.ndarray:
        """See `DirectedEdit.axes`."""
        return np.eye(self.features.dictionary.units)


def features_of(options: EditOptions, dictionary: SparseDictionary | None) -> EditedFeatures | None:
    """Return the features that an edit is about; None if it is about directions or the memory.

    Raises:
        UserError: the dictionary has no such feature.
    """
    if dictionary is None or not options.of_features:
        return None
    if options.edit == "splice":
        return EditedFeatures(dictionary)
    return EditedFeatures(dictionary, tuple(dictionary.number(name) for name in options.names))


def edit_of(features: EditedFeatures, strength: float) -> FeatureEdit | Splice:
    """Return the edit that gives features a strength, or that replaces whole states if it names no features."""
    return FeatureEdit(features, strength) if features.numbers else Splice(features)


def check_dictionary(
    dictionary: SparseDictionary, layer_units: Mapping[str, int], policy: str, sha256: str | None
) -> None:
    """Refuse a dictionary that does not fit a policy.

    Raises:
        UserError: the policy has no such layer, another number of units, or the dictionary is another policy's.
    """
    source = dictionary.source
    if layer_units.get(source.layer) != dictionary.units:
        raise UserError(
            f"--features holds features of {source.layer}, {dictionary.units} units, of {source.policy}; {policy} has "
            f"{', '.join(f'{name} ({units})' for name, units in layer_units.items())}"
        )
    if None not in (sha256, source.checkpoint_sha256) and source.checkpoint_sha256 != sha256:
        raise UserError(
            f"--features was fitted to another policy, {source.policy}, not to {policy} as it is now: extract "
            "activations and train the autoencoder again"
        )


@functools.lru_cache(maxsize=_CODERS)
def coder_of(dictionary: SparseDictionary, device: str) -> SparseCoder:
    """Return a dictionary ready to use on a device."""
    return SparseCoder(dictionary, device)
