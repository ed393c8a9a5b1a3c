"""A selection names records of its run, and its rule knows states like theirs on lives that had no vote."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from activation_store.schema import IDENTITY
from activation_store.subsample import Subsample
from analysis.runs.cluster_run import read_cluster_run
from analysis.runs.selection_file import read_selection
from tests.command import assert_refuses
from tests.planted import Planted, planted_dump, write_planted
from tests.planted_run import labelled_run, saved_selection


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump(agents=8, episodes=2, ticks=60)


@pytest.fixture(scope="module")
def run(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("selected")
    dump = write_planted(folder / "dump", planted)
    return labelled_run(folder / "run", dump, lambda records: records.tick % 3, Subsample(3))


def test_what_was_selected_is_read_back_and_recognised(planted: Planted, run: Path, tmp_path: Path) -> None:
    labels = read_cluster_run(run, run.parent / "dump")
    row = {key: i for i, key in enumerate(zip(*(vars(planted.records)[name] for name in IDENTITY), strict=True))}
    of_run = np.array([row[key] for key in zip(*labels.places.values(), strict=True)])
    chosen = np.flatnonzero(planted.behaviour[of_run] == 1)
    selection = read_selection(saved_selection(tmp_path / "one.json", run, records=[*chosen.tolist(), int(chosen[0])]))
    assert selection.records.tolist() == chosen.tolist() and selection.dump == run.parent / "dump"
    assert all((column == labels.places[name][chosen]).all() for name, column in selection.places.items())
    like = selection.rule().labels_of(planted.records.activations["action_decoder"]) == 1
    others = np.setdiff1d(np.arange(len(like)), of_run)
    assert (like == (planted.behaviour == 1))[others].mean() > 0.9


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "labels of clusters"}, "holds 'labels of clusters', no selection"),
        ({"records": []}, "must name records of .*, from 0 to "),
        ({"records": [-1]}, "must name records"),
        ({"records": [10**6]}, "must name records"),
        ({"records": "all"}, "holds no selection: 'records'"),
        ({"folder": "analysis_results/gone"}, "in the run analysis_results/gone, which is not there"),
        ({"runKey": "0" * 64}, "selected in another run than"),
    ],
)
def test_what_is_no_selection_of_this_run_is_refused(
    run: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    assert_refuses(said, read_selection, saved_selection(tmp_path / "one.json", run, **changes))
