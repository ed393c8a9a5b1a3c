"""Parts of a run: their folder is removed only if it was made for parts."""

from pathlib import Path

import numpy as np

from analysis.runs.parts import Parts
from tests.command import assert_refuses


def test_other_folders_are_not_removed(tmp_path: Path) -> None:
    mine = tmp_path / ".run.parts" / "mine.txt"
    mine.parent.mkdir()
    mine.touch()
    assert_refuses("holds other files, and would be removed", Parts, tmp_path / "run", {"seed": 1})
    assert mine.exists()


def test_parts_of_other_arguments_are_removed(tmp_path: Path) -> None:
    """Those without a key, too, if a killed run had nothing but unfinished files there."""
    Parts(tmp_path / "run", {"seed": 1}).arrays("a", lambda: {"x": np.zeros(1)})
    assert Parts(tmp_path / "run", {"seed": 1}).there == ["a"]
    folder = Parts(tmp_path / "run", {"seed": 2}).folder
    assert [path.name for path in folder.iterdir()] == ["key.json"]
    (folder / "key.json").rename(folder / ".key.json.x.partial")
    assert Parts(tmp_path / "run", {"seed": 1}).there == []
