"""Edits of sparse features: strengths set to a value, or states replaced by what a dictionary makes of them."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.sparse_codes import SparseCoder
from analysis.interventions.edits.state_edits import DirectedEdit, EditOf
from common.user_error import UserError

_CODERS = 8


@dataclass(frozen=True, eq=False)
class FeatureEdit(DirectedEdit):
    """Gives features of every state the same strengths, and leaves all else as it is; or replaces whole states.

    Attributes:
        numbers: of the features; if there are none, states are replaced by their reconstructions.
        strength: that the features get; 0 takes them out.
    """

    dictionary: SparseDictionary
    numbers: tuple[int, ...] = ()
    strength: float = 0.0
    of: EditOf = "state"

    @property
    def layer(self) -> str:  # type: ignore[override]
        """The layer whose states the dictionary writes."""
        return self.dictionary.source.layer

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """See `StateEdit.apply`."""
        coder, numbers = coder_of(self.dictionary, str(activations.device)), list(self.numbers)
        if not numbers:
            return coder.reconstruction(activations)
        change = self.strength - coder.strengths(activations)[:, numbers]  # (B, K)
        return activations + change @ coder.decoder[numbers]

    def axes(self) -> np.ndarray:
        """See `DirectedEdit.axes`."""
        if not self.numbers:
            return np.eye(self.dictionary.units)
        return np.linalg.qr(self.dictionary.decoder[list(self.numbers)].T.astype(np.float64))[0].T


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
