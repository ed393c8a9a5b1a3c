"""A policy's observations are rebuilt exactly from its dump, and the policy gives the same outputs for them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump
from activation_store.recording import SEEN_FIELDS
from activation_store.records import Records
from activation_store.writer import DumpWriter
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import capture
from agent_zoo.memory import MemoryState
from agent_zoo.observation import ObservationLayout, PackedObservation, PackedRows
from analysis.recorded.recorded_observation import check_shows_everything, packed_observation
from analysis.recorded.sequences import Parts, SequenceBatch, lives, windows
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.extraction import RecordingPlan, metadata_of, record_group, write
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from tests.command import assert_refuses
from tests.tiny_policies import tiny_entrant

LAYERS = ("encoder_output", "lstm_hidden", "lstm_cell", "action_decoder")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
MASKED, TWO_LAYERS = "masked", "two layers"


@dataclass(frozen=True)
class Played:
    """A dump, its policy, and all of the policy's observations, in the order of the records."""

    dump: Path
    entrant: Entrant
    shown: PackedObservation

    @property
    def policy(self) -> RecurrentPolicy:
        return self.entrant.policy

    @property
    def layout(self) -> ObservationLayout:
        return self.entrant.info.layout


@pytest.fixture(scope="module", params=[MASKED, TWO_LAYERS])
def played(request, small_world, task, maps, tmp_path_factory) -> Played:
    """Two episodes of a policy that sees little of itself and of the world, or of one without a mask, of two layers."""
    env, agent, layers = replace(small_world, num_npcs=64, horizon=40), "yaofeng", 2
    if request.param == MASKED:
        env = replace(env, mask_intrinsics="strict", relative_position=True, view_radius=4)
        agent, layers = "neurips23_start_kit", 1
    entrant = tiny_entrant(env, task, maps, agent, seed=2, lstm_layers=layers)
    contest = Contest((entrant,), env, task, maps, torch.device("cpu"))
    plan = RecordingPlan(2, None, 3, LAYERS, SEEN_FIELDS, format="parquet")
    folder, shown, advance = tmp_path_factory.mktemp("dumps") / "all", [], PolicyPool.advance

    def watched(pool: PolicyPool, choices: Sequence[EntrantActions]) -> None:
        shown.extend(choice.decision.observation for choice in choices)
        advance(pool, choices)

    with pytest.MonkeyPatch.context() as patch, DumpWriter(folder, metadata_of(contest, entrant, plan)) as writer:
        patch.setattr(PolicyPool, "advance", watched)
        for number in range(plan.episodes):
            group = Group(plan.seed, (number,))
            output = record_group(contest.pool(1), group, plan.layers, plan.fields, plan.most_ticks)
            write(((group, item) for item in output), [writer], lambda *_: None)
    return Played(folder, entrant, PackedObservation.concatenate(shown))


def again(played: Played, records: Records) -> PackedObservation:
    return packed_observation(records, played.layout, played.policy.mask)


def assert_equal(one: PackedObservation, other: PackedObservation) -> None:
    for field in fields(PackedObservation):
        a, b = getattr(one, field.name), getattr(other, field.name)
        pairs = [(a.values, b.values), (a.counts, b.counts)] if isinstance(a, PackedRows) else [(a, b)]
        for x, y in pairs:
            assert x.dtype == y.dtype and torch.equal(x, y), field.name


def test_records_are_what_the_policy_saw(played: Played) -> None:
    check_shows_everything(played.dump, played.layout)
    records = read_dump(played.dump)
    result = again(played, records)
    assert_equal(result, played.shown)
    assert result.entity.counts.max() > 1 and len(result.inventory.values) > 0
    assert len(result.task.unique()) > 1 and len(result.legal.unique()) > 1


def test_what_was_withheld_is_withheld_again(played: Played) -> None:
    records = read_dump(played.dump)
    result, masked = again(played, records), not played.policy.mask.clock
    columns = [played.layout.entity_columns.index(name) for name in ("health", "food", "row", "time_alive")]
    own = result.entity.values[result.entity.values[:, 0] == result.agent_id[result.entity.owner]]
    assert len(own) == len(records) and records.tick.max() > 0
    assert ((own[:, columns] == 0).all() and (result.tick == 0).all() and (result.centre == 0).all()) == masked
    assert ((own[:, columns[:3]] > 0).any() and (result.tick > 0).any()) != masked


@torch.no_grad()
def test_lives_played_again_tick_by_tick_leave_the_same_activations(played: Played) -> None:
    policy, count = played.policy, 0
    for batch in lives(played.dump, batch=16, seed=1):
        observation, state = again(played, batch.records), policy.initial_state(len(batch))
        place = batch.padded(np.arange(len(batch.records)))
        with capture(policy, ["encoder_output"]) as captured:
            for tick in range(batch.there.shape[1]):
                alive, here = torch.from_numpy(batch.there[:, tick].nonzero()[0]), place[batch.there[:, tick], tick]
                _, value, after = policy(observation.take(torch.from_numpy(here)), state.take(alive))
                state.put(alive, after)
                result = {"lstm_hidden": after.hidden[-1], "lstm_cell": after.cell[-1], **captured}
                for layer, values in result.items():
                    np.testing.assert_allclose(values.numpy(), batch.records.activations[layer][here], **CLOSE)
                np.testing.assert_allclose(value.numpy(), batch.records.value[here], **CLOSE)
        count += len(batch.records)
    assert count == len(played.shown)


@torch.no_grad()
def test_lives_played_again_as_segments_choose_the_same(played: Played) -> None:
    policy = played.policy
    for batch in lives(played.dump, batch=16):
        observation, lengths = again(played, batch.records), torch.from_numpy(batch.lengths)
        with capture(policy, ["encoder_output", "action_decoder"]) as captured:
            again_played = policy.forward_segments(observation, lengths, policy.initial_state(len(batch)))
        for layer, values in captured.items():
            np.testing.assert_allclose(values.numpy(), batch.records.activations[layer], **CLOSE)
        np.testing.assert_allclose(again_played.value.numpy(), batch.records.value, **CLOSE)
        chosen = again_played.distribution.log_probability(torch.from_numpy(batch.records.action))
        np.testing.assert_allclose(chosen.numpy(), batch.records.log_probability, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("played", [MASKED], indirect=True)
def test_windows_start_from_the_memory_before_them(played: Played) -> None:
    policy, inside = played.policy, 0
    for batch in windows(played.dump, 5, stride=3, batch=32, seed=0):
        state = MemoryState(*(memory(batch, layer) for layer in ("lstm_hidden", "lstm_cell")))
        with capture(policy, ["action_decoder"]) as captured:
            policy.forward_segments(again(played, batch.records), torch.from_numpy(batch.lengths), state)
        result = captured["action_decoder"].numpy()
        np.testing.assert_allclose(result, batch.records.activations["lstm_hidden"], **CLOSE)
        inside += int((batch.first > 0).sum())
    assert inside > 10


def memory(batch: SequenceBatch, layer: str) -> torch.Tensor:
    """The memory at the start of windows, (1, S, units)."""
    return torch.from_numpy(batch.before[layer])[None]


def test_records_that_lack_something_are_refused(played: Played) -> None:
    layout, mask = played.layout, played.policy.mask
    for parts, message in (
        (Parts(leave_out=("tile",)), "no tiles or no entities"),
        (Parts(leave_out=("entity",)), "no tiles or no entities"),
        (Parts(leave_out=("tables",)), "hold no Market: extract with --record standard"),
        (Parts(columns=("legal",)), "no column 'task'"),
    ):
        records = next(lives(played.dump, parts=parts)).records
        assert_refuses(message, packed_observation, records, layout, mask)
    with pytest.raises(ValueError, match="task is 16 wide in the records and 17 in the layout"):
        packed_observation(next(lives(played.dump)).records, replace(layout, task_size=17), mask)


def test_dumps_of_something_else_are_refused(played: Played, recording) -> None:
    layout = played.layout
    message = "was recorded without Market, Task, ActionTargets, which the policy sees"
    assert_refuses(message, check_shows_everything, recording.dump, layout)
    for change, message in (
        ({"task_size": 17}, "holds task embeddings of 16 numbers, the policy takes 17"),
        ({"heads": layout.heads[1:]}, "other action heads"),
        ({"entity_columns": layout.entity_columns[1:]}, "other columns"),
    ):
        assert_refuses(message, check_shows_everything, played.dump, replace(layout, **change))
