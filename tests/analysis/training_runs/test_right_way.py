"""Shares of lives that go the right way: from real recordings, and of planted kinds of trainings."""

from pathlib import Path

import numpy as np
import pytest

from activation_store.reader import read_dump, read_metadata
from analysis import score_ways
from analysis.features.choices import GOAL
from analysis.features.observed import Observed
from analysis.training_runs.right_way import WaysOfLives, lives_of_dump, score_kinds
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import assert_refuses
from tests.recorded_policy import RecordedPolicy, record_policy

STEPS = {"north": (-1, 0), "south": (1, 0), "east": (0, 1), "west": (0, -1)}


def test_ways_are_the_steps_after_the_interrupt_and_what_has_none_is_refused(
    ways: RecordedPolicy, recorded: RecordedPolicy
) -> None:
    """Tick by tick, for each life, from the recorded places; the jump of the interrupt is no step."""
    records, world = read_dump(ways.dump, layers=[]), read_metadata(ways.dump).environment
    names = world["tasks"]
    paths: dict[tuple[int, int], list[tuple[int, int, int, str]]] = {}
    for i in np.argsort(records.step, kind="stable"):
        side = names[records.columns["truth/task"][i]].split("side:")[1].split("_")[0]
        at = (int(records.step[i]), int(records.columns["row"][i]), int(records.columns["col"][i]), side)
        paths.setdefault((int(records.episode[i]), int(records.agent_id[i])), []).append(at)
    expected = []
    for path in paths.values():
        later = [at for at in path if at[0] > world["interrupt"]]  # the first record after everybody was moved
        row, column = STEPS[path[0][3]]
        if len(later) > 1:
            expected.append(row * (later[-1][1] - later[0][1]) + column * (later[-1][2] - later[0][2]))
    result = lives_of_dump(ways.dump)
    assert sorted(result.way.tolist()) == sorted(expected)
    assert np.std(expected) > 0 and len(set(result.world.tolist())) == 2
    of_one_kind = {"a_1": lives(0.5, np.random.default_rng(0))}
    assert_refuses("--against c: the kinds of trainings are a", score_kinds, of_one_kind, "c", 0.95)
    assert_refuses("has no tasks to go to a side of the map or to water", lives_of_dump, recorded.dump)
    metadata = read_metadata(ways.dump)
    records.columns["truth/task"] = records.columns["truth/task"] + 4
    assert_refuses("the dump has 4 tasks: extract it again", GOAL.compute, Observed(records, metadata))


def test_on_the_way_to_water_a_life_goes_right_if_it_arrives(
    tmp_path_factory: pytest.TempPathFactory, small_world: EnvironmentSettings, maps: Path
) -> None:
    task = TaskSettings(curriculum="to_water", embedding_size=16)
    recorded = record_policy(tmp_path_factory.mktemp("water"), small_world, task, maps)
    result, records = lives_of_dump(recorded.dump), read_dump(recorded.dump, layers=[])
    best: dict[tuple[int, int], float] = {}
    for i in np.argsort(records.step, kind="stable"):
        best[int(records.episode[i]), int(records.agent_id[i])] = float(records.columns["truth/task_progress"][i])
    assert result.to_water and sorted(result.way.tolist()) == sorted(best.values())
    assert 0 < max(best.values()) <= 1
    planted = WaysOfLives(np.array(["w", "w", "w", "v"]), np.array([1.0, 0.9, 0.0, 1.0]), to_water=True)
    assert planted.by_world() == {"w": 1 / 3, "v": 1.0}


def lives(share: float, rng: np.random.Generator) -> WaysOfLives:
    """400 lives in eight worlds, of which this share goes the right way."""
    way = np.where(rng.random(400) < share, 3.0, -2.0)
    return WaysOfLives(np.repeat([f"world {i}" for i in range(8)], 50), way)


def test_kinds_are_told_apart_and_chance_is_one_half() -> None:
    rng = np.random.default_rng(0)
    dumps = {f"{kind}_{seed}": lives(share, rng) for kind, share in (("a", 0.9), ("b", 0.5)) for seed in range(4)}
    one, other = score_kinds(dumps, None, 0.95)
    assert (one.kind, one.trainings, one.lives, one.against) == ("a", 4, 1600, "b")
    assert one.share.low < 0.9 < one.share.high and other.share.low < 0.5 < other.share.high
    assert one.difference is not None and one.difference.low > 0.3 and one.difference.p < 1e-3
    assert other.difference is None
    assert WaysOfLives(np.array(["w"]), np.zeros(1)).by_world() == {"w": 0.5}, "who stands still goes either way"


def test_the_script_prints_and_writes(
    ways: RecordedPolicy, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["score_ways.py", str(ways.dump), "-o", str(tmp_path / "scores.tsv")])
    score_ways.main()
    names, row = (line.split("\t") for line in (tmp_path / "scores.tsv").read_text().splitlines())
    share = dict(zip(names, row, strict=True))["share"]
    assert f"{float(share):.2f}" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["score_ways.py", str(ways.dump), str(ways.dump)])
    assert_refuses("two dumps are called", score_ways.main)
