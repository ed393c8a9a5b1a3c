"""All probes of one dump: every input and target, linear and not, control tasks, and memories beside baselines.

Worlds are dealt out to folds. Variables that are taken as known, such as the tick, become columns that probes can read.
A control task (Hewitt and Liang 2019, "Designing and interpreting probes with control tasks") has the rhythm and range
of a life but belongs to another moment of it: what a probe can learn of it tells how much of a score is the probe's own
doing. Shifting a target around within each life keeps its autocorrelation and all that is true of the life as a whole;
what is left is how a state goes with its own moment.

Probes are fitted one after the other, or side by side on the machines of a Ray cluster, which share no files: arrays
travel to them.
"""

import copy
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from analysis.features.feature import Feature
from analysis.lives import Lives
from analysis.probes.dataset import ProbeData
from analysis.probes.inputs import Columns, Input
from analysis.probes.ridge import Choice, Fitted, ReadOuts, fit_ridge, fit_ridge_beside
from analysis.probes.scores import Losses, average_precision, losses
from analysis.statistics.resampling import folds_of
from common.ray_cluster import START_SECONDS, connect, no_worker
from common.user_error import UserError

_KNOTS = 8
SCALE = 30.0
"""What known columns are scaled by beside a baseline: their penalty is 900 times smaller, so they are used in full.

Otherwise a wide baseline, which needs a large penalty, would drown them, and the memory would get the credit.
"""
_LEAST_SHIFT, _LARGEST_SHIFT = 0.25, 0.75
"""Shares of a life; a shift by little would leave a slow target as it was."""


def smooth_basis(given: np.ndarray) -> np.ndarray:
    """Expand variables so that a linear probe of them can bend: cubic splines, (B, G) to (B, columns) float32.

    A variable of few values gets a column for each of them instead.
    """
    from sklearn.preprocessing import OneHotEncoder, SplineTransformer

    blocks = [np.empty((len(given), 0))]
    for column in given.T[:, :, None]:
        few = len(np.unique(column)) <= _KNOTS
        basis = OneHotEncoder(sparse_output=False) if few else SplineTransformer(_KNOTS, knots="quantile")
        blocks.append(basis.fit_transform(column))
    return np.concatenate(blocks, axis=1).astype(np.float32)


def shifted_within_lives(values: np.ndarray, lives: Lives, seed: int) -> np.ndarray:
    """Shift each life's values around in a circle, each life by its own share: (B, T) to (B, T)."""
    shares = np.random.default_rng(seed).uniform(_LEAST_SHIFT, _LARGEST_SHIFT, len(lives))
    shift = np.round(shares * lives.lengths).astype(np.int64)
    shift = np.clip(shift, np.minimum(1, lives.lengths - 1), None)  # a life of two is shifted by one, of one by none
    start, length = (np.repeat(array, lives.lengths) for array in (lives.starts, lives.lengths))
    source = start + (np.arange(len(values)) - start + np.repeat(shift, lives.lengths)) % length
    shifted = np.empty_like(values)
    shifted[lives.order] = values[lives.order][source]
    return shifted


class Task:
    """What is the same for all inputs of a dump: targets, controls, given variables, and how records are split."""

    def __init__(self, data: ProbeData, fold: np.ndarray, yes_or_no: np.ndarray, usable: np.ndarray, seed: int):
        """Take the folds of records, (B,), and which targets are yes-or-no, and usable, (T,) bool each."""
        self.data, self.fold, self.yes_or_no, self.usable, self.seed = data, fold, yes_or_no, usable, seed
        self.given = smooth_basis(data.given)  # (B, G)
        self.alike = [
            (rows, some) for rows, columns in alike(np.isfinite(data.targets)) if len(some := columns[usable[columns]])
        ]
        self.controls = np.full(data.targets.shape, np.nan)
        """Targets shifted within lives; of one that does not apply everywhere, among the records that it applies to."""
        for rows, columns in self.alike:
            here = np.ix_(rows, columns)
            self.controls[here] = shifted_within_lives(data.targets[here], data.lives.of_records(rows), seed)

    def input(self, name: str, known: bool = False) -> tuple[Columns, np.ndarray]:
        """Return an input, (B, C), and the scales of its columns to choose from, (K, C); known: with those given."""
        x = Columns.of(self.data.inputs[name])
        bands = self.data.bands.get(name, np.ones((1, x.width)))
        if not known:
            return x, bands
        scales = np.full((len(bands), self.given.shape[1]), SCALE)
        return x.beside(self.given), np.concatenate([bands, scales], axis=1)

    def linear(
        self, everywhere: Columns, bands: np.ndarray, with_control: bool = False
    ) -> tuple[np.ndarray, np.ndarray, ReadOuts]:
        """Fit and cross-validate linear probes of an input: ridge or, for yes-or-no targets, logistic regressions.

        Returns:
            What probes said of records that they were not fitted to: of targets, in their units, of yes-or-no targets
            log-odds; and of their control tasks, which is NaN unless asked for. (B, T) each, NaN where not applicable.
            And the read-outs, fitted to all records.
        """
        targets = self.data.targets
        real, control = np.full((2, *targets.shape), np.nan)
        weight, bias = np.full((everywhere.width, targets.shape[1]), np.nan), np.full(targets.shape[1], np.nan)
        for rows, columns in self.alike:
            here, count = np.ix_(rows, columns), len(columns)
            y = np.concatenate([targets[here], self.controls[here][:, : count * with_control]], axis=1)
            ranked = np.tile(self.yes_or_no[columns], 1 + with_control)
            x, fold = replace(everywhere, rows=np.flatnonzero(rows)), self.fold[rows]
            fitted = classified(x, y, fold, ranked, fit_ridge(x, y, fold, bands))
            real[here] = fitted.predicted[:, :count]
            if with_control:
                control[here] = fitted.predicted[:, count:]
            weight[:, columns] = fitted.read_outs.weight[:, :count]
            bias[columns] = fitted.read_outs.bias[:count]
        return real, control, ReadOuts(weight, bias)

    def linear_beside(self, baseline: Columns, scale: np.ndarray, memories: Sequence[str]) -> dict[str, np.ndarray]:
        """Fit and cross-validate linear probes of a baseline and a memory; return each memory's predictions, (B, T).

        Scales are of the baseline's columns, (C,).
        """
        targets = self.data.targets
        real = {name: np.full(targets.shape, np.nan) for name in memories}
        others = {name: self.data.inputs[name] for name in memories}
        for rows, columns in self.alike:
            x = replace(baseline, rows=np.flatnonzero(rows))
            here, ranked, fold = np.ix_(rows, columns), self.yes_or_no[columns], self.fold[rows]
            for name, fitted in fit_ridge_beside(x, others, targets[here], fold, scale).items():
                result = classified(x.beside(others[name]), targets[here], fold, ranked, fitted)
                real[name][here] = result.predicted
        return real

    def networks(self, x: Columns, y: np.ndarray) -> np.ndarray:
        """Train and cross-validate networks; return predictions of targets or of their controls, (B, T)."""
        from analysis.probes.mlp import fit_mlp

        predicted, columns = np.full(y.shape, np.nan), self.usable
        if columns.any():
            predicted[:, columns] = fit_mlp(x, y[:, columns], self.fold, self.yes_or_no[columns], self.seed)
        return predicted

    def losses(self, predicted: np.ndarray, y: np.ndarray) -> Losses:
        """Score predictions of targets or of their controls, (B, T) each."""
        data = self.data
        total = np.zeros((2, data.worlds, y.shape[1]))
        for rows, columns in self.alike:
            here = np.ix_(rows, columns)
            mean = mean_of_the_rest(y[here], self.fold[rows])
            part = losses(predicted[here], y[here], mean, data.world[rows], data.worlds, self.yes_or_no[columns])
            total[:, :, columns] = part.lost, part.stake
        return Losses(*total)

    def precision(self, predicted: np.ndarray) -> Losses:
        """Score predictions of binary targets by average precision, (B, T)."""
        data = self.data
        total = np.zeros((2, data.worlds, len(self.usable)))
        for rows, columns in self.alike:
            binary = columns[self.yes_or_no[columns]]
            here = np.ix_(rows, binary)
            part = average_precision(predicted[here], data.targets[here], data.world[rows], data.worlds)
            total[:, :, binary] = part.lost, part.stake
        return Losses(*total)


def classified(
    x: np.ndarray | Columns, y: np.ndarray, fold: np.ndarray, yes_or_no: np.ndarray, ridge: Fitted
) -> Fitted:
    """Put logistic regressions in the place of the ridge regressions of yes-or-no targets, with the same penalties."""
    if not yes_or_no.any():
        return ridge
    from analysis.probes.logistic import fit_logistic

    choices = {
        left_out: Choice(chosen.penalty[yes_or_no], chosen.scales[yes_or_no])
        for left_out, chosen in ridge.choices.items()
    }
    logistic = fit_logistic(x, y[:, yes_or_no], fold, choices)
    ridge.predicted[:, yes_or_no] = logistic.predicted
    ridge.read_outs.weight[:, yes_or_no] = logistic.read_outs.weight
    ridge.read_outs.bias[yes_or_no] = logistic.read_outs.bias
    return ridge


def alike(applies: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Group targets that apply to the same records: (B, T) bool to pairs of rows, (B,) bool, and columns, int64."""
    _, group = np.unique(np.packbits(applies, axis=0), axis=1, return_inverse=True)
    columns = [np.flatnonzero(group.ravel() == number) for number in range(group.max(initial=-1) + 1)]
    return [(applies[:, column[0]], column) for column in columns]


def mean_of_the_rest(y: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return for each record the mean over all other folds' records: what to guess without any input, (B, T)."""
    counts = np.bincount(fold)
    sums = np.stack([np.bincount(fold, weights=column) for column in y.T], axis=1)  # (folds, T)
    rest = (sums.sum(axis=0) - sums) / (len(y) - counts)[:, None]
    return rest[fold]


LINEAR, MLP = "linear", "mlp"
PROBES = (LINEAR, MLP)

FEWEST_RECORDS = 20
"""Records that must say yes, and no, for a yes-or-no target to be probed."""

FEWEST_FOLDS = 3

Report = Callable[[float], None]
"""Told the share of the work done."""

Job = Callable[[Task], "Probed"]
"""Fits some of a dump's probes, which need no others. It can be pickled."""


@dataclass(frozen=True)
class Probed:
    """How well the targets of one dump are predicted."""

    reasons: tuple[str | None, ...] = ()
    """Why a target was not probed, None where it was; nothing in what a job returns."""
    losses: dict[tuple[str, str], Losses] = field(default_factory=dict)
    """(probe, input) -> errors, world by world, in the order of the targets."""
    precision: dict[tuple[str, str], Losses] = field(default_factory=dict)
    """(probe, input) -> likewise, by average precision; nothing at stake for targets that are not binary."""
    controls: dict[tuple[str, str], Losses] = field(default_factory=dict)  # likewise of the control tasks, for memories
    together: dict[tuple[str, str, str], Losses] = field(default_factory=dict)
    """(probe, memory, baseline) -> likewise of probes that read both."""
    read_outs: dict[str, ReadOuts] = field(default_factory=dict)
    """Memory -> linear read-outs of all targets, in the order of the targets."""
    known: dict[tuple[str, str], Losses] = field(default_factory=dict)
    """(probe, baseline) -> likewise of probes that also read the given variables; empty if there are none."""
    known_together: dict[tuple[str, str, str], Losses] = field(default_factory=dict)
    """(probe, memory, baseline) -> likewise of probes that read all three."""

    @property
    def usable(self) -> np.ndarray:
        """Which targets were probed, (T,) bool."""
        return np.array([reason is None for reason in self.reasons], bool)

    def add(self, part: "Probed") -> None:
        """Take over the results of a job."""
        for table in fields(self)[1:]:
            getattr(self, table.name).update(getattr(part, table.name))


def do_here(task: Task, jobs: Sequence[Job], report: Report) -> list[Probed]:
    """Do one job after the other in this process."""
    parts = []
    for done, job in enumerate(jobs):
        report(done / len(jobs))
        parts.append(job(task))
    return parts


def probe(
    data: ProbeData, targets: Sequence[Feature], inputs: Sequence[Input], probes: Sequence[str], seed: int,
    report: Report, do: Callable[[Task, Sequence[Job], Report], list[Probed]] = do_here,
) -> Probed:  # fmt: skip
    """Fit and cross-validate all probes of a dump.

    Args:
        do: does the jobs, in any order, and returns their results in order.
    """
    fold = folds_of(data.world)
    reasons = tuple(why_not(target, values, fold) for target, values in zip(targets, data.targets.T, strict=True))
    probed = Probed(reasons)
    task = Task(data, fold, np.array([target.yes_or_no for target in targets], bool), probed.usable, seed)
    twins = {source.name: _same_as(source, inputs, data) for source in inputs}
    own = [source for source in inputs if twins[source.name] == source.name]
    memories = [source.name for source in own if source.kind == "memory"]
    baselines = [source.name for source in own if source.kind == "baseline" and memories]
    jobs: list[Job] = [partial(_probe_one, source.name, kind, memories) for source in own for kind in probes]
    for known in (False, True)[: 1 + bool(data.given.shape[1])]:
        jobs += [partial(_probe_beside, name, kind, memories, known) for name in baselines for kind in probes]
    for part in do(task, jobs, report):
        probed.add(part)
    _repeat_for_twins(probed, twins)
    return probed


def _probe_one(name: str, kind: str, memories: Sequence[str], task: Task) -> Probed:
    """Probe one input; of a memory its controls, too, with networks that share nothing with the others."""
    memory, data, part = name in memories, task.data, Probed()
    x, bands = task.input(name)
    if kind == LINEAR:
        real, control, read_outs = task.linear(x, bands, memory)
        if memory:
            part.read_outs[name] = read_outs
    else:
        real = task.networks(x, data.targets)
        control = task.networks(x, task.controls) if memory else real
    part.losses[kind, name] = task.losses(real, data.targets)
    part.precision[kind, name] = task.precision(real)
    if memory:
        part.controls[kind, name] = task.losses(control, task.controls)
    return part


def _probe_beside(baseline: str, kind: str, memories: Sequence[str], known: bool, task: Task) -> Probed:
    """Probe a baseline beside each memory; if variables are known, with these, and also the baseline alone."""
    part, y = Probed(), task.data.targets
    x, bands = task.input(baseline, known)
    if known:
        alone = task.linear(x, bands)[0] if kind == LINEAR else task.networks(x, y)
        part.known[kind, baseline] = task.losses(alone, y)
    # The last scales are of all columns, whatever else there is to choose from.
    linear = task.linear_beside(x, bands[-1], memories) if kind == LINEAR else {}
    for memory in memories:
        predicted = linear[memory] if kind == LINEAR else task.networks(x.beside(task.data.inputs[memory]), y)
        (part.known_together if known else part.together)[kind, memory, baseline] = task.losses(predicted, y)
    return part


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


def why_not(target: Feature, values: np.ndarray, fold: np.ndarray) -> str | None:
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


_MOST_LOSSES = 3  # of workers with the same job


class _Shared(dict[str, Any]):
    """Arrays by name in the cluster's store, which brings each to the machines that read it."""

    def __getitem__(self, name: str) -> np.ndarray:
        import ray

        array: np.ndarray = ray.get(super().__getitem__(name))
        return array


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
