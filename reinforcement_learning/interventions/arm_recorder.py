"""Record the ticks of an edited game, as extraction records those of an unedited one."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from activation_store.columns import COLUMNS, Column
from agent_zoo.capture import capture
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from reinforcement_learning.play.recorder import Batch, Finished, Recorder

DRAWN, EDITED = "drawn", "edited"
EDIT_COLUMNS: dict[str, Column] = {name: COLUMNS[name] for name in (DRAWN, EDITED)}
"""Columns of dumps of an intervention run in addition to those of every extraction."""


class ArmRecorder:
    """Records one group of episodes of one arm; activations are those after the edit."""

    def __init__(self, pool: PolicyPool, layers: Sequence[str], drawn: np.ndarray):
        """Prepare for the episodes that the pool has just started.

        Args:
            pool: with one entrant.
            layers: names of `activation_store.layers`, or `agent_zoo.capture.ALL_LAYERS`.
            drawn: which slots were drawn by lot, (slots,) bool.
        """
        self._policy, self._drawn = pool.policies[0], drawn
        self._recorder = Recorder(pool, layers, fields=())
        self._recorder.begin()

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Within the block, keep the activations of the tick; hooks that edit them must have been attached before."""
        with capture(self._policy, self._recorder.layers[0]) as self._captured:
            yield

    def before(self, choice: EntrantActions, edited: np.ndarray) -> None:
        """Note the actions of a tick before they are played; `edited` are the slots that were edited, (E,) int64."""
        batch = self._recorder.before(choice, self._captured)
        columns = {DRAWN: self._drawn[batch.slots], EDITED: np.isin(batch.slots, edited)}
        records = replace(batch.records, columns={**batch.records.columns, **columns})
        self._batch = replace(batch, records=records)

    def after(self) -> Iterator[Batch | Finished]:
        """Yield the records of the tick, once it has been played, and the episodes that it has ended."""
        yield from self._recorder.after([self._batch])
