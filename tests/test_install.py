"""Ways to install: what pip builds, which Python `make` takes, and what it removes."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from email import message_from_bytes, message_from_string
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.command import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECLARED: list[dict[str, Any]] = PROJECT["tool"]["uv"]["dependency-metadata"]


@pytest.fixture
def backend(tmp_path: Path) -> ModuleType:
    """The build backend of a copy of the project, in which nothing is fetched: a wheel is a name."""
    for name in ("pyproject.toml", "README.md", "build_backend/pip_install.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    spec = importlib.util.spec_from_file_location("pip_install", tmp_path / "build_backend" / "pip_install.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pip_is_told_files_in_place_of_what_it_cannot_install(
    backend: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # as PEP 517 demands
    monkeypatch.setattr(backend, "_built", lambda declared: tmp_path / f"{declared['name']}.whl")
    folder = backend.prepare_metadata_for_build_editable(str(tmp_path))
    requirements = message_from_string((tmp_path / folder / "METADATA").read_text()).get_all("Requires-Dist")
    assert requirements is not None
    assert {f"{name} @ {(tmp_path / name).as_uri()}.whl" for name in ("nmmo", "pufferlib")} < set(requirements)
    assert not any(line.startswith(("nmmo=", "pufferlib=")) for line in requirements)
    assert any("pytest" in line and "dev" in line for line in requirements)


def test_a_built_package_asks_for_what_it_needs_and_only_the_folder_itself_can_be_installed(
    backend: ModuleType,
) -> None:
    own = b"Name: nmmo\nVersion: 2.1.2\nRequires-Python: <3.11\nRequires-Dist: numpy==1.23.3\nRequires-Dist: pylint\n\n"
    metadata = backend._with_requirements(message_from_bytes(own), DECLARED[0])
    assert metadata.get_all("Requires-Dist") == DECLARED[0]["requires-dist"]
    assert metadata.get_all("Requires-Python") == [DECLARED[0]["requires-python"]]
    assert metadata["Version"] == "2.1.2"
    for build in (backend.build_wheel, backend.build_sdist):
        with pytest.raises(SystemExit, match=r"pip install -e \.") as refused:
            build("folder")
        assert len(str(refused.value).splitlines()) == 1


def test_pip_builds_with_the_versions_that_uv_does_and_make_takes_every_python() -> None:
    pinned = set(PROJECT["project"]["dependencies"])
    assert {f"{item['name']}=={item['version']}" for item in DECLARED} < pinned
    assert set(PROJECT["build-system"]["requires"]) - {"pip", "wheel==0.45.1"} < pinned
    lowest, above = map(int, re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"]))
    text = (ROOT / "Makefile").read_text()
    for minor in range(lowest, above):
        assert f"python3.{minor} " in text
    assert f"(3, {lowest}) <= sys.version_info[:2] <= (3, {above - 1})" in text


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the Makefile, and a uv that only says how it was called."""
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text('#!/bin/sh\necho "downloads $UV_PYTHON_DOWNLOADS: $*"\nmkdir -p .venv\n')
    uv.chmod(0o755)
    return tmp_path


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "UV_", "PYTHON"))}
    changed = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=inherited | changed, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout of the repository")
def test_a_clone_carries_at_most_what_the_docs_say() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    carried = sum(path.stat().st_size for name in listed.split("\0") if (path := ROOT / name).is_file())
    assert 50e6 < carried < 200e6


def test_uv_fetches_a_python_where_none_fits(copy: Path) -> None:
    done = make(copy, "setup", f"PYTHON={sys.executable}")
    assert done.returncode == 0 and f"downloads never: sync --quiet --python {sys.executable}" in done.stdout
    shutil.rmtree(copy / ".venv")
    done = make(copy, "setup-all", "PYTHON=")
    assert done.returncode == 0 and "uv fetches 3.11" in done.stdout
    assert "downloads automatic: sync --quiet --python 3.11 --all-extras" in done.stdout


def test_caches_are_removed_and_their_sizes_said(copy: Path) -> None:
    maps, compiled = copy / "maps" / "map1", copy / "cache" / "nmmo-interpretability" / "compiled_game"
    for folder in (maps, compiled, copy / "demo"):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(bytes(200_000))
    done = make(copy, "clean")
    assert re.search(r"removing demo \(\d+K\)", done.stdout) and not (copy / "demo").exists() and maps.exists()
    done = make(copy, "clean-caches")
    assert re.search(r"removing maps \(\d+K\)", done.stdout)
    assert re.search(r"removing \S*/nmmo-interpretability \(\d+K\)", done.stdout)
    assert not maps.exists() and not compiled.exists()
    assert make(copy, "clean", "clean-caches").stdout == ""
