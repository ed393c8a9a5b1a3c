"""Probes fitted side by side on the machines of a Ray cluster, which share no files: arrays travel to them."""

import copy
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.probes.probing import Job, Probed, Report
from analysis.probes.task import Task
from common.ray_cluster import START_SECONDS, connect, no_worker
from common.user_error import UserError

_MOST_LOSSES = 3  # of workers with the same job


@dataclass(frozen=True)
class _Shared(Mapping[str, np.ndarray]):
    """Arrays by name in the cluster's store, which brings each to the machines that read it."""

    references: dict[str, Any]

    def __getitem__(self, name: str) -> np.ndarray:
        import ray

        array: np.ndarray = ray.get(self.references[name])
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.references)

    def __len__(self) -> int:
        return len(self.references)


def meet(address: str) -> None:
    """Connect to a cluster, and wait until one of its workers can run this project.

    Raises:
        UserError: Ray is not installed, no cluster answers, or none of its workers does.
    """
    connect(address)
    import ray

    try:
        ray.get(ray.remote(num_cpus=1)(_start).remote(), timeout=START_SECONDS)
    except ray.exceptions.GetTimeoutError:
        raise no_worker() from None


def do_on_ray(task: Task, jobs: Sequence[Job], report: Report) -> list[Probed]:
    """Do jobs on the cluster that this process is connected to, each with one core; return their results in order.

    The job of a worker that is lost is done again by another one, and a line on standard error says so.

    Raises:
        UserError: as raised by a job; or its workers were lost again and again.
    """
    import ray

    inputs = _Shared({name: ray.put(task.data.inputs[name]) for name in task.data.inputs})
    shared = copy.copy(task)
    shared.data = replace(task.data, inputs=inputs, networks={})
    reference = ray.put(shared)
    do: Any = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_do)
    waiting = {do.remote(job, reference): number for number, job in enumerate(jobs)}
    parts: dict[int, Probed] = {}
    losses = Counter[int]()
    while waiting:
        report(len(parts) / len(jobs))
        (ready, *_), _ = ray.wait(list(waiting))
        number = waiting.pop(ready)
        try:
            parts[number] = ray.get(ready)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            losses[number] += 1
            lost = f"a Ray worker ended ({type(error).__name__}: it was killed, ran out of memory or lost its machine)"
            if losses[number] > _MOST_LOSSES:
                raise UserError(f"{lost}, {losses[number]} times with the same probes") from None
            print(f"{lost}: another one fits its probes", file=sys.stderr)
            waiting[do.remote(jobs[number], reference)] = number
    return [parts[number] for number in range(len(jobs))]


def _start() -> None:
    """Do nothing; a worker that can import this has started."""


def _do(job: Job, task: Task) -> Probed:
    return job(task)
