"""Weights & Biases only mirrors: what happens to it ends nothing, and the user's own settings of it are obeyed."""

from pathlib import Path
from typing import Any

import pytest
import wandb

from analysis.recorded.tracking import Mirror, Wandb
from common.weights_and_biases import MirroredRun, check_login, mode_of
from reinforcement_learning.settings import WandbSettings
from reinforcement_learning.training.sweeps.sweep import is_local
from tests.command import assert_refuses


class Broken:
    """A run whose service has gone, in a way that no error of the service's own names."""

    def log(self, *_: object, **__: object) -> None:
        raise ConnectionError("no route to host\nat all")

    finish = log


def no_network(*_: object, **__: object) -> None:
    raise ConnectionError("no route to host\nat all")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variable", "online", "offline"),
    [
        (None, "online", "offline"),
        ("online", "online", "offline"),
        ("offline", "offline", "offline"),
        ("dryrun", "offline", "offline"),
        ("disabled", "disabled", "disabled"),
    ],
)
def test_the_environment_turns_it_off(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, online: str, offline: str
) -> None:
    """And a sweep without the server is one on this machine."""
    if variable is not None:
        monkeypatch.setenv("WANDB_MODE", variable)
    assert (mode_of("online"), mode_of("offline")) == (online, offline)
    assert is_local(True, WandbSettings()) == (online != "online")


def test_disabled_contacts_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setattr(wandb, "login", no_network)
    monkeypatch.setattr(wandb, "init", no_network)
    check_login("online")
    run = MirroredRun("online", tmp_path, tmp_path / "id", still="all goes on")
    run.log({"reward": 1.0})
    run.finish()
    assert not list(tmp_path.iterdir())


def test_no_network_gives_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wandb, "login", no_network)
    monkeypatch.setattr(wandb, "init", no_network)
    line = assert_refuses(["no route to host", "--no-track"], check_login, "online")
    assert line.isprintable()
    assert_refuses("no route to host", MirroredRun, "online", tmp_path, still="all goes on")


def test_without_a_login_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wandb, "login", lambda **_: False)
    monkeypatch.setattr(wandb, "init", no_network)
    with Mirror(Wandb(), "run", {}, tmp_path) as mirror:
        mirror.log({"loss": 1.0})
    line = capsys.readouterr().err
    assert line.startswith("nothing is mirrored") and "nobody is logged in" in line and line.count("\n") == 1
    assert_refuses("nobody is logged in", check_login, "online")


def test_a_service_that_fails_later_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wandb, "login", lambda **_: True)
    monkeypatch.setattr(wandb, "init", lambda **_: Broken())
    with Mirror(Wandb(), "run", {}, tmp_path) as mirror:
        mirror.log({"loss": 1.0})
        mirror.log({"loss": 1.0})
    assert capsys.readouterr().err.count("Weights & Biases is gone") == 1
    monkeypatch.setattr(wandb, "init", no_network)
    with Mirror(Wandb(), "run", {}, tmp_path) as mirror:
        mirror.log({"loss": 1.0})
    assert capsys.readouterr().err.startswith("nothing is mirrored: Weights & Biases cannot be used (no route")


def test_a_run_that_is_resumed_is_the_same_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """But an agent of a sweep names the run."""
    begun: list[dict[str, Any]] = []
    monkeypatch.setattr(wandb, "init", lambda **options: begun.append(options))
    for _ in range(2):
        MirroredRun("offline", tmp_path, tmp_path / "id.txt", still="all goes on")
    assert begun[0]["id"] == begun[1]["id"] and begun[1]["resume"] == "allow"
    monkeypatch.setenv("WANDB_RUN_ID", "trial7")
    MirroredRun("offline", tmp_path, tmp_path / "id.txt", still="all goes on")
    assert "id" not in begun[2]
