"""A Ray cluster of this machine, with nodes of one core each."""

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

ONE_CORE: dict[str, Any] = {
    "num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False, "include_log_monitor": False,
}  # fmt: skip
"""Of a node, without Ray's dashboard and log monitor, which take longer to start than what is tested."""


def head_node() -> Iterator[Cluster]:
    """Start a head node with one core for as long as the iteration lasts, as a fixture does."""
    ray.shutdown()  # an earlier test in this process may have left its cluster to the end of the process
    cluster = Cluster(initialize_head=True, head_node_args=ONE_CORE)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def processes_on(node: Any) -> list[psutil.Process]:
    """Return all processes that a node has started, and theirs."""
    (raylet,) = node.all_processes["raylet"]
    return psutil.Process(raylet.process.pid).children(recursive=True)
