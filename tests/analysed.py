"""An analysis of a recorded dump, for tests of code that uses runs."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.planted_run import planted_run
from tests.recorded import Recording

SUBSAMPLE = 2
PERMUTATIONS = 199


@dataclass(frozen=True)
class Analysed:
    """A dump, and the folder of its analysis run."""

    dump: Path
    run: Path


@pytest.fixture(scope="session")
def analysed(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """Half of the recording's ticks, in planted clusters."""
    run = planted_run(
        recording.dump, tmp_path_factory.mktemp("analysed"), SUBSAMPLE, "--permutations", PERMUTATIONS,
        "--bootstraps", 99, "--features", "default,distance_to_water,is_idle,walkable_share",
    )  # fmt: skip
    return Analysed(recording.dump, run)
