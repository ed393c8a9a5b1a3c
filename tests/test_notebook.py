"""The tour runs from its first cell to its last, as a reader would run it."""

import json
from typing import Any

import pytest

from tests.command import ROOT

TOUR = ROOT / "notebooks" / "tour.ipynb"


@pytest.mark.slow
def test_the_tour_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    monkeypatch.chdir(TOUR.parent)
    monkeypatch.syspath_prepend(ROOT)
    there: dict[str, Any] = {}
    cells = [cell for cell in json.loads(TOUR.read_text())["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        exec(compile("".join(cell["source"]), f"tour.ipynb, code cell {number}", "exec"), there)
    assert set(there["layers"]) == {"encoder_output", "lstm_hidden", "lstm_cell", "action_decoder"}
    assert set(there["predicted"]) == {"encoder_output", "lstm_cell"}
    assert len(there["records"]) == len(there["target"]) == len(there["components"])
    assert there["metadata"].records > len(there["records"]) > 0
    drawn = there["figure"].axes
    assert len(drawn) == 3 and len(drawn[1].collections[0].get_offsets()) == len(there["records"])
    plt.close(there["figure"])
