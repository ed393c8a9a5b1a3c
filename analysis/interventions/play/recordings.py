"""What is recorded of an arm while it is played: activation dumps in the format of extraction, and a replay."""

import contextlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
from nmmo.render.replay_helper import ReplayHelper

from activation_store.columns import COLUMNS, Column
from activation_store.interventions import Arm
from activation_store.schema import DumpMetadata
from activation_store.writer import DumpWriter, state_of
from agent_zoo.capture import capture
from reinforcement_learning.play.contest import Contest, Group, ReplayWriter
from reinforcement_learning.play.extraction import RecordingPlan, metadata_of
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
            layers: names of `activation_store.layers`, or `agent_zoo.capture.ALL_LAYERS`.
            drawn: which slots were drawn at random, (slots,) bool.
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


DUMPS_FOLDER = "dumps"


def dump_folder(folder: Path, arm: Arm) -> Path:
    """Return the folder of an arm's dump in a run's folder."""
    return folder / DUMPS_FOLDER / re.sub(r"[^A-Za-z0-9.+-]+", "_", arm.name)


class RecordedArms(contextlib.ExitStack):
    """Writes the dumps of a run, as a context manager: leaving it without an error finishes them.

    They are of the trained policy, without the edit and with it. Episodes that are stored completely survive an
    interruption; a later run writes the others.
    """

    def __init__(self, folder: Path, contest: Contest, arms: Sequence[Arm], plan: RecordingPlan):
        """Prepare to record the episodes and layers of a plan; without layers, nothing is recorded."""
        super().__init__()
        self._metadata = {
            arm.name: (dump_folder(folder, arm), _metadata(contest, plan, arm))
            for arm in arms
            if plan.layers and arm.policy == "trained" and arm.kind in ("unedited", "edit")
        }
        self.layers = plan.layers
        self._writers: dict[str, DumpWriter] = {}  # by arm; none of a dump that is complete since an earlier run
        self._stored: dict[str, set[int]] = {}  # episodes stored before this run, or before a group started over

    def __enter__(self) -> Self:
        """Open the dumps.

        Raises:
            UserError: as `DumpWriter`.
        """
        with contextlib.ExitStack() as stack:
            for arm, (folder, metadata) in self._metadata.items():
                if state_of(folder) != "whole":
                    self._writers[arm] = stack.enter_context(DumpWriter(folder, metadata, resume=True))
                    self._stored[arm] = set(self._writers[arm].stored)
            self.push(stack.pop_all())
        return self

    @property
    def folders(self) -> list[Path]:
        """The folders of the dumps."""
        return [folder for folder, _ in self._metadata.values()]

    def layers_of(self, arm: Arm) -> tuple[str, ...]:
        """Return the layers that are recorded of an arm; none if it is not recorded."""
        return self.layers if arm.name in self._metadata else ()

    def hold(self, arm: Arm, group: Group) -> bool:
        """Return whether a group of episodes need not be played for the dumps."""
        return arm.name not in self._writers or set(group.numbers) <= self._writers[arm.name].stored.keys()

    def take(self, arm: str, recorded: Batch | Finished) -> None:
        """Write what was recorded of an arm."""
        if arm not in self._writers:
            return
        writer, stored = self._writers[arm], self._stored[arm]
        if isinstance(recorded, Finished):
            if recorded.number not in stored:
                writer.finish_episode(recorded.number, recorded.description)
            return
        new = recorded.records.take(~np.isin(recorded.records.episode, list(stored)))
        if len(new):
            writer.write(new)

    def start_over(self, arm: str, group: Group) -> None:
        """Forget the unfinished episodes of a group that is played again."""
        if arm in self._writers:
            self._writers[arm].drop_unfinished(group.numbers)
            self._stored[arm] = set(self._writers[arm].stored)


def _metadata(contest: Contest, plan: RecordingPlan, arm: Arm) -> DumpMetadata:
    extracted = metadata_of(contest, contest.entrants[0], plan)
    intervention: Mapping[str, object] = {"arm": arm.name, "kind": arm.kind, "dose": arm.dose}
    return replace(
        extracted,
        columns={**extracted.columns, **EDIT_COLUMNS},
        environment={**extracted.environment, "intervention": intervention},
    )


class KeptReplay:
    """Records one of a pool's worlds until its episode ends; the game plays as it would without the recording.

    Agents that were drawn at random are called `POLICY_drawn_17`, the others `POLICY_17`, so that every reader of
    replays tells them apart as two policies.
    """

    def __init__(self, pool: PolicyPool, world: int, drawn: np.ndarray):
        """Start to record; `drawn` says which of the pool's slots were drawn at random, (slots,) bool."""
        shared, first = pool.shared[world], world * pool.agents
        self._realm = shared.world.game.realm
        for agent, is_drawn in zip(shared.agents, drawn[first : first + pool.agents], strict=True):
            self._realm.players[agent].name = f"{pool.entrants[0].name}{'_drawn' if is_drawn else ''}_{agent}"
        self._file = io.BytesIO()
        self._writer = ReplayWriter(self._file)
        self._realm.record_replay(self._writer)
        self._writer.reset()

    def finish(self) -> bytes:
        """Stop recording, and return the content of the replay's file."""
        self._writer.finish()
        self._realm.record_replay(ReplayHelper())  # which records nothing: the pool plays other groups next
        return self._file.getvalue()
