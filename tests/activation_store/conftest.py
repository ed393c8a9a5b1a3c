"""Fixtures of dumps that tests may damage."""

import shutil
from pathlib import Path

import pytest

from tests.planted import planted_dump, write_planted


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    planted = planted_dump(agents=2, episodes=1, ticks=6, layers={"action_decoder": 4, "lstm_cell": 2})
    return write_planted(tmp_path_factory.mktemp("dumps") / "whole", planted)


@pytest.fixture
def dump(whole: Path, tmp_path: Path) -> Path:
    """A copy of the whole dump."""
    return Path(shutil.copytree(whole, tmp_path / "dump"))
