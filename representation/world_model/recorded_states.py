"""Recorded states of a layer, from which edits of a simulation are computed."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.reader import read_batches, read_dump, read_metadata
from activation_store.selection import select
from activation_store.subsample import Subsample
from agent_zoo.linear_readings import JointMoments, Reading
from agent_zoo.own_features import OWN
from analysis.features.observed import Observed, own_truth_columns
from representation.world_model.model import Origin
from representation.world_model.windows import maps_of_episodes

_ONE_IN = 10
_MANY = 200_000  # records, above which only one in ten is read
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

    def moments(self, reading: Reading) -> JointMoments:
        """Return the moments of a layer's states and of variables of the same records, in the episodes of `known`.

        Of more than 200,000 records, one in ten is read. Variables have the values of the game, also those that the
        policy does not see.

        Args:
            reading: layer and variables.

        Raises:
            UserError: the dump lacks the layer.
        """
        metadata = read_metadata(self.dump)
        columns = [name.removeprefix(OWN) for name in reading.variables if name.startswith(OWN)]
        parts = select(
            self.dump, metadata, layers=[reading.layer], columns=own_truth_columns(metadata),
            leave_out=[each for each in EVERYTHING_BUT_STATES if each != "entity"], episodes=self.known,
            subsample=Subsample(_ONE_IN if metadata.records > _MANY else 1),
        )  # fmt: skip
        found = reading.empty(metadata.layers[reading.layer])
        for batch in read_batches(self.dump, metadata, parts):
            seen = Observed(batch, metadata)
            rows = np.stack([batch.agent_id, *map(seen.own, columns)], axis=1)  # (B, 1 + columns)
            found += reading.sums(batch.activations[reading.layer], rows, ["", *columns], batch.tick)
        return reading.of(found)

    @property
    def known(self) -> tuple[int, ...]:
        """Episodes on maps that the model was trained on, where no simulation starts; all if the dump has none."""
        stored = tuple(maps_of_episodes(read_metadata(self.dump)))
        return tuple(episode for episode in stored if episode not in self.origin.test) or stored
