"""Folders shared by tests: built once by the first worker that needs one, and only read afterwards."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def shared_root(factory: pytest.TempPathFactory) -> Path:
    """The folder of this session that all its workers share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def shared_folder(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """Return a folder filled by `build`; a name identifies its content, which must not be modified afterwards.

    A worker waits for a folder that another one is building. If building failed, it is repeated.
    """
    folder = shared_root(factory) / "shared" / name
    done = folder.with_name(f"{name}.done")
    folder.parent.mkdir(exist_ok=True)
    with FileLock(folder.with_name(f"{name}.lock")):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            done.touch()
    return folder
