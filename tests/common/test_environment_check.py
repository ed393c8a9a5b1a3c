"""Scripts started outside the environment say so in one line, on any Python 3."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from common import environment_check
from tests.command import ROOT, assert_refused, python
from tests.test_architecture import SCRIPTS, SCRIPTS_IN_ROOMS

CHECK = "common/environment_check.py"
STARTED_BY_USERS = [*(f"{script}.py" for script in sorted(SCRIPTS)), *SCRIPTS_IN_ROOMS]


def run_bare(script: str) -> subprocess.CompletedProcess[str]:
    """Start a script with an interpreter that finds only the standard library."""
    # -S excludes installed packages; -E and PYTHONPATH exclude those of the tests' environment.
    command = [sys.executable, "-S", "-E", script, "--help"]
    if script.endswith("__main__.py"):
        command = [sys.executable, "-S", "-E", "-m", str(Path(script).parent), "--help"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", STARTED_BY_USERS)
def test_without_dependencies_one_line_says_what_to_use(script: str) -> None:
    done = run_bare(script)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and ".venv/bin/python" in line and "it lacks numpy, tyro" in line


@pytest.mark.parametrize("script", [*STARTED_BY_USERS, CHECK])
def test_an_old_python_understands_all_up_to_the_check(script: str) -> None:
    """A syntax error, or a failing import before the check, would occur before its message."""
    tree = ast.parse((ROOT / script).read_text(), feature_version=(3, 8))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if script == CHECK:
        assert {node.names[0].name.split(".")[0] for node in imports if isinstance(node, ast.Import)} == {"os", "sys"}
        return
    names = [node.names[0].name if isinstance(node, ast.Import) else node.module for node in imports]
    before = names[: names.index("common.environment_check")]
    assert before in ([], ["sys", "dataclasses", "pathlib", "typing"])


def test_numba_has_no_more_threads_than_torch_and_leaves_torch_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """UMAP sets the threads of numba, and torch shares its pool."""
    code = (
        "import common.environment_check, numpy, torch;"
        "from analysis.clusters.embeddings import umap_embedding;"
        "umap_embedding(numpy.random.default_rng(0).random((60, 4), numpy.float32), 5, 0.1, 0);"
        "import numba; print(numba.config.NUMBA_NUM_THREADS, torch.get_num_threads())"
    )
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    assert python("-c", code, OMP_NUM_THREADS="1").stdout.split() == ["1", "1"]


def test_an_environment_that_is_not_there_yet_is_to_be_made_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert environment_check.fault() == ""
    monkeypatch.setattr(environment_check, "NEEDED", ("sys", "no_such_package"))
    monkeypatch.setattr(environment_check, "__file__", str(tmp_path / CHECK))
    assert re.search(
        r"it lacks no_such_package\): run `make setup`, then use `.venv/bin/python`", environment_check.fault()
    )
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()
    assert "make setup" not in environment_check.fault()
    monkeypatch.setattr(environment_check, "OLDEST", (99, 0))
    assert "is too old): use `.venv/bin/python`" in environment_check.fault()


@pytest.mark.parametrize("script", ["study.py", "train.py"])
def test_a_current_folder_that_was_removed_is_named(tmp_path: Path, script: str) -> None:
    code = f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir ../gone && exec {sys.executable} {ROOT}/{script} -n a"
    done = subprocess.run(["/bin/sh", "-c", code], capture_output=True, text=True, check=False)
    assert_refused(done, "the current folder does not exist any more")
