"""Studies that are run: since when their primary outcomes have been named."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from analysis.findings.page import Named
from analysis.findings.running import PRIMARY_FILE, StudyRun
from analysis.findings.study_file import Primary, Stage, Study
from tests.command import assert_refuses

PRIMARY = Primary("a", "effects.tsv", {"outcome": "ticks"})
STUDY = Study(tuple(Stage(name, "write.py {here}", 1.0) for name in "ab"), primary=(PRIMARY,))


def played(study: Study, folder: Path) -> Named | None:
    run = StudyRun(study, folder / "results", folder)
    return run.run(run.plan(), lambda plan, state, seconds: None).primary


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script that writes something."""
    script = "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\npath.mkdir()\n(path / 'x').write_text('x')\n"
    (tmp_path / "write.py").write_text(script)
    return tmp_path


def named(begun: int, outcomes: Sequence[Primary]) -> Named:
    return Named(datetime.now(UTC).date().isoformat(), begun, [str(outcome) for outcome in outcomes])


def test_primary_outcomes_are_written_down_before_anything_is_played(folder: Path) -> None:
    """Those that are named later say how much had been begun, and the first ones keep their day."""
    assert played(STUDY, folder) == named(0, [PRIMARY])
    kept = folder / "results" / PRIMARY_FILE
    kept.write_text(kept.read_text().replace(named(0, []).since, "2020-01-01"))
    again = played(STUDY, folder)
    assert again is not None and again.since == "2020-01-01"
    other = replace(PRIMARY, where={"outcome": "meals"})
    assert played(replace(STUDY, primary=(other,)), folder) == named(2, [other])
    assert played(replace(STUDY, primary=()), folder) is None
    assert played(STUDY, folder) == named(2, [PRIMARY])  # dropped for a while, so named anew


def test_damaged_file_is_refused_in_one_line(folder: Path) -> None:
    (folder / "results").mkdir()
    (folder / "results" / PRIMARY_FILE).write_text(json.dumps({"since": 3}))
    assert_refuses(r"primary\.json is damaged: delete it", played, STUDY, folder)


@pytest.mark.parametrize("name", ["a", "b.log"])
def test_what_the_study_did_not_write_is_not_removed(folder: Path, name: str) -> None:
    mine = folder / "results" / name
    (mine if "." in name else mine / "mine").mkdir(parents=True)
    assert_refuses("is not of this study: move it away", played, STUDY, folder)
    assert [path.name for path in mine.iterdir()] == ([] if "." in name else ["mine"])
    assert not (folder / "results" / "study.json").exists()


def test_folders_with_spaces_and_quotes_are_one_argument(folder: Path) -> None:
    run = StudyRun(STUDY, folder / "it's mine", folder)
    run.run(run.plan(), lambda plan, state, seconds: None)
    assert (folder / "it's mine" / "a" / "x").exists()


def test_a_pipe_in_place_of_a_log_is_refused(folder: Path) -> None:
    study = Study((Stage("a", "fail.py {here}", 1.0, resume="--resume"),))
    (folder / "fail.py").write_text("raise SystemExit('no')\n")
    assert_refuses("the stage a failed: no", played, study, folder)
    log = folder / "results" / "a.log"
    log.unlink()
    os.mkfifo(log)
    assert_refuses(r"a\.log cannot be written: it is no plain file", played, study, folder)


def test_hidden_files_do_not_make_a_finished_stage_run_again(folder: Path) -> None:
    (folder / "read").mkdir()
    (folder / "read" / "x").write_text("x")
    study = Study((Stage("a", "write.py {here}", 1.0, reads=("read",)),))
    assert played(study, folder) is None
    (folder / "results" / "a" / ".DS_Store").touch()
    (folder / "read" / "._x").touch()
    assert [plan.action for plan in StudyRun(study, folder / "results", folder).plan()] == ["skip"]
