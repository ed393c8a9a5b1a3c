"""All probes of one dump: every input and target, linear and not, control tasks, and memories beside baselines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from representation.probes.beside import fit_ridge_beside
from representation.probes.controls import shifted_within_lives
from representation.probes.dataset import ProbeData
from representation.probes.given import SCALE, smooth_basis
from representation.probes.inputs import Input
from representation.probes.ridge import Fitted, ReadOuts, fit_ridge
from representation.probes.scores import Losses, average_precision, losses
from representation.probes.splits import folds_of_worlds
from representation.probes.target import Target

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
    data: ProbeData,
    targets: Sequence[Target],
    inputs: Sequence[Input],
    probes: Sequence[str],
    seed: int,
    report: Report,
) -> Probed:
    """Fit and cross-validate all probes of a dump.

    Args:
        data: of the dump.
        targets: in the order of its columns.
        inputs: that it holds.
        probes: of `PROBES`.
        seed: of the networks and the control tasks.
        report: told how far it is.
    """
    fold = folds_of_worlds(data.world)[data.world]
    reasons = tuple(why_not(target, values, fold) for target, values in zip(targets, data.targets.T, strict=True))
    usable = np.array([reason is None for reason in reasons], bool)
    task = Task(data, fold, np.array([target.yes_or_no for target in targets], bool), usable, seed)
    found = Probed({}, {}, {}, {}, {}, reasons)
    twins = {each.name: _same_as(each, inputs, data) for each in inputs}
    own = [each for each in inputs if twins[each.name] == each.name]
    memories = [each.name for each in own if each.kind == "memory"]
    jobs: list[tuple[Callable[..., None], str, Input]] = [(_probe_one, kind, each) for each in own for kind in probes]
    baselines = [each for each in own if each.kind == "baseline" and memories]
    jobs += [(_probe_beside, kind, each) for each in baselines for kind in probes]
    if data.given.shape[1]:
        jobs += [(_probe_known, kind, each) for each in baselines for kind in probes]
    for done, (work, kind, each) in enumerate(jobs):
        report(done / len(jobs))
        work(task, kind, each, memories, found)
    _repeat_for_twins(found, twins)
    return found


def _probe_one(task: "Task", kind: str, one: Input, memories: Sequence[str], found: Probed) -> None:
    """Probe one input, and put the results among the others."""
    memory, data = one.name in memories, task.data
    fitted = (task.linear if kind == LINEAR else task.networks)(one.name, memory)
    found.losses[kind, one.name] = task.losses(fitted.real, data.targets)
    found.precision[kind, one.name] = task.precision(fitted.real, data.targets)
    if memory:
        found.controls[kind, one.name] = task.losses(fitted.control, task.controls)
        if fitted.read_outs:
            found.read_outs[one.name] = fitted.read_outs


def _probe_beside(task: "Task", kind: str, baseline: Input, memories: Sequence[str], found: Probed) -> None:
    """Probe a baseline together with each memory, and put the results among the others."""
    work = task.linear_beside if kind == LINEAR else task.networks_beside
    for memory, predicted in work(baseline.name, memories):
        found.together[kind, memory, baseline.name] = task.losses(predicted, task.data.targets)


def _probe_known(task: "Task", kind: str, baseline: Input, memories: Sequence[str], found: Probed) -> None:
    """Probe a baseline and the given variables, alone and together with each memory."""
    alone, beside = (task.linear, task.linear_beside) if kind == LINEAR else (task.networks, task.networks_beside)
    found.known[kind, baseline.name] = task.losses(alone(baseline.name, False, True).real, task.data.targets)
    for memory, predicted in beside(baseline.name, memories, True):
        found.known_together[kind, memory, baseline.name] = task.losses(predicted, task.data.targets)


def _repeat_for_twins(found: Probed, twins: dict[str, str]) -> None:
    """Give inputs that hold the very same numbers as another one the same results."""
    for name, twin in twins.items():
        if name != twin:
            tables: tuple[dict, ...] = (
                found.losses, found.precision, found.controls, found.together, found.known_together,
            )  # fmt: skip
            for table in tables:
                table |= {(kind, name, *rest): table[kind, at, *rest] for kind, at, *rest in list(table) if at == twin}
            if twin in found.read_outs:
                found.read_outs[name] = found.read_outs[twin]


def _same_as(one: Input, inputs: Sequence[Input], data: ProbeData) -> str:
    """Return the first memory with the very same numbers: an LSTM's output is often the decoder's input."""
    alike = (
        each.name for each in inputs
        if one.kind == each.kind == "memory" and np.array_equal(data.inputs[one.name], data.inputs[each.name])
    )  # fmt: skip
    return next(alike, one.name)


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
    varying = sum(np.ptp(there[fold[applies] == each]) > 0 for each in np.unique(fold[applies]))
    return None if varying >= FEWEST_FOLDS else f"varies in only {varying} parts of the split"


@dataclass(frozen=True)
class Predictions:
    """What probes of one input said of records that they were not fitted to, (B, T) each, NaN where not applicable.

    Attributes:
        real: of the targets, in their units; of yes-or-no targets log-odds.
        control: of the control tasks; empty unless asked for.
        read_outs: linear read-outs fitted to all records; None for networks.
    """

    real: np.ndarray
    control: np.ndarray
    read_outs: ReadOuts | None = None


class Task:
    """What is the same for all inputs of a dump: targets, controls, given variables, and how records are split."""

    def __init__(self, data: ProbeData, fold: np.ndarray, yes_or_no: np.ndarray, usable: np.ndarray, seed: int):
        """Take the folds of records, (B,), and which targets are yes-or-no, and usable, (T,) bool each."""
        self.data, self.fold, self.yes_or_no, self.seed = data, fold, yes_or_no, seed
        self.given = smooth_basis(data.given)  # (B, G)
        self.alike = [
            (rows, columns[usable[columns]])
            for rows, columns in alike(np.isfinite(data.targets))
            if usable[columns].any()
        ]
        self.usable = usable
        self.controls = self._controls()

    def _controls(self) -> np.ndarray:
        """Shift targets within lives; one that does not apply everywhere among the records that it applies to."""
        found = np.full(self.data.targets.shape, np.nan)
        for rows, columns in self.alike:
            lives = self.data.lives.of_records(rows)
            here = np.ix_(rows, columns)
            found[here] = shifted_within_lives(self.data.targets[here], lives, self.seed)
        return found

    def _input(self, name: str, known: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return an input, (B, C), and the scales of its columns to choose from, (K, C); known: with those given."""
        x = self.data.inputs[name]
        bands = self.data.bands.get(name, np.ones((1, x.shape[1])))
        if not known:
            return x, bands
        scales = np.full((len(bands), self.given.shape[1]), SCALE)
        return np.concatenate([x, self.given], axis=1), np.concatenate([bands, scales], axis=1)

    def linear(self, name: str, with_control: bool, known: bool = False) -> Predictions:
        """Fit and cross-validate linear probes of an input: ridge or, for yes-or-no targets, logistic regressions."""
        targets, (x, bands) = self.data.targets, self._input(name, known)
        real, control = np.full(targets.shape, np.nan), np.full(targets.shape, np.nan)
        weight, bias = np.full((x.shape[1], targets.shape[1]), np.nan), np.full(targets.shape[1], np.nan)
        for rows, columns in self.alike:
            here, count = np.ix_(rows, columns), len(columns)
            y = np.concatenate([targets[here], self.controls[here][:, : count * with_control]], axis=1)
            ranked = np.tile(self.yes_or_no[columns], 1 + with_control)
            fitted = fit_linear(_rows(x, rows), y, self.fold[rows], ranked, bands)
            real[here] = fitted.predicted[:, :count]
            if with_control:
                control[here] = fitted.predicted[:, count:]
            found = fitted.read_outs
            weight[:, columns], bias[columns] = found.weight[:, :count], found.bias[:count]
        return Predictions(real, control, ReadOuts(weight, bias))

    def linear_beside(
        self, baseline: str, memories: Sequence[str], known: bool = False
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Fit and cross-validate linear probes of a baseline and a memory; yield each memory's predictions, (B, T)."""
        targets, (every_column, bands) = self.data.targets, self._input(baseline, known)
        real = {name: np.full(targets.shape, np.nan) for name in memories}
        for rows, columns in self.alike:
            x = _rows(every_column, rows)
            others = {name: _rows(self.data.inputs[name], rows) for name in memories}
            here, ranked = np.ix_(rows, columns), self.yes_or_no[columns]
            # The last scales are of all columns, whatever else there is to choose from.
            for name, fitted in fit_ridge_beside(x, others, targets[here], self.fold[rows], bands[-1]).items():
                both = np.concatenate([x, others[name]], axis=1)
                found = classified(both, targets[here], self.fold[rows], ranked, fitted)
                real[name][here] = found.predicted
        yield from real.items()

    def networks(self, name: str, with_control: bool, known: bool = False) -> Predictions:
        """Train and cross-validate networks; those of controls share nothing with the others."""
        some = (self.data.targets, self.controls)[: 1 + with_control]
        found = [self._networks(self._input(name, known)[0], y) for y in some]
        return Predictions(found[0], found[-1])

    def networks_beside(
        self, baseline: str, memories: Sequence[str], known: bool = False
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Train and cross-validate networks of a baseline and a memory; yield each memory's predictions, (B, T)."""
        for name in memories:
            both = np.concatenate([self._input(baseline, known)[0], self.data.inputs[name]], axis=1)
            yield name, self._networks(both, self.data.targets)

    def _networks(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        from representation.probes.mlp import fit_mlp

        predicted = np.full(y.shape, np.nan)
        columns = self.usable
        if columns.any():
            predicted[:, columns] = fit_mlp(x, y[:, columns], self.fold, self.yes_or_no[columns], self.seed)
        return predicted

    def precision(self, predicted: np.ndarray, y: np.ndarray) -> Losses:
        """Score predictions of binary targets by average precision, (B, T) each."""
        data = self.data
        lost, stake = np.zeros((2, data.worlds, y.shape[1]))
        for rows, columns in self.alike:
            columns = columns[self.yes_or_no[columns]]
            here = np.ix_(rows, columns)
            part = average_precision(predicted[here], y[here], data.world[rows], data.worlds)
            lost[:, columns], stake[:, columns] = part.lost, part.stake
        return Losses(lost, stake)

    def losses(self, predicted: np.ndarray, y: np.ndarray) -> Losses:
        """Score predictions of targets or of their controls, (B, T) each."""
        data = self.data
        lost, stake = np.zeros((2, data.worlds, y.shape[1]))
        for rows, columns in self.alike:
            here = np.ix_(rows, columns)
            mean = mean_of_the_rest(y[here], self.fold[rows])
            part = losses(predicted[here], y[here], mean, data.world[rows], data.worlds, self.yes_or_no[columns])
            lost[:, columns], stake[:, columns] = part.lost, part.stake
        return Losses(lost, stake)


def fit_linear(
    x: np.ndarray, y: np.ndarray, fold: np.ndarray, yes_or_no: np.ndarray, bands: np.ndarray | None = None
) -> Fitted:
    """Fit and cross-validate ridge regressions and, of yes-or-no targets, logistic regressions with their penalties.

    Args:
        x: input, (B, C) float32.
        y: targets, (B, T) float64, finite.
        fold: of each record, (B,) int64, at least three.
        yes_or_no: which targets are, (T,) bool.
        bands: scales of the columns to choose from, (K, C); by default one band of 1 everywhere.
    """
    return classified(x, y, fold, yes_or_no, fit_ridge(x, y, fold, bands))


def classified(x: np.ndarray, y: np.ndarray, fold: np.ndarray, yes_or_no: np.ndarray, ridge: Fitted) -> Fitted:
    """Put logistic regressions in the place of the ridge regressions of yes-or-no targets, with the same penalties."""
    if not yes_or_no.any():
        return ridge
    from representation.probes.logistic import fit_logistic

    logistic = fit_logistic(x, y[:, yes_or_no], fold, ridge.choices.of_targets(yes_or_no))
    ridge.predicted[:, yes_or_no] = logistic.predicted
    ridge.read_outs.weight[:, yes_or_no] = logistic.read_outs.weight
    ridge.read_outs.bias[yes_or_no] = logistic.read_outs.bias
    return ridge


def _rows(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return some rows, (B,) bool, of an array; without a copy if it is all of them."""
    return x if rows.all() else x[rows]


def alike(applies: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Group targets that apply to the same records: (B, T) bool to pairs of rows, (B,) bool, and columns, int64."""
    _, group = np.unique(np.packbits(applies, axis=0), axis=1, return_inverse=True)
    columns = [np.flatnonzero(group.ravel() == number) for number in range(group.max(initial=-1) + 1)]
    return [(applies[:, each[0]], each) for each in columns]


def mean_of_the_rest(y: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return for each record the mean over all other folds' records: what to guess without any input, (B, T)."""
    counts = np.bincount(fold)
    sums = np.stack([np.bincount(fold, weights=column) for column in y.T], axis=1)  # (folds, T)
    rest = (sums.sum(axis=0) - sums) / (len(y) - counts)[:, None]
    return rest[fold]
