"""Weights & Biases only mirrors: what happens to it ends nothing, and the user's own settings of it are obeyed."""

import time
from pathlib import Path
from typing import Any

import pytest
import wandb

from common.weights_and_biases import MirroredRun, Wandb, check_login, mirrored, mode_of, share
from reinforcement_learning.settings import WandbSettings
from reinforcement_learning.training.sweep import is_local
from tests.command import ROOT, assert_refuses, python


def no_network(*_: object, **__: object) -> None:
    raise ConnectionError("no route to host\nat all")


class Broken:
    """A run whose service has gone, in a way that no error of the service's own names."""

    log = finish = no_network


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no service that answers, where a test does not say otherwise."""
    for name in ("WANDB_MODE", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("login", "init"):
        monkeypatch.setattr(wandb, name, no_network)


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


def test_disabled_contacts_nobody_and_without_tracking_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    check_login("online")
    run = MirroredRun("online", tmp_path, tmp_path / "id", still="all goes on")
    run.log({"reward": 1.0})
    run.finish()
    with mirrored(None, "run", {}, tmp_path) as mirror:
        mirror.log({"topk_8x_k32/unexplained": 0.4})
    assert not list(tmp_path.iterdir())


def test_no_network_gives_one_line(tmp_path: Path) -> None:
    line = assert_refuses(["no route to host", "--no-track"], check_login, "online")
    assert line.isprintable()
    assert_refuses("no route to host", MirroredRun, "online", tmp_path, still="all goes on")


def test_without_a_login_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wandb, "login", lambda **_: False)
    with mirrored(Wandb(), "run", {}, tmp_path) as mirror:
        mirror.log({"loss": 1.0})
    line = capsys.readouterr().err
    assert line.startswith("nothing is mirrored") and "nobody is logged in" in line and line.count("\n") == 1
    assert_refuses("nobody is logged in", check_login, "online")


def test_a_service_that_fails_later_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wandb, "login", lambda **_: True)
    monkeypatch.setattr(wandb, "init", lambda **_: Broken())
    with mirrored(Wandb(), "run", {}, tmp_path) as mirror:
        mirror.log({"loss": 1.0})
        mirror.log({"loss": 1.0})
    assert capsys.readouterr().err.count("Weights & Biases failed") == 1
    monkeypatch.setattr(wandb, "init", no_network)
    with mirrored(Wandb(), "run", {}, tmp_path) as mirror:
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


class Kept:
    """A run that keeps the artifacts given to it."""

    def __init__(self) -> None:
        self.artifacts: dict[str, tuple[str, list[str]]] = {}

    def log_artifact(self, artifact: Any) -> None:
        self.artifacts[artifact.name] = (artifact.type, sorted(artifact.manifest.entries))

    def finish(self) -> None:
        pass


def things_to_share(folder: Path) -> tuple[Path, Path, Path]:
    """Make a file named as a policy, a folder of a dump and one of results."""
    policy, dump, report = folder / "mine.safetensors", folder / "dump", folder / "a report"
    for file in (policy, dump / "metadata.json", report / "report.html"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("content")
    return policy, dump, report


@pytest.fixture
def _artifacts_stay_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "service"))


@pytest.mark.usefixtures("_artifacts_stay_here")
def test_policies_dumps_and_reports_are_kept_as_artifacts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = Kept()
    monkeypatch.setattr(wandb, "init", lambda **_: run)
    paths = things_to_share(tmp_path)
    assert share(paths, "offline", "project", None) == dict(zip(paths, ("policy", "dump", "report"), strict=True))
    assert run.artifacts == {
        "mine": ("policy", ["mine.safetensors"]),
        "dump": ("dump", ["metadata.json"]),
        "a_report": ("report", ["report.html"]),
    }
    mirrored = MirroredRun("offline", tmp_path, still="all goes on")
    mirrored.keep(paths[0], "trained", "policy")
    assert run.artifacts["trained"] == ("policy", ["trained.safetensors"])


def test_what_cannot_be_shared_is_refused_before_the_service_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    policy, *_ = things_to_share(tmp_path)
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "missing", tmp_path / "empty", ROOT / "README.md"):
        assert_refuses(f"{path} is neither a policy", share, (policy, path), "offline", "project", None)
    assert_refuses("nothing is named", share, (), "offline", "project", None)
    assert_refuses(["no route to host", "--wandb.mode offline"], share, (policy,), "offline", "project", None)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert_refuses("WANDB_MODE=disabled", share, (policy,), "offline", "project", None)


@pytest.mark.slow
@pytest.mark.usefixtures("_artifacts_stay_here")
def test_the_service_itself_keeps_artifacts_offline(tmp_path: Path) -> None:
    """In a process of its own: the service keeps the folder in which a process first uses it."""
    things = things_to_share(tmp_path)
    python(str(ROOT / "share.py"), "wandb", *things, "--wandb.mode", "offline", folder=tmp_path)
    (kept,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    missing, end = {b"mine.safetensors", b"metadata.json", b"report.html"}, time.monotonic() + 30
    while missing and time.monotonic() < end:  # its process may still write
        missing = {name for name in missing if name not in kept.read_bytes()}
        time.sleep(0.1)
    assert not missing


def test_offline_curves_are_kept_in_their_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()  # the service itself
    with mirrored(Wandb(mode="offline"), "run", {"k": "32"}, tmp_path) as mirror:
        mirror.log({"topk_8x_k32/unexplained": 0.4})
    (run,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    patience = time.monotonic() + 60  # the service's own process writes the file, on a busy machine a little later
    while b"topk_8x_k32/unexplained" not in run.read_bytes() and time.monotonic() < patience:
        time.sleep(0.1)
    assert b"topk_8x_k32/unexplained" in run.read_bytes()
