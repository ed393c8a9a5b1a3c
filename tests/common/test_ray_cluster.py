"""A Ray cluster that a command starts is its own: other machines cannot reach it, and other users have no token."""

import os
import socket
from pathlib import Path

import pytest

from common import ray_cluster
from common.ray_cluster import connect, is_ray_address
from tests.command import assert_refuses, python

pytest.importorskip("ray")


@pytest.fixture(autouse=True)
def _not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the cluster, and its variables, that another test has connected this process to."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("ray.is_initialized", lambda: False)


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
    assert python("-c", LISTENING, HOME=str(tmp_path)).stdout.splitlines() == ["{'127.0.0.1'}", "token 64"]
    assert not (tmp_path / ".ray").exists(), "the token is on the disk"


def test_the_token_of_other_clusters_is_kept_from_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert_refuses("no Ray cluster answers at 127.0.0.1:1", ray_cluster.connect, "127.0.0.1:1")
    assert token.stat().st_mode & 0o777 == 0o600


def test_addresses_of_clusters() -> None:
    assert all(map(is_ray_address, ["local", "auto", "head:1", "10.0.0.1:65535"]))
    others = ["", "head", ":1", "head:0", "head:65536", f"head:{10**30}", "a b:1", "http://head:1"]
    assert not any(map(is_ray_address, others))


@pytest.mark.parametrize("host", ["a..b", "..", "a" * 70])
def test_a_name_that_no_host_can_have_is_refused_in_one_line(host: str) -> None:
    assert_refuses("no Ray cluster answers at", connect, f"{host}:6379")


CONNECTING = """
import sys
from common import command_line, ray_cluster
command_line.run(lambda: ray_cluster.connect(sys.argv[1]))
"""


def test_a_token_that_is_missing_is_named_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        refused = python("-c", CONNECTING, address, HOME=str(tmp_path), RAY_AUTH_MODE="token", code=2)
    assert f"no token for the Ray cluster at '{address}'" in refused.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_port_at_which_something_else_listens_is_refused(tmp_path: Path) -> None:
    """Ray takes 40 seconds to give up; with its own settings, a quarter of an hour."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        refused = python("-c", CONNECTING, address, HOME=str(tmp_path), code=2, timeout=200)
    assert f"no Ray cluster can be used at '{address}'" in refused.stderr.splitlines()[-1]
