"""docs/custom_policy.md, followed exactly in a copy of the project."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from activation_store.reader import read_metadata
from tests.command import ROOT, assert_refused, python, run
from tests.test_train import ONE_UPDATE, folders

PAGE = ROOT / "docs" / "custom_policy.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the page's agent added."""
    copy = tmp_path_factory.mktemp("project")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.pxd", "*.yaml"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.split():
        if (ROOT / name).exists() and not name.startswith("tests/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    for name, code in re.findall(r"`(agent_zoo/forager/\w+\.py)`\n.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text(code)
    (section,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    config = copy / "config.yaml"
    config.write_text(config.read_text().replace("agents:\n", f"agents:\n{section}"))
    return copy


@pytest.mark.slow
def test_the_agent_of_the_page_trains_and_is_recorded(project: Path, tmp_path: Path) -> None:
    python("train.py", *ONE_UPDATE, "-a", "forager", "-n", "mine", *folders(tmp_path), folder=project)
    python(
        "extract_activations.py", "pve", "-p", "mine", "--record", "standard", "-n", "1", "--max-steps", "20",
        "--policies-dir", tmp_path / "policies", "--maps-dir", tmp_path / "maps", "-o", tmp_path / "data",
        folder=project,
    )  # fmt: skip
    assert read_metadata(tmp_path / "data" / "mine").agent == "forager"
    assert '"update_epochs":1' in (tmp_path / "runs/mine/settings.json").read_text().replace(" ", "")


@pytest.mark.parametrize(
    "missing", ["Recurrent", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Policy", "RewardWrapper"))]
)
def test_a_module_that_lacks_a_class_is_refused_by_its_name(project: Path, tmp_path: Path, missing: str) -> None:
    complete = "from agent_zoo.forager import Policy, Recurrent, RewardWrapper\n"
    (project / "agent_zoo" / "half").mkdir(exist_ok=True)
    (project / "agent_zoo" / "half" / "__init__.py").write_text(f"{complete}del {missing}\n")
    result = run("train.py", *ONE_UPDATE, "-a", "half", *folders(tmp_path), folder=project)
    assert_refused(result, f"agent_zoo/half lacks {missing}:")
    assert list(tmp_path.iterdir()) == [], "something was left behind"
