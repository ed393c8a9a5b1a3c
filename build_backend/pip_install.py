"""What `pip install -e .` runs: setuptools, and pip once more for nmmo and pufferlib.

Both declare pins that are years old and not needs, which pip cannot override. So their sources are fetched and built
here, and get the requirements that pyproject.toml gives uv for them. The wheels are kept in `build/wheels/`.
"""

import shutil
import subprocess
import sys
import tempfile
import tomllib
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any, NoReturn

from setuptools import build_meta

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "build" / "wheels"
Settings = dict[str, Any] | None

get_requires_for_build_editable = build_meta.get_requires_for_build_editable
build_editable = build_meta.build_editable


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    """Return the name of the folder of metadata, in which the two packages are files instead of versions."""
    folder = build_meta.prepare_metadata_for_build_editable(metadata_directory, config_settings)
    file = Path(metadata_directory, folder, "METADATA")
    text = file.read_text(encoding="utf-8")
    for declared in _declarations():
        package, version = declared["name"], declared["version"]
        line = f"Requires-Dist: {package}=={version}\n"
        if line not in text:
            sys.exit(f"error: pyproject.toml does not ask for {package}=={version}")
        text = text.replace(line, f"Requires-Dist: {package} @ {_built(declared).as_uri()}\n")
    file.write_text(text, encoding="utf-8")
    return folder


def build_wheel(*_: Any, **__: Any) -> NoReturn:
    """Refuse: scripts and shipped policies are used from this folder."""
    sys.exit("error: this project is used from its folder: install it with `pip install -e .`, or run `make setup`")


build_sdist = build_wheel


def _declarations() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(settings["tool"]["uv"]["dependency-metadata"])


def _built(declared: dict[str, Any]) -> Path:
    """Return a wheel of a package, built for this Python, with the requirements declared for it."""
    wanted = f"{declared['name']}=={declared['version']}"
    # Without its own build requirements, which are as old; those of this project, in pyproject.toml, are here instead.
    alone = ("--quiet", "--no-deps", "--no-build-isolation", "--ignore-requires-python")
    with tempfile.TemporaryDirectory() as scratch:
        sources, built, unpacked = (Path(scratch, name) for name in ("sources", "built", "unpacked"))
        # In two steps: `pip wheel NAME` does not look at versions for other Pythons, whatever its options.
        _run(wanted, "pip", "download", *alone, "--no-binary", ":all:", "--dest", str(sources), wanted)
        _run(wanted, "pip", "wheel", *alone, "--wheel-dir", str(built), str(_only(sources)))
        _run(wanted, "wheel", "unpack", "--dest", str(unpacked), str(_only(built)))
        (metadata,) = _only(unpacked).glob("*.dist-info/METADATA")
        metadata.write_bytes(_with_requirements(message_from_bytes(metadata.read_bytes()), declared).as_bytes())
        packed = Path(scratch, "packed")
        packed.mkdir()
        _run(wanted, "wheel", "pack", "--dest-dir", str(packed), str(_only(unpacked)))
        WHEELS.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(_only(packed), WHEELS))


def _with_requirements(metadata: Message, declared: dict[str, Any]) -> Message:
    for field in ("Requires-Dist", "Requires-Python", "Provides-Extra"):
        del metadata[field]
    metadata["Requires-Python"] = declared["requires-python"]
    for requirement in declared["requires-dist"]:
        metadata["Requires-Dist"] = requirement
    return metadata


def _only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def _run(wanted: str, *module: str) -> None:
    if subprocess.run([sys.executable, "-m", *module], check=False).returncode:
        sys.exit(
            f"error: {wanted} cannot be built by pip here; a C compiler and Python's header files are needed "
            "(on Debian and Ubuntu: build-essential, python3-dev). `make setup` is the other way"
        )
