"""An analysis of a recorded dump, for tests of code that uses runs."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.planted_run import planted_run
from tests.recorded import Recording
from tests.shared import shared_folder

SUBSAMPLE = 2
PERMUTATIONS = 199


@dataclass(frozen=True)
class Analysed:
    """A dump, and the folder of its analysis run."""

    dump: Path
    run: Path


@pytest.fixture(scope="session")
def analysed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """Half of the recording's ticks, in planted clusters; all workers share the analysis, and each has a copy."""

    def analyse(folder: Path) -> None:
        recording: Recording = request.getfixturevalue("recording")
        planted_run(
            Path(shutil.copytree(recording.dump, folder / "dump")), folder / "runs", SUBSAMPLE,
            "--permutations", PERMUTATIONS, "--bootstraps", 99,
            "--features", "default,distance_to_water,is_idle,walkable_share",
        )  # fmt: skip

    folder = shared_folder(tmp_path_factory, "analysed", analyse)
    (run,) = (folder / "runs").iterdir()
    return Analysed(folder / "dump", Path(shutil.copytree(run, tmp_path_factory.mktemp("analysed") / run.name)))
