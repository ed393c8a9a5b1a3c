"""What explorers in tests show, and how they say that they are ready."""

from contextlib import nullcontext

import pytest

from analysis.explorer.base import cluster_base
from analysis.explorer.content import Explored, explored
from analysis.runs.finished_run import read_run
from tests.analysed import Analysed

READY = "window.explorer !== undefined"


def quiet(_: str) -> nullcontext:
    return nullcontext(lambda share: None)


@pytest.fixture(scope="module")
def content(analysed: Analysed) -> Explored:
    return explored(cluster_base(read_run(analysed.run, None), quiet), 400_000, quiet)
