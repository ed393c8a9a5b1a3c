"""Where episodes are played: in processes of this machine, or on a Ray cluster."""

from dataclasses import dataclass
from typing import Literal

from common.ray_cluster import RAY_ADDRESSES, is_ray_address
from common.user_error import UserError

Vectorization = Literal["multiprocessing", "ray"]
WORLDS_TOGETHER = 4
"""Worlds that a process plays at a time. Affects results: rounding depends on which agents are batched together."""


@dataclass(frozen=True)
class Workers:
    """The processes that play episodes."""

    processes: int = 0  # how many; 0 uses one per core of the machine or cluster
    ray_address: str | None = None
    """Of the Ray cluster that they run on, as in `RolloutSettings`; None: on this machine, without Ray."""


def chosen_workers(vectorization: Vectorization, ray_address: str, processes: int = 0, worlds: int = 0) -> Workers:
    """Return the workers that options ask for (UserError: they contradict each other, or the address is wrong)."""
    if not is_ray_address(ray_address):
        raise UserError(f"--ray-address is {ray_address}: must be {RAY_ADDRESSES}")
    if vectorization != "ray" and ray_address != "local":
        raise UserError("--ray-address names a Ray cluster: add --vectorization ray to play there")
    if processes and worlds:
        raise UserError("--num-envs and --workers both set the number of processes: give only one of them")
    if worlds:
        processes = max(1, worlds // WORLDS_TOGETHER)
    return Workers(processes, ray_address if vectorization == "ray" else None)


def chosen_device(device: str, vectorization: Vectorization) -> str:
    """Return where the networks run: on Ray always on CPUs, so that any of its machines can play any episode.

    Raises:
        UserError: a GPU was requested on Ray.
    """
    if vectorization != "ray":
        return device
    if device == "cuda":
        raise UserError("--vectorization ray plays on CPUs: leave out --device cuda, or --vectorization ray")
    return "cpu"
