"""Connecting to a Ray cluster, on which training plays its worlds and trained policies play their episodes."""

import contextlib
import logging
import os
import re
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from common.user_error import UserError

RAY_ADDRESSES = "local, auto or HOST:PORT"
START_SECONDS = 300
_CONNECT_SECONDS = 10
_LARGEST_PORT = 65535


def is_ray_address(text: str) -> bool:
    """Return whether a text names a Ray cluster: local, auto or HOST:PORT."""
    host, _, port = text.rpartition(":")
    named = re.fullmatch(r"[^\s:/]+", host) and re.fullmatch(r"[0-9]{1,5}", port)
    return text in ("local", "auto") or (bool(named) and 1 <= int(port) <= _LARGEST_PORT)


def connect(address: str) -> None:
    """Connect this process to Ray until it ends, unless it is already connected.

    Args:
        address: `local`, `auto` or HOST:PORT, as in `RolloutSettings.ray_address`.

    Raises:
        UserError: Ray is not installed, or no cluster answers there.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no usage reports to Ray's developers; read when a cluster starts
    if address == "local":
        _keep_to_this_machine()
    else:
        # Ray would try twenty times, each of more than half a minute if something else than Ray listens there.
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
        with contextlib.suppress(OSError, RuntimeError):  # it is somebody else's, or there is no home
            token = Path.home() / ".ray" / "auth_token"  # of the user's clusters, which Ray lets everybody read
            if token.is_file() and not token.is_symlink():
                token.chmod(0o600)
    try:
        import ray
    except ImportError:
        raise UserError(
            "Ray is not installed: install the extra of that name (uv sync --inexact --extra ray), or run without Ray"
        ) from None
    if ray.is_initialized():
        return
    _check_port(address)
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except ray.exceptions.AuthenticationError:
        raise UserError(
            f"no token for the Ray cluster at {address!r}, although RAY_AUTH_MODE is token: set RAY_AUTH_TOKEN, or put "
            "the cluster's token into ~/.ray/auth_token"
        ) from None
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            f"no Ray cluster can be used at {address!r}: {' '.join(str(error).split())} (if the cluster asks for a "
            "token, set RAY_AUTH_MODE=token here too)"
        ) from None
    finally:
        if signal.getsignal(signal.SIGTERM) is not on_terminate:  # Ray's handler would end the process at once
            signal.signal(signal.SIGTERM, on_terminate)


def _keep_to_this_machine() -> None:
    """Let a cluster that this process starts listen on the loopback interface only, and to this process's children.

    Ray reads these variables when it is imported, so a process that has done so already starts a cluster without a
    token. Whoever has set one of them has asked for something else.
    """
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # on all systems: no address that others can reach
    if "RAY_AUTH_MODE" not in os.environ and "ray" not in sys.modules:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # never on the disk


def cores() -> int:
    """Return the number of cores of the whole cluster, including busy ones."""
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


def no_worker(advice: str = "wait for other jobs to end") -> UserError:
    """Return the error of a cluster on which no worker has started within `START_SECONDS`."""
    import ray

    free = int(ray.available_resources().get("CPU", 0))
    return UserError(
        f"no Ray worker started within {START_SECONDS} s; of the cluster's {cores()} cores {free} are free: {advice}"
    )


def _check_port(address: str) -> None:
    """Refuse an address at which nothing listens; Ray itself would keep trying, and logging, for a minute."""
    host, _, port = address.rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, UnicodeError) as error:  # a name that is too long, or with empty parts, is no host's
        fault = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(
            f"no Ray cluster answers at {address} ({fault}): give the Ray address as HOST:PORT of a head node that "
            "runs (`ray start --head` prints it)"
        ) from None
