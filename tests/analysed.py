"""A real analysis of a recorded dump, for tests of what is made from runs."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command import run
from tests.recorded import Recording

SUBSAMPLE = 2
PERMUTATIONS = 199


@dataclass(frozen=True)
class Analysed:
    """A dump, and the folder of the run that was made from it."""

    dump: Path
    run: Path


@pytest.fixture(scope="session")
def analysed(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """Half of the recording's ticks, embedded and clustered."""
    folder = tmp_path_factory.mktemp("analysed")
    done = run(
        "analyze_activations.py", recording.dump, "--subsample", SUBSAMPLE, "--hdbscan-min-cluster", 15,
        "--permutations", PERMUTATIONS, "--bootstraps", 99, "--output-dir", folder,
        "--features", "default,distance_to_water,is_idle,walkable_share",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = folder.iterdir()
    return Analysed(recording.dump, path)
