"""Names of policies: one's own are looked up beside the shipped ones."""

from pathlib import Path

import pytest

from agent_zoo.checkpoint_files import OWN, SHIPPED, policy_names, policy_path
from tests.command import assert_refuses


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, name in ((SHIPPED, "shipped"), (OWN, "mine"), (Path("other"), "third")):
        folder.mkdir()
        (folder / f"{name}.safetensors").touch()


def test_a_name_is_looked_up_in_both_folders_and_other_folders_stand_alone() -> None:
    assert policy_names(SHIPPED, ("mine", "shipped")) == ["mine", "shipped"]
    assert policy_path(SHIPPED, "mine") == OWN / "mine.safetensors"
    assert policy_path(SHIPPED, "shipped") == policy_path(SHIPPED, "shipped") == SHIPPED / "shipped.safetensors"
    assert policy_path(SHIPPED, "nobody") == SHIPPED / "nobody.safetensors", "for messages"
    assert policy_names(SHIPPED) == ["shipped"] and policy_names(OWN) == ["mine"]
    assert_refuses("no policy 'mine' in other: it holds third", policy_names, Path("other"), ("mine",))
    assert_refuses("no policy 'min' in policies or my_policies.*did you mean mine", policy_names, SHIPPED, ("min",))
    (SHIPPED / "shipped.safetensors").unlink()
    SHIPPED.rmdir()
    assert policy_names(SHIPPED, ("mine",)) == ["mine"]
    assert_refuses("policies is not a folder", policy_names, SHIPPED)
