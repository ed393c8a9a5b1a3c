"""The list of dumps and runs."""

import json
import os
import time
from pathlib import Path

import pytest

from activation_store.__main__ import rows, runs
from tests.command import assert_refuses


@pytest.fixture
def results(dump: Path, tmp_path: Path) -> Path:
    """A dump, a finished run two folders deep, one that did not end, a training, and something else."""
    (tmp_path / "data").mkdir()
    dump.rename(tmp_path / "data" / "planted")
    run = tmp_path / "results" / "RUN"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "figure.png").write_bytes(bytes(3_000_000))
    (run / "DONE.json").write_text(json.dumps({"files": {}, "command": "python train_probes.py data/planted"}))
    stopped = tmp_path / "results" / "STOPPED"
    stopped.mkdir()
    (stopped / "run.json").write_text(json.dumps({"command": "python intervene.py -p mine --edit clear"}))
    training = tmp_path / "runs" / "mine"
    training.mkdir(parents=True)
    (training / "settings.json").write_text(json.dumps({"agent": "hybrid", "command": "python train.py -a hybrid"}))
    model = tmp_path / "world_models" / "dreams"
    model.mkdir(parents=True)
    (model / "settings.json").write_text(json.dumps({"settings": {}, "command": "python train_world_model.py data"}))
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "notes.txt").touch()
    return tmp_path


def test_everything_is_listed_once_with_its_command_size_and_age(results: Path) -> None:
    listed = {Path(folder).relative_to(results).as_posix(): (kind, last) for folder, kind, *_, last in rows([results])}
    assert {name: kind for name, (kind, _) in listed.items()} == {
        "data/planted": "dump", "results/RUN": "run", "results/STOPPED": "run", "runs/mine": "training",
        "world_models/dreams": "world model",
    }  # fmt: skip
    assert listed["results/RUN"][1] == "python train_probes.py data/planted"
    assert listed["results/STOPPED"][1] == "python intervene.py -p mine --edit clear"
    assert listed["runs/mine"][1] == "python train.py -a hybrid"
    assert listed["world_models/dreams"][1] == "python train_world_model.py data"
    assert listed["data/planted"][1].startswith("python extract_activations.py pve -p")
    assert "--layers" in listed["data/planted"][1]
    for path in (results / "results" / "RUN").iterdir():
        os.utime(path, (time.time() - 3 * 86_400,) * 2)
    (row,) = (row for row in rows([results / "results"]) if row[0].endswith("RUN"))
    assert row[1:4] == ("run", "3.0 MB", "3 days")


def test_what_goes_while_it_is_listed_is_left_out_and_a_damaged_dump_is_named(results: Path) -> None:
    """A training that runs renames files all the time."""
    (results / "runs" / "mine" / "gone").symlink_to("nowhere")
    os.utime(results / "results" / "RUN" / "figure.png", (time.time() + 3 * 86_400,) * 2)  # the clock was set back
    listed = {Path(row[0]).name: row for row in rows([results / "runs", results / "results"])}
    assert listed["mine"][1:3] == ("training", "0.0 MB") and listed["RUN"][3] == "just now"
    (results / "data" / "planted" / "metadata.json").write_text("{")
    ((_, kind, *_, fault),) = rows([results / "data"])
    assert kind == "damaged" and "metadata.json" in fault
    assert_refuses("there are no dumps and no runs", runs, (results / "else",))
    assert_refuses("is not a folder", runs, (results / "none",))
