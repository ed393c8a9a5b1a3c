"""A Ray cluster that a command starts is its own: other machines cannot reach it, and other users have no token."""

import subprocess
import sys
from pathlib import Path

import pytest

from common import ray_cluster
from tests.command import ROOT, assert_refuses, environment

pytest.importorskip("ray")

LISTENING = """
import os, psutil
from common.ray_cluster import connect
connect("local")
import ray
def at(process):
    return {c.laddr.ip.removeprefix("::ffff:") for c in process.net_connections("inet") if c.status == "LISTEN"}
own = psutil.Process()
print(set().union(*map(at, [own, *own.children(recursive=True)])))
print(ray.get(ray.remote(lambda: os.environ["RAY_AUTH_MODE"]).remote()), len(os.environ["RAY_AUTH_TOKEN"]))
"""


@pytest.mark.slow
def test_a_cluster_of_ones_own_listens_on_the_loopback_interface_and_asks_for_a_token(tmp_path: Path) -> None:
    own = {name: value for name, value in environment().items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", LISTENING], cwd=ROOT, env={**own, "HOME": str(tmp_path)}, capture_output=True, text=True,
        timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["{'127.0.0.1'}", "token 64"]
    assert not (tmp_path / ".ray").exists(), "the token is on the disk"


def test_the_token_of_other_clusters_is_kept_from_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    assert_refuses("no Ray cluster answers at 127.0.0.1:1", ray_cluster.connect, "127.0.0.1:1")
    assert token.stat().st_mode & 0o777 == 0o600
