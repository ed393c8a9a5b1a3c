"""Recorded states of a layer, from which edits of a simulation are computed."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.reader import read_dump
from activation_store.subsample import Subsample
from representation.world_model.model import Origin

_ONE_IN = 10
EVERYTHING_BUT_STATES = ("tile", "entity", "inventory", "tables", "reward", "value", "log_probability")
"""What `activation_store.reader.read_dump` leaves out where only states are needed."""


@dataclass(frozen=True)
class RecordedStates:
    """The states in a dump of a model's policy.

    Attributes:
        dump: its folder.
        origin: of the model, with the dump's episodes.
    """

    dump: Path
    origin: Origin

    def covariance(self, layer: str) -> np.ndarray:
        """Return the covariance of a layer's states on the maps kept for testing, (units, units).

        Raises:
            UserError: the dump lacks the layer.
        """
        records = read_dump(
            self.dump, subsample=Subsample(_ONE_IN), layers=[layer], columns=[], leave_out=EVERYTHING_BUT_STATES,
            episodes=self.origin.test,
        )  # fmt: skip
        return np.cov(records.activations[layer].astype(np.float64), rowvar=False)
