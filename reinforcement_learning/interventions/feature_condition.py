"""Conditions on the strength of a sparse feature in the memory with which a tick begins."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from activation_store.conditions import COMPARISONS
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from activation_store.sparse_dictionary import SparseDictionary, feature_name
from agent_zoo.feature_edits import coder_of
from agent_zoo.memory import MemoryState
from user_error import UserError


@dataclass(frozen=True, eq=False)
class FeatureCondition:
    """A comparison of a feature's strength, in the state with which a tick begins, with a number.

    Attributes:
        dictionary: of a layer of the memory.
        feature: number of the feature.
        comparison: as in `when.Condition`.
        number: that the strength is compared with.
    """

    dictionary: SparseDictionary
    feature: int
    comparison: str
    number: float

    def holds(self, memory: MemoryState) -> np.ndarray:
        """Say for which agents it holds, given their memory before the tick: (B,) bool."""
        states = memory_states(memory)[self.dictionary.source.layer]
        strengths = coder_of(self.dictionary, str(states.device)).strengths(states)[:, self.feature]
        return COMPARISONS[self.comparison](strengths.cpu().numpy(), self.number)


def memory_states(memory: MemoryState) -> Mapping[str, torch.Tensor]:
    """Return the states of each layer of a memory by name, (B, units) each."""
    return {
        name: states[number]
        for kind, states in ((LSTM_HIDDEN, memory.hidden), (LSTM_CELL, memory.cell))
        for number, name in enumerate(memory_names(kind, len(states)))
    }


def check_in_memory(dictionary: SparseDictionary, memory: tuple[str, ...], feature: int) -> None:
    """Refuse a condition on a feature of a layer whose state is not known when a tick begins.

    Raises:
        UserError: the layer is not part of the memory.
    """
    if dictionary.source.layer not in memory:
        raise UserError(
            f"--while {feature_name(feature)}: {dictionary.source.layer} is not part of the memory, so its state is "
            f"not known when a tick begins; conditions work on features of {', '.join(memory) or 'no layer'}"
        )
