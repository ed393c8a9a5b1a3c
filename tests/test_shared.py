"""Folders shared by tests are built once, and rebuilt if that failed."""

from pathlib import Path

import pytest

from tests.shared import shared_folder


class Session:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def getbasetemp(self) -> Path:
        return self.folder


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return Session(tmp_path)


def test_a_folder_is_built_once(session) -> None:
    built: list[Path] = []
    folders = [shared_folder(session, "one", built.append) for _ in range(2)]
    assert folders[0] == folders[1] and built == folders[:1]
    assert shared_folder(session, "other", built.append) != folders[0] and len(built) == 2


def test_what_failed_to_build_is_built_anew(session) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        shared_folder(session, "one", fail)
    folder = shared_folder(session, "one", lambda path: (path / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_workers_share_the_folder_of_their_session(session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker's own folder lies in the session's."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    folders = []
    for worker in ("popen-gw0", "popen-gw1"):
        (session.folder / worker).mkdir()
        folders.append(shared_folder(Session(session.folder / worker), "one", lambda path: None))
    assert folders[0] == folders[1] == session.folder / "shared" / "one"
