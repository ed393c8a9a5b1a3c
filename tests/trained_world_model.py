"""A tiny world model of a small real dump."""

from pathlib import Path

import pytest

from tests.command import run_well
from tests.recorded_features import RecordedFeatures
from tests.shared import shared_folder


def arguments(recorded: RecordedFeatures, output: Path, *more: object) -> list[object]:
    """Options of a quick run of train_world_model.py."""
    return [
        recorded.dump, "--records", 900, "--horizon", 4, "--batch", 8, "--hidden", 16, "--no-track",
        "--policies-dir", recorded.policies, "--output-dir", output, *more,
    ]  # fmt: skip


def trained_world_model(factory: pytest.TempPathFactory, recorded: RecordedFeatures) -> Path:
    """Return the model's folder, made once per test session; copy it before writing into it."""

    def train(output: Path) -> None:
        done = run_well("train_world_model.py", *arguments(recorded, output))
        assert "world model and curves" in done.stdout and "(test maps)" in done.stdout

    (folder,) = shared_folder(factory, "world_model", train).iterdir()
    return folder
