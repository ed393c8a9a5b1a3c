"""All probes of one dump: every input and target, linear and not, control tasks, and memories beside baselines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.probes.dataset import ProbeData
from analysis.probes.inputs import Input
from analysis.probes.ridge import ReadOuts
from analysis.probes.scores import Losses
from analysis.probes.target import Target
from analysis.probes.task import Task
from analysis.statistics.resampling import folds_of

LINEAR, MLP = "linear", "mlp"
PROBES = (LINEAR, MLP)

FEWEST_RECORDS = 20
"""Records that must say yes, and no, for a yes-or-no target to be probed."""

FEWEST_FOLDS = 3

Report = Callable[[float], None]
"""Told the share of the work done."""


@dataclass(frozen=True)
class Probed:
    """How well the targets of one dump are predicted.

    Attributes:
        losses: (probe, input) -> errors, world by world, in the order of the targets.
        precision: (probe, input) -> likewise, by average precision; nothing at stake for targets that are not binary.
        controls: likewise of the control tasks, for memories.
        together: (probe, memory, baseline) -> likewise of probes that read both.
        read_outs: memory -> linear read-outs of all targets, in the order of the targets.
        reasons: why a target was not probed, None where it was.
        known: (probe, baseline) -> likewise of probes that also read the given variables; empty if there are none.
        known_together: (probe, memory, baseline) -> likewise of probes that read all three.
    """

    losses: dict[tuple[str, str], Losses]
    precision: dict[tuple[str, str], Losses]
    controls: dict[tuple[str, str], Losses]
    together: dict[tuple[str, str, str], Losses]
    read_outs: dict[str, ReadOuts]
    reasons: tuple[str | None, ...]
    known: dict[tuple[str, str], Losses] = field(default_factory=dict)
    known_together: dict[tuple[str, str, str], Losses] = field(default_factory=dict)

    @property
    def usable(self) -> np.ndarray:
        """Which targets were probed, (T,) bool."""
        return np.array([reason is None for reason in self.reasons], bool)


def probe(
    data: ProbeData, targets: Sequence[Target], inputs: Sequence[Input], probes: Sequence[str], seed: int,
    report: Report,
) -> Probed:  # fmt: skip
    """Fit and cross-validate all probes of a dump."""
    fold = folds_of(data.world)
    reasons = tuple(why_not(target, values, fold) for target, values in zip(targets, data.targets.T, strict=True))
    usable = np.array([reason is None for reason in reasons], bool)
    task = Task(data, fold, np.array([target.yes_or_no for target in targets], bool), usable, seed)
    probed = Probed({}, {}, {}, {}, {}, reasons)
    twins = {source.name: _same_as(source, inputs, data) for source in inputs}
    own = [source for source in inputs if twins[source.name] == source.name]
    memories = [source.name for source in own if source.kind == "memory"]
    jobs: list[tuple[Callable[..., None], str, Input]] = [
        (_probe_one, kind, source) for source in own for kind in probes
    ]
    baselines = [source for source in own if source.kind == "baseline" and memories]
    jobs += [(_probe_beside, kind, source) for source in baselines for kind in probes]
    if data.given.shape[1]:
        jobs += [(_probe_known, kind, source) for source in baselines for kind in probes]
    for done, (work, kind, source) in enumerate(jobs):
        report(done / len(jobs))
        work(task, kind, source, memories, probed)
    _repeat_for_twins(probed, twins)
    return probed


def _probe_one(task: Task, kind: str, one: Input, memories: Sequence[str], probed: Probed) -> None:
    """Probe one input, and put the results among the others."""
    memory, data = one.name in memories, task.data
    if kind == LINEAR:
        (real, control), read_outs = task.linear(one.name, memory)
        if memory:
            probed.read_outs[one.name] = read_outs
    else:
        real, control = task.networks(one.name, memory)
    probed.losses[kind, one.name] = task.losses(real, data.targets)
    probed.precision[kind, one.name] = task.precision(real, data.targets)
    if memory:
        probed.controls[kind, one.name] = task.losses(control, task.controls)


def _probe_beside(task: Task, kind: str, baseline: Input, memories: Sequence[str], probed: Probed) -> None:
    work = task.linear_beside if kind == LINEAR else task.networks_beside
    for memory, predicted in work(baseline.name, memories):
        probed.together[kind, memory, baseline.name] = task.losses(predicted, task.data.targets)


def _probe_known(task: Task, kind: str, baseline: Input, memories: Sequence[str], probed: Probed) -> None:
    if kind == LINEAR:
        ((real, _), _), with_memory = task.linear(baseline.name, False, True), task.linear_beside
    else:
        (real, _), with_memory = task.networks(baseline.name, False, True), task.networks_beside
    probed.known[kind, baseline.name] = task.losses(real, task.data.targets)
    for memory, predicted in with_memory(baseline.name, memories, True):
        probed.known_together[kind, memory, baseline.name] = task.losses(predicted, task.data.targets)


def _repeat_for_twins(probed: Probed, twins: dict[str, str]) -> None:
    """Give inputs that hold the very same numbers as another one the same results."""
    for name, twin in twins.items():
        if name != twin:
            tables: tuple[dict, ...] = (
                probed.losses, probed.precision, probed.controls, probed.together, probed.known_together,
            )  # fmt: skip
            for table in tables:
                table |= {(kind, name, *rest): table[kind, at, *rest] for kind, at, *rest in list(table) if at == twin}
            if twin in probed.read_outs:
                probed.read_outs[name] = probed.read_outs[twin]


def _same_as(one: Input, inputs: Sequence[Input], data: ProbeData) -> str:
    """Return the first memory with the very same numbers: an LSTM's output is often the decoder's input."""
    if one.kind == "memory":
        own = data.inputs[one.name]
        for source in inputs[: inputs.index(one)]:
            if source.kind == "memory" and np.array_equal(own, data.inputs[source.name]):
                return source.name
    return one.name


def why_not(target: Target, values: np.ndarray, fold: np.ndarray) -> str | None:
    """Say why a target, (B,), cannot be probed on these folds, (B,); None if it can."""
    applies = np.isfinite(values)
    there = values[applies]
    if not len(there):
        return "applies to no record"
    if np.ptp(there) == 0:
        return f"is {there[0]:g} in every record"
    if len(np.unique(fold[applies])) < FEWEST_FOLDS:
        return f"applies in fewer than {FEWEST_FOLDS} parts of the split"
    if target.yes_or_no:
        for answer, says in (("yes", there > 0.5), ("no", there <= 0.5)):
            parts = len(np.unique(fold[applies][says]))
            if says.sum() < FEWEST_RECORDS or parts < FEWEST_FOLDS:
                return f"only {says.sum()} records say {answer}, in {parts} parts of the split"
        return None
    varying = sum(np.ptp(there[fold[applies] == number]) > 0 for number in np.unique(fold[applies]))
    return None if varying >= FEWEST_FOLDS else f"varies in only {varying} parts of the split"
