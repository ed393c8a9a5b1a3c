"""What the probes of dumps found: scores, advantages, increments and selectivity, with intervals and tests, row by row.

Commonality: three probes of each target, of the given variables, of the memory and of both, split what both explain
into what only the memory tells, what only the given variables tell, and what either tells (Mood 1971, "Partitioning
variance in multiple regression analyses"). Yes-or-no targets are taken as 0 and 1 and scored by R squared too, since
AUCs do not add up.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from activation_store.schema import DumpMetadata
from analysis.features.feature import Feature
from analysis.probes.dataset import ProbeData
from analysis.probes.inputs import Columns, Input
from analysis.probes.probing import Probed, Task
from analysis.probes.scores import Estimates, Key, Losses, estimate
from analysis.statistics.inference import LEVEL, false_discovery
from analysis.statistics.resampling import folds_of

EVERY_BASELINE = "every"
"""In the place of a baseline: the increment over that one to which the memory adds with the least certainty."""

_SMALLEST_SCORE = 0.01
"""R squared of the memory below which there is nothing of which a share could remain."""


@dataclass(frozen=True)
class Findings:
    """Everything by probe and input; advantage, increment and selectivity for memories only."""

    scores: dict[Key, Estimates]
    precision: dict[Key, Estimates]  # average precision of binary targets, NaN for others
    advantages: dict[Key, Estimates]
    """What a memory's probe scores beyond the best of all baselines. The best of several noisy baselines looks better
    than any is, so the bias is negative where it matters, and the advantage errs towards too little."""
    increments: dict[Key, dict[str, Estimates]]
    """What a memory adds to each baseline: the score of a probe of both minus that of the same probe of the baseline.
    `EVERY_BASELINE` is the one over the baseline to which the memory adds with the least certainty; its p-value tests
    whether the memory adds to every baseline (an intersection-union test: Berger 1982, "Multiparameter hypothesis
    testing and acceptance sampling", Technometrics 24)."""
    selectivities: dict[Key, Estimates]
    increments_given: dict[Key, dict[str, Estimates]]
    """To every baseline that also reads the given variables; empty if there are none."""


def findings(probed: Probed, inputs: Sequence[Input], weights: np.ndarray, chance: np.ndarray) -> Findings:
    """Compare memories with baselines and with control tasks.

    A memory's probe of one kind has to beat the baselines' probes of every kind. `weights` are those of `draw_worlds`,
    (R, W), and `chance` is the score of knowing nothing, (T,).
    """
    memories = {source.name for source in inputs if source.kind == "memory"}
    drawn = {key: losses.resampled(weights) for key, losses in probed.losses.items()}
    baselines = [key for key in drawn if key[1] not in memories]
    wanted = [key for key in drawn if key[1] in memories]
    return Findings(
        scores={key: _score(probed.losses[key], drawn[key], chance) for key in drawn},
        precision={
            key: estimate(own.score, own.resampled(weights), _informative(own)) for key, own in probed.precision.items()
        },
        advantages={key: _advantage(key, baselines, probed, drawn) for key in wanted if baselines},
        increments=_increments(wanted, probed.together, probed.losses, weights),
        selectivities={key: _difference(probed.losses[key], probed.controls[key], weights) for key in wanted},
        increments_given=_increments(wanted, probed.known_together, probed.known, weights),
    )


def _score(losses: Losses, drawn: np.ndarray, chance: np.ndarray) -> Estimates:
    beyond = estimate(losses.score - chance, drawn - chance, _informative(losses))
    return Estimates(losses.score, beyond.low + chance, np.minimum(beyond.high + chance, 1.0), beyond.p)


def _advantage(key: Key, baselines: Sequence[Key], probed: Probed, drawn: dict[Key, np.ndarray]) -> Estimates:
    own = probed.losses[key]
    others = np.stack([probed.losses[baseline].score for baseline in baselines])  # (baselines, T)
    value = own.score - others.max(axis=0)
    # The best baseline is chosen anew in every resample, so that its choice widens the interval too.
    differences = drawn[key] - np.stack([drawn[baseline] for baseline in baselines]).max(axis=0)
    known = np.isfinite(value)
    best = tuple(
        baselines[place] if there else None
        for place, there in zip(np.where(known, others, 0).argmax(axis=0), known, strict=True)
    )
    bias = np.where(known, np.where(np.isfinite(differences), differences, value).mean(axis=0) - value, np.nan)
    return replace(estimate(value, differences, _informative(own)), over=best, bias=bias)


def _increments(
    wanted: Sequence[Key], together: Mapping[tuple[str, str, str], Losses], alone: Mapping[Key, Losses],
    weights: np.ndarray,
) -> dict[Key, dict[str, Estimates]]:  # fmt: skip
    over: dict[Key, dict[str, Estimates]] = {}
    for (probe, memory, baseline), both in together.items():
        over.setdefault((probe, memory), {})[baseline] = _difference(both, alone[probe, baseline], weights)
    return {key: {**over[key], EVERY_BASELINE: _least(key[0], over[key])} for key in wanted if key in over}


def _least(probe: str, over: Mapping[str, Estimates]) -> Estimates:
    """Return, for each target, the increment with the largest p-value."""
    # Where a test is not possible, as between two probes without any error, nothing shows that the memory adds.
    p = np.stack([np.where(np.isfinite(e.p), e.p, np.where(np.isfinite(e.value), 1, -1)) for e in over.values()])
    place = p.argmax(axis=0)
    names, targets = list(over), np.arange(p.shape[1])
    known = p[place, targets] >= 0
    numbers = np.stack([(e.value, e.low, e.high, own_p) for e, own_p in zip(over.values(), p, strict=True)])
    value, low, high, largest = np.where(known, numbers[place, :, targets].T, np.nan)
    least_over = tuple((probe, names[i]) if there else None for i, there in zip(place, known, strict=True))
    return Estimates(value, low, high, largest, least_over)


def _difference(own: Losses, other: Losses, weights: np.ndarray) -> Estimates:
    """Return how much better one probe scores than another one."""
    return estimate(own.score - other.score, own.resampled(weights) - other.resampled(weights), _informative(own))


def _informative(losses: Losses) -> np.ndarray:
    return np.count_nonzero(losses.stake > 0, axis=0)


def commonality(data: ProbeData, memory: str, usable: np.ndarray, weights: np.ndarray) -> dict[str, Estimates]:
    """Split the R squared of what a memory and the given variables explain.

    Args:
        usable: which targets can be probed, (T,) bool.
        weights: of resamples, as `draw_worlds` returns them.

    Returns:
        R squared of the `given` variables alone, of the `memory` alone and of `both`; what the memory adds to the given
        variables, `only_memory`, and they to it, `only_given`; what either tells, `common`, below 0 where they tell
        more together than apart; and `remaining`, only_memory as a share of memory, NaN where that tells nothing.
    """
    task = Task(data, folds_of(data.world), np.zeros(len(usable), bool), usable, 0)
    alone, hidden = Columns.of(task.given), data.inputs[memory]
    blocks = {"given": alone, "memory": Columns.of(hidden), "both": alone.beside(hidden)}
    lost = {name: task.losses(task.linear(x, np.ones((1, x.width)))[0], data.targets) for name, x in blocks.items()}
    once, drawn = (
        _parts({name: losses.resampled(of) for name, losses in lost.items()})
        for of in (np.ones((1, data.worlds)), weights)
    )
    return {name: estimate(once[name][0], drawn[name], _informative(lost["both"])) for name in once}


def _parts(score: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    given, memory, both = score["given"], score["memory"], score["both"]
    something = memory >= _SMALLEST_SCORE
    remaining = np.divide(both - given, memory, out=np.full(memory.shape, np.nan), where=something)
    return {
        **score, "only_memory": both - given, "only_given": both - memory, "common": given + memory - both,
        "remaining": remaining,
    }  # fmt: skip


R_SQUARED, AUC = "R2", "AUC"
_CHECKPOINT = re.compile(r"(.+)_\d{10}")


@dataclass(frozen=True)
class ScoreRow:
    """How well one target is predicted from one input; all numbers are None where the target was not probed.

    Average precision is of binary targets only; its chance level is the target's fraction of positives. `records` is
    the number of records in which the target has a known value.
    """

    dump: str
    target: str
    measure: str
    probe: str
    input: str
    kind: str
    records: int
    score: float | None
    low: float | None
    high: float | None
    average_precision: float | None
    average_precision_low: float | None
    average_precision_high: float | None

    @property
    def above_chance(self) -> float:
        """The share of the way from chance to perfect; of a target that was probed."""
        score = self.score or 0.0
        return 2 * score - 1 if self.measure == AUC else score


@dataclass(frozen=True)
class AdvantageRow:
    """How much better one memory predicts one target than the best baseline, and than its control task.

    q corrects p over the targets of one memory and kind of probe, q_run over everything that the run tested.
    """

    dump: str
    target: str
    measure: str
    probe: str
    memory: str
    score: float | None
    best_baseline: str | None
    best_baseline_probe: str | None
    advantage: float | None
    low: float | None
    high: float | None
    p: float | None
    q: float | None
    q_run: float | None
    bias: float | None
    control: float | None
    selectivity: float | None
    selectivity_low: float | None
    selectivity_high: float | None
    selectivity_p: float | None
    selectivity_q: float | None


@dataclass(frozen=True)
class IncrementRow:
    """What one memory adds to one baseline, for one target: score of both together minus that of the baseline.

    Of the baseline `every`, p tests whether the memory adds to all of them; q and q_run correct that one. The same
    rows describe increments once variables are given: then the baselines, too, read the given variables.
    """

    dump: str
    target: str
    measure: str
    probe: str
    memory: str
    baseline: str
    least_over: str | None
    increment: float | None
    low: float | None
    high: float | None
    p: float | None
    q: float | None
    q_run: float | None


@dataclass(frozen=True)
class CKARow:
    """How alike two layers or networks are on one stream."""

    dump: str
    one: str
    other: str
    cka: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class DumpReport:
    """All that was found in one dump."""

    name: str
    policy: str
    agent: str
    steps_trained: int | None  # agent-steps; None where nobody knows
    records: int
    lives: int
    worlds: int  # that were resampled and split
    worlds_are: str  # "maps" or "episodes"
    inputs: tuple[str, ...]
    missing: tuple[str, ...]  # inputs that were asked for and that the dump does not hold
    targets: tuple[dict[str, Any], ...]
    """Name, unit, definition, measure, chance, why it was not probed, the number of records in which its value is
    known, and the curve that it belongs to and the ticks ahead if it has a horizon."""
    scores: tuple[ScoreRow, ...]
    advantages: tuple[AdvantageRow, ...]
    increments: tuple[IncrementRow, ...]
    given: tuple[dict[str, str | float | None], ...]
    """Part by part, the R squared of each target once the given variables are known."""
    cka: tuple[CKARow, ...]
    increments_given: tuple[IncrementRow, ...] = ()

    @property
    def training(self) -> str:
        """The training run that the policy belongs to: a checkpoint's name without its agent-steps."""
        match = _CHECKPOINT.fullmatch(self.policy)
        return match[1] if match else self.policy


def report_dump(
    name: str, metadata: DumpMetadata, data: ProbeData, targets: Sequence[Feature], wanted: Sequence[Input],
    probed: Probed, findings: Findings, given: Mapping[str, Mapping[str, Estimates]],
    similar: Mapping[tuple[str, str], tuple[float, float, float]],
) -> DumpReport:  # fmt: skip
    """Put into rows what was found in a dump.

    Targets are in the order of the columns of the data; `wanted` are the inputs that were asked for, whether or not the
    dump holds them; `given` is what `commonality` finds of each memory, and `similar` what `similarities` does.
    """
    there = [source for source in wanted if source.name in data.inputs]
    known = np.isfinite(data.targets).sum(axis=0).tolist()
    return DumpReport(
        name=name,
        policy=metadata.policy,
        agent=metadata.agent,
        steps_trained=metadata.steps_trained,
        records=len(data),
        lives=len(data.lives),
        worlds=data.worlds,
        worlds_are="maps" if data.by_map else "episodes",
        inputs=tuple(source.name for source in there),
        missing=tuple(source.name for source in wanted if source.name not in data.inputs),
        targets=tuple(
            {
                "name": target.name, "unit": target.unit, "definition": target.definition, "measure": measure(target),
                "chance": 0.5 if target.yes_or_no else 0.0, "reason": reason, "records": count, "curve": target.curve,
                "ticks_ahead": target.ticks_ahead,
            }
            for target, reason, count in zip(targets, probed.reasons, known, strict=True)
        ),
        scores=tuple(_score_rows(name, targets, {source.name: source.kind for source in there}, findings, known)),
        advantages=tuple(_advantage_rows(name, targets, probed, findings)),
        increments=tuple(_increment_rows(name, targets, findings.increments)),
        given=tuple(
            {"dump": name, "target": target.name, "memory": memory, "part": part}
            | {end: _known(getattr(e, end)[i]) for end in ("value", "low", "high")}
            for memory, parts in given.items() for i, target in enumerate(targets) for part, e in parts.items()
        ),
        cka=tuple(CKARow(name, *pair, *map(_known, numbers)) for pair, numbers in similar.items()),
        increments_given=tuple(_increment_rows(name, targets, findings.increments_given)),
    )  # fmt: skip


def largest_first(values: Iterable[tuple[str, float]]) -> list[str]:
    """Return names, each once, the one with the largest of its values first."""
    largest: dict[str, float] = {}
    for name, value in values:
        largest[name] = max(largest.get(name, -math.inf), value)
    return sorted(largest, key=lambda name: -largest[name])


def effect_of(row: AdvantageRow | IncrementRow) -> float | None:
    """Return what a row measures: an advantage, or an increment."""
    return row.advantage if isinstance(row, AdvantageRow) else row.increment


def is_found(row: AdvantageRow | IncrementRow) -> bool:
    """Say whether an effect is above 0 after the correction for everything that the run tested."""
    effect = effect_of(row)
    return effect is not None and effect > 0 and row.q_run is not None and row.q_run < LEVEL


def measure(target: Feature) -> str:
    """Return the name of a target's score."""
    return AUC if target.yes_or_no else R_SQUARED


def chance(targets: Sequence[Feature]) -> np.ndarray:
    """Return the scores of knowing nothing, (T,) float64."""
    return np.array([0.5 if target.yes_or_no else 0.0 for target in targets])


def _score_rows(
    dump: str, targets: Sequence[Feature], kinds: dict[str, str], findings: Findings, records: Sequence[int]
) -> Iterator[ScoreRow]:
    for i, target in enumerate(targets):
        for (probe, name), score in findings.scores.items():
            estimates = (score, findings.precision[probe, name])
            numbers = (_known(values[i]) for e in estimates for values in (e.value, e.low, e.high))
            yield ScoreRow(dump, target.name, measure(target), probe, name, kinds[name], records[i], *numbers)


def _advantage_rows(
    dump: str, targets: Sequence[Feature], probed: Probed, findings: Findings
) -> Iterator[AdvantageRow]:  # fmt: skip
    controls = {key: losses.score for key, losses in probed.controls.items()}
    for i, target in enumerate(targets):
        for key, own in findings.selectivities.items():
            e = findings.advantages.get(key)
            best = e.over[i] if e else None
            advantage: list[float | None] = [None] * 7
            if e and e.bias is not None:
                advantage = [*(_known(x[i]) for x in (e.value, e.low, e.high, e.p, e.q)), None, _known(e.bias[i])]
            yield AdvantageRow(
                dump, target.name, measure(target), *key, _known(findings.scores[key].value[i]),
                best[1] if best else None, best[0] if best else None, *advantage,
                *(_known(x[i]) for x in (controls[key], own.value, own.low, own.high, own.p, own.q)),
            )  # fmt: skip


def _increment_rows(
    dump: str, targets: Sequence[Feature], increments: Mapping[Key, Mapping[str, Estimates]]
) -> Iterator[IncrementRow]:
    for i, target in enumerate(targets):
        for (probe, memory), over in increments.items():
            for baseline, e in over.items():
                least_over = e.over[i] if e.over else None
                q = _known(e.q[i]) if baseline == EVERY_BASELINE else None
                about = dump, target.name, measure(target), probe, memory, baseline, least_over and least_over[1]
                value, low, high, p = (_known(x[i]) for x in (e.value, e.low, e.high, e.p))
                yield IncrementRow(*about, value, low, high, p, q, None)


def corrected_over_run(reports: Sequence[DumpReport]) -> list[DumpReport]:
    """Fill in q_run: p-values corrected over all dumps, targets, memories and kinds of probe of a run.

    Advantages, increments, and increments once variables are given are three questions, and corrected separately.
    """
    corrected = list(reports)
    for question in ("advantages", "increments", "increments_given"):
        rows = [row for report in reports for row in getattr(report, question)]
        # A row without q is part of another row's test.
        p = np.array([row.p if row.p is not None and row.q is not None else np.nan for row in rows], float)
        tested = (replace(row, q_run=_known(q)) for row, q in zip(rows, false_discovery(p), strict=True))
        for place, report in enumerate(corrected):
            own: dict[str, Any] = {question: tuple(itertools.islice(tested, len(getattr(report, question))))}
            corrected[place] = replace(report, **own)
    return corrected


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
