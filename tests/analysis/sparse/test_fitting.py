"""The folder in which finished parts wait: removed in the end, so nothing else may be in it."""

from pathlib import Path

from analysis.sparse.fitting import claim
from analysis.sparse.settings import SparseSettings
from tests.command import assert_refuses


def test_a_folder_with_other_files_is_not_claimed(tmp_path: Path) -> None:
    settings = SparseSettings(tmp_path / "dump", output_dir=tmp_path)
    settings.training_folder.mkdir()
    (settings.training_folder / ".plan.json.x.partial").touch()  # of a run that was killed at once
    assert claim(settings, {}) == settings.training_folder
    for path in settings.training_folder.iterdir():
        path.unlink()
    (settings.training_folder / "mine.txt").touch()
    assert_refuses("holds other files", claim, settings, {})
