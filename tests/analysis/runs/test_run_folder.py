"""A run's folder is claimed once, holds a complete run or none, and no pickle."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import DONE_FILE, RUN_FILE, Parts, RunFolder, processor
from common.files import sha256
from common.user_error import UserError
from tests.command import assert_refuses


def test_a_run_is_proved_by_what_is_written_last(tmp_path: Path) -> None:
    path = tmp_path / "results" / "run"
    with RunFolder(path, {"seed": 3}) as folder:
        folder.save_array("a.npy", np.arange(3))
        folder.save_arrays("b.npz", x=np.arange(4), y=np.ones(2))
        folder.save_text("c.txt", "words")
        assert not (path / DONE_FILE).exists()
    proofs = orjson.loads((path / DONE_FILE).read_bytes())["files"]
    hashes = {name: sha256(path / name) for name in ("a.npy", "b.npz", "c.txt", RUN_FILE)}
    assert {name: proof["sha256"] for name, proof in proofs.items()} == hashes
    run = orjson.loads((path / RUN_FILE).read_bytes())
    assert run["seed"] == 3 and run["versions"]["umap-learn"] and run["processor"] == processor()
    assert np.load(path / "a.npy", allow_pickle=False).tolist() == [0, 1, 2]
    with np.load(path / "b.npz", allow_pickle=False) as arrays:
        assert arrays["x"].tolist() == [0, 1, 2, 3]


def test_objects_are_never_pickled(tmp_path: Path) -> None:
    with pytest.raises(ValueError), RunFolder(tmp_path / "run", {}) as folder:
        folder.save_array("a.npy", np.array([object()]))
    with pytest.raises(ValueError), RunFolder(tmp_path / "run", {}) as folder:
        folder.save_arrays("a.npz", a=np.array([object()]))


def test_a_failed_run_leaves_no_folder_and_an_empty_one_is_taken(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path / "run", {}) as folder:
        folder.save_text("a.txt", "words")
        raise KeyboardInterrupt
    assert not (tmp_path / "run").exists()
    with RunFolder(tmp_path, {}):  # an empty folder is taken
        pass
    assert (tmp_path / DONE_FILE).exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [(DONE_FILE, "already holds a run"), (RUN_FILE, "unfinished run"), ("x", "not an empty folder")],
)
def test_a_folder_in_use_is_refused_and_kept(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_text("kept")
    with pytest.raises(UserError, match=message), RunFolder(tmp_path, {}):
        pytest.fail("the block must not run")
    assert (tmp_path / name).read_text() == "kept"


def test_what_a_killed_run_left_is_removed_by_the_same_run_only(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {"seed": 3}).__enter__()
    folder.save_text("a.txt", "words")
    (tmp_path / "run" / "frames").mkdir()
    with pytest.raises(UserError, match="another process is writing"), RunFolder(tmp_path / "run", {"seed": 3}):
        pytest.fail("it is being written to")
    folder._held.close()  # as if the process was killed: its lock is gone, and nothing else
    with pytest.raises(UserError, match="unfinished run"), RunFolder(tmp_path / "run", {"seed": 4}):
        pytest.fail("another run left it")
    assert (tmp_path / "run" / "a.txt").exists()
    with RunFolder(tmp_path / "run", {"seed": 3}) as again:
        again.save_text("b.txt", "words")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {RUN_FILE, "b.txt", DONE_FILE}
    with pytest.raises(UserError, match="already holds"), RunFolder(tmp_path / "run", {"seed": 3}):
        pytest.fail("it is finished")


def test_an_output_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError), RunFolder(path, {}):
            pytest.fail("the block must not run")


def test_folders_of_no_run_and_of_one_that_did_not_end_are_refused(tmp_path: Path) -> None:
    assert_refuses("is not a finished run: give a folder that analyze_activations.py wrote", open_finished, tmp_path)
    (tmp_path / RUN_FILE).write_text("{}")
    assert_refuses("is not a finished run: let the script that began it end", open_finished, tmp_path)
    assert_refuses("is not a finished run: let saliency.py end", open_finished, tmp_path, "saliency.py")


def test_an_interrupt_of_the_cleaning_leaves_what_the_same_run_can_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C twice: the second one comes while the results of an interrupted run are removed."""
    path, removed = tmp_path / "run", []

    def unlink_once(self: Path, missing_ok: bool = False) -> None:
        if removed:
            raise KeyboardInterrupt
        removed.append(self)
        self.rename(tmp_path / "gone")

    with pytest.raises(KeyboardInterrupt), RunFolder(path, {}) as folder:
        for name in "zyxab":
            (path / name).write_text("")
        monkeypatch.setattr(Path, "unlink", unlink_once)
        raise KeyboardInterrupt
    monkeypatch.undo()
    assert removed and sorted(item.name for item in path.iterdir()) != ["run.json"]
    with RunFolder(path, {}) as folder:
        folder.save_text("c.txt", "words")
    assert sorted(item.name for item in path.iterdir()) == [DONE_FILE, "c.txt", RUN_FILE]


def test_it_names_the_machine_and_the_code_that_runs_on_it() -> None:
    result = processor()
    assert set(result) == {"name", "architecture", "instructions", "numba target", "BLAS kernels"}
    assert platform.machine() in result["architecture"] and all(result.values())
    assert result["BLAS kernels"] != "unknown"  # numpy has loaded one


@pytest.mark.parametrize("target", ["generic", "znver3"])
def test_the_numba_target_is_the_one_that_numba_compiles_for(target: str) -> None:
    """A user who sets it changes the clusters of the same dump, so the run must say it."""
    ours = "from analysis.runs.run_folder import processor; print(processor()['numba target'], end=' ')"
    code = f"{ours}; import numba; print(numba.config.CPU_NAME)"
    environment = {**os.environ, "NUMBA_CPU_NAME": target}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [target, target]


def test_other_folders_are_not_removed(tmp_path: Path) -> None:
    mine = tmp_path / ".run.parts" / "mine.txt"
    mine.parent.mkdir()
    mine.touch()
    assert_refuses("holds other files, and would be removed", Parts, tmp_path / "run", {"seed": 1})
    assert mine.exists()


def test_parts_of_other_arguments_are_removed(tmp_path: Path) -> None:
    """Those without a key, too, if a killed run had nothing but unfinished files there."""
    Parts(tmp_path / "run", {"seed": 1}).arrays("a", lambda: {"x": np.zeros(1)})
    assert Parts(tmp_path / "run", {"seed": 1}).there == ["a"]
    folder = Parts(tmp_path / "run", {"seed": 2}).folder
    assert [path.name for path in folder.iterdir()] == ["key.json"]
    (folder / "key.json").rename(folder / ".key.json.x.partial")
    assert Parts(tmp_path / "run", {"seed": 1}).there == []
