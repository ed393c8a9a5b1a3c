"""Versions of the software that made an artefact."""

import platform
from importlib.metadata import version

PACKAGES = ("nmmo", "pufferlib", "numpy", "torch")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
