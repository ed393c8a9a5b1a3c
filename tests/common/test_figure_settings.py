"""Figures are the same whatever the user's own settings of matplotlib are."""

import os
from pathlib import Path

import pytest

from tests.command import ROOT, python

DRAW = """
import sys
from pathlib import Path
from common import command_line

def main():
    import numpy as np
    from analysis.figures.style import new_figure, style
    from analysis.runs.run_folder import write_figure
    from common.figure_settings import save_figure
    from reinforcement_learning.training.curves import Curves, figure_of

    with style():
        figure = new_figure(3, 2)
        figure.subplots().plot([1, 2, 1000], label="a line")
        figure.legend()
    write_figure(Path("figure.png"), figure)
    curves = Curves(np.arange(1.0, 4.0), {"reward": np.ones(3)}, 1)
    save_figure(figure_of(curves, "a run"), Path("curves.png"), 30)

command_line.run(main)
"""
RC = "text.usetex: True\nfont.size: 30\nfont.family: serif\nsavefig.bbox: tight\nsavefig.facecolor: red\n"
"""Settings of which each changes how a figure looks."""
NOTEBOOK = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}


def drawn(folder: Path, **variables: str) -> dict[str, bytes]:
    python("-c", DRAW, folder=folder, PYTHONPATH=str(ROOT), **variables)
    return {path.name: path.read_bytes() for path in folder.glob("*.png")}


def test_a_matplotlibrc_and_the_backend_of_a_notebook_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The matplotlibrc of the current folder comes before all others; the backend may not be installed here."""
    for name in [name for name in os.environ if name.startswith(("MPL", "MATPLOTLIB"))]:
        monkeypatch.delenv(name)
    plain, mine = tmp_path / "plain", tmp_path / "mine"
    for folder in (plain, mine):
        folder.mkdir()
    (mine / "matplotlibrc").write_text(RC)
    figures = drawn(plain)
    assert drawn(mine, **NOTEBOOK) == figures and len(figures) == 2
