"""Fixtures of dumps that tests may damage."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def dump(whole: Path, tmp_path: Path) -> Path:
    """A copy of the test module's own `whole` dump."""
    return Path(shutil.copytree(whole, tmp_path / "dump"))
