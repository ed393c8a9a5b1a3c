"""Episodes are divided into those to fit to and those to test on; of large dumps whole episodes are left out."""

from pathlib import Path

import pytest

from activation_store.reader import read_metadata
from analysis.sparse.states import Split, split_episodes
from tests.planted import planted_dump, write_planted

EPISODES = 8


@pytest.fixture(scope="module", params=["json", "parquet"])
def dump(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    planted = planted_dump(episodes=EPISODES, ticks=20)
    return write_planted(tmp_path_factory.mktemp("dump") / "dump", planted, format=request.param)


def split(dump: Path, most: int) -> Split:
    return split_episodes(dump, read_metadata(dump), 0, most)


def test_a_quarter_is_tested_on_and_no_more_records_are_used_than_allowed_but_an_episode_of_each(dump: Path) -> None:
    records = read_metadata(dump).records
    parts, whole, half, least = (split(dump, most) for most in (records, 10**6, records // 2, 1))
    assert sorted((*parts.train, *parts.test)) == list(range(EPISODES)) and len(parts.test) == 2
    assert 0 < len(half.train) <= 3 and len(half.test) == 1
    assert set(half.train) < set(whole.train) and set(half.test) < set(whole.test)
    assert len(least.train) == len(least.test) == 1
