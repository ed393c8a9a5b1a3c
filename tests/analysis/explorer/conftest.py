"""What explorers in tests show, and how they say that they are ready."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from analysis.explorer.base import cluster_base
from analysis.explorer.content import Explored, explored
from analysis.runs.cluster_run import read_run
from tests.analysed import Analysed

READY = "window.explorer !== undefined"


def quiet(_: str) -> nullcontext:
    return nullcontext(lambda share: None)


def content_of(run: Path, most_ticks: int = 400_000, simulated: Sequence[Path] = ()) -> Explored:
    return explored(cluster_base(read_run(run, None), quiet), most_ticks, quiet, simulated)


@pytest.fixture(scope="module")
def content(analysed: Analysed) -> Explored:
    return content_of(analysed.run)
