"""Lives and windows of dumps, and a policy's observations rebuilt exactly, for which it gives the same outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump
from activation_store.recording import SEEN_FIELDS
from activation_store.records import Records
from activation_store.schema import LIFE_KEY
from activation_store.writer import DumpWriter
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import capture
from agent_zoo.memory import MemoryState
from agent_zoo.observation import ObservationLayout, PackedObservation, PackedRows
from analysis.recorded import sequences
from analysis.recorded.recorded_observation import check_shows_everything, packed_observation
from analysis.recorded.sequences import Parts, SequenceBatch, lives, windows
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.extraction import RecordingPlan, metadata_of, record_group, write
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from tests.command import assert_refuses
from tests.planted import Planted, planted_dump
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


def test_records_are_what_the_policy_saw_and_what_was_withheld_is_withheld_again(played: Played) -> None:
    check_shows_everything(played.dump, played.layout)
    records = read_dump(played.dump)
    result = again(played, records)
    assert_equal(result, played.shown)
    assert result.entity.counts.max() > 1 and len(result.inventory.values) > 0
    assert len(result.task.unique()) > 1 and len(result.legal.unique()) > 1
    masked = not played.policy.mask.clock
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


def test_records_that_lack_something_and_dumps_of_something_else_are_refused(played: Played, recording) -> None:
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
    layout = played.layout
    message = "was recorded without Market, Task, ActionTargets, which the policy sees"
    assert_refuses(message, check_shows_everything, recording.dump, layout)
    for change, message in (
        ({"task_size": 17}, "holds task embeddings of 16 numbers, the policy takes 17"),
        ({"heads": layout.heads[1:]}, "other action heads"),
        ({"entity_columns": layout.entity_columns[1:]}, "other columns"),
    ):
        assert_refuses(message, check_shows_everything, played.dump, replace(layout, **change))


LAYER = "action_decoder"
EPISODES = 6


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump(agents=5, episodes=EPISODES, ticks=20)


@pytest.fixture(scope="module", params=["parquet", "json"])
def dump(request, planted: Planted, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dumps") / request.param
    with DumpWriter(folder, replace(planted.metadata, format=request.param)) as writer:
        writer.write(planted.records)
    return folder


def stretches(batches: list[SequenceBatch]) -> dict[tuple[int, ...], int]:
    """Check every sequence against the dump; return the number of ticks of each by its life and first tick."""
    result = {}
    for batch in batches:
        ends = np.cumsum(batch.lengths)
        assert len(batch.records) == ends[-1] and len(batch) == len(batch.first)
        for end, length, first in zip(ends, batch.lengths, batch.first, strict=True):
            part = batch.records.take(np.arange(end - length, end))
            (key,) = {tuple(life) for life in np.stack([getattr(part, name) for name in LIFE_KEY], axis=1).tolist()}
            assert (np.diff(part.tick) == 1).all()
            result[(*key, int(first))] = int(length)
    assert len(result) == sum(len(batch) for batch in batches)
    return result


def lengths(planted: Planted) -> dict[tuple[int, ...], int]:
    keys = np.stack([getattr(planted.records, name) for name in LIFE_KEY], axis=1)
    result, counts = np.unique(keys, axis=0, return_counts=True)
    return {tuple(key): int(count) for key, count in zip(result.tolist(), counts, strict=True)}


@pytest.mark.parametrize("seed", [None, 3])
def test_every_life_comes_once_and_whole(dump: Path, planted: Planted, seed: int | None) -> None:
    result = stretches(list(lives(dump, batch=3, seed=seed)))
    assert result == {(*key, 0): count for key, count in lengths(planted).items()}


@pytest.mark.parametrize(("length", "stride"), [(6, None), (6, 2), (4, 7), (1, 1), (50, 5)])
def test_windows_begin_every_stride_and_reach_the_end(dump: Path, planted: Planted, length: int, stride) -> None:
    result = stretches(list(windows(dump, length, stride=stride, batch=4, seed=1)))
    expected, step = {}, stride or length
    for key, count in lengths(planted).items():
        for first in range(0, count, step):
            expected[(*key, first)] = min(length, count - first)
            if first + length >= count:
                break
    assert result == expected
    if step <= length:
        seen = {(*key, first + i) for (*key, first), ticks in result.items() for i in range(ticks)}
        assert len(seen) == len(planted.records)


def test_padding_and_what_came_before(dump: Path, planted: Planted) -> None:
    whole = {tuple(life[:3]): life for life in _by_life(dump)}
    for batch in windows(dump, 6, stride=4, batch=5, seed=0):
        grid = batch.layer(LAYER)
        assert grid.shape == (len(batch), batch.lengths.max(), 16) and batch.action.shape[:2] == batch.there.shape
        assert (grid[~batch.there] == 0).all() and (batch.there.sum(axis=1) == batch.lengths).all()
        ends = np.cumsum(batch.lengths)
        for i, (length, first) in enumerate(zip(batch.lengths, batch.first, strict=True)):
            key = tuple(int(getattr(batch.records, name)[ends[i] - 1]) for name in LIFE_KEY)
            activations = whole[key][3]
            np.testing.assert_array_equal(grid[i, :length], activations[first : first + length])
            before = activations[first - 1] if first else np.zeros(16)
            np.testing.assert_array_equal(batch.before[LAYER][i], before)
            here = slice(ends[i] - length, ends[i])
            np.testing.assert_array_equal(batch.column("row")[i, :length], batch.records.column("row")[here])


def _by_life(dump: Path) -> list[tuple]:
    records = read_dump(dump)
    keys = np.stack([getattr(records, name) for name in LIFE_KEY], axis=1)
    return [(*key, records.activations[LAYER][(keys == key).all(axis=1)]) for key in np.unique(keys, axis=0).tolist()]


def order(batches) -> list[tuple[int, ...]]:
    result = []
    for batch in batches:
        last = np.cumsum(batch.lengths) - 1
        columns = (batch.records.episode[last], batch.records.agent_id[last], batch.first)
        result += zip(*(column.tolist() for column in columns), strict=True)
    return result


def test_the_seed_decides_the_order_and_only_some_episodes_are_read_at_a_time(
    dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, again, other, unshuffled = (order(windows(dump, 5, seed=seed)) for seed in (7, 7, 8, None))
    assert one == again and sorted(one) == sorted(other) == sorted(unshuffled)
    assert one != other != unshuffled != one
    episodes = [episode for episode, _, _ in unshuffled]
    assert episodes == sorted(episodes)
    assert len({episode for episode, _, _ in one[:40]}) > 1, "windows of several episodes are mixed"
    asked = []

    def read(folder: Path, **options):
        asked.append(options["episodes"])
        return read_dump(folder, **options)

    monkeypatch.setattr(sequences, "read_dump", read)
    done: list[float] = []
    assert stretches(list(lives(dump, progress=done.append))) and asked == [[i] for i in range(EPISODES)]
    assert done == pytest.approx(np.arange(1, EPISODES + 1) / EPISODES)
    asked.clear()
    assert stretches(list(lives(dump, seed=0))) and [len(some) for some in asked] == [4, 2]
    assert sorted(episode for some in asked for episode in some) == list(range(EPISODES))


def test_only_the_parts_asked_for_are_read(dump: Path) -> None:
    parts = Parts(layers=(), columns=("row",), leave_out=("tile", "entity", "inventory"))
    batch = next(lives(dump, parts=parts))
    assert not batch.records.activations and not batch.before and set(batch.records.columns) == {"row"}
    assert batch.records.tile.shape[1] == 0
    assert_refuses("holds no layer 'lstm_cell'", next, lives(dump, parts=Parts(layers=("lstm_cell",))))


def test_a_missing_tick_is_refused(planted: Planted, tmp_path: Path) -> None:
    records = planted.records
    gone = np.flatnonzero((records.episode == 1) & (records.agent_id == records.agent_id[records.episode == 1][0]))[3]
    with DumpWriter(tmp_path / "broken", planted.metadata) as writer:
        writer.write(records.take(np.arange(len(records)) != gone))
    message = f"no record of the tick after {records.tick[gone] - 1} of agent .* in episode 1"
    assert_refuses(message, list, lives(tmp_path / "broken"))


@pytest.mark.parametrize("bad", [{"length": 0}, {"length": 3, "stride": 0}, {"length": 3, "batch": 0}])
def test_sizes_are_checked(dump: Path, bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        next(windows(dump, **bad))
