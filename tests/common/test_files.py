"""Files appear whole or not at all, also where a library opens them itself."""

import stat
from pathlib import Path

import pytest

from common.files import atomic_file, atomic_path
from common.user_error import UserError


def test_a_file_appears_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "new" / "film.gif"
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"whole")
        assert not target.exists() and temporary.parent == target.parent
    assert target.read_bytes() == b"whole" and [each.name for each in target.parent.iterdir()] == ["film.gif"]
    assert stat.S_IMODE(target.stat().st_mode) & 0o600 == 0o600 and target.stat().st_mode & 0o111 == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "film.gif"
    target.write_bytes(b"old")
    for opened in (atomic_path, atomic_file):
        with pytest.raises(error), opened(target) as half:
            half.write_bytes(b"half") if isinstance(half, Path) else half.write(b"half")
            raise error
        assert target.read_bytes() == b"old" and [each.name for each in tmp_path.iterdir()] == ["film.gif"]


def test_a_folder_that_cannot_be_made_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"), atomic_path(tmp_path / "file" / "film.gif"):
        pass
