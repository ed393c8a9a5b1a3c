"""Lives and windows of dumps with planted lives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from activation_store.reader import read_dump
from activation_store.schema import LIFE_KEY
from activation_store.writer import DumpWriter
from analysis.recorded import sequences
from analysis.recorded.sequences import Parts, SequenceBatch, lives, windows
from tests.command import assert_refuses
from tests.planted import Planted, planted_dump

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


def test_the_seed_decides_the_order(dump: Path) -> None:
    one, again, other, unshuffled = (order(windows(dump, 5, seed=seed)) for seed in (7, 7, 8, None))
    assert one == again and sorted(one) == sorted(other) == sorted(unshuffled)
    assert one != other != unshuffled != one
    episodes = [episode for episode, _, _ in unshuffled]
    assert episodes == sorted(episodes)
    assert len({episode for episode, _, _ in one[:40]}) > 1, "windows of several episodes are mixed"


def test_only_some_episodes_are_read_at_a_time(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
