"""What the probes of dumps found, row by row: for programs as JSON, for people and spreadsheets as tables."""

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
from analysis.probes.findings import EVERY_BASELINE, Findings
from analysis.probes.inputs import Input
from analysis.probes.probing import Probed
from analysis.probes.scores import Estimates, Key
from analysis.statistics.inference import LEVEL, false_discovery

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
        targets=tuple(map(_describe, targets, probed.reasons, known)),
        scores=tuple(_score_rows(name, targets, {source.name: source.kind for source in there}, findings, known)),
        advantages=tuple(_advantage_rows(name, targets, probed, findings)),
        increments=tuple(_increment_rows(name, targets, findings.increments)),
        given=tuple(_given_rows(name, targets, given)),
        cka=tuple(CKARow(name, *pair, *map(_known, numbers)) for pair, numbers in similar.items()),
        increments_given=tuple(_increment_rows(name, targets, findings.increments_given)),
    )


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


def _describe(target: Feature, reason: str | None, records: int) -> dict[str, Any]:
    return {
        "name": target.name, "unit": target.unit, "definition": target.definition, "measure": measure(target),
        "chance": 0.5 if target.yes_or_no else 0.0, "reason": reason, "records": records, "curve": target.curve,
        "ticks_ahead": target.ticks_ahead,
    }  # fmt: skip


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


def _given_rows(
    dump: str, targets: Sequence[Feature], given: Mapping[str, Mapping[str, Estimates]]
) -> Iterator[dict[str, str | float | None]]:  # fmt: skip
    for memory, parts in given.items():
        for i, target in enumerate(targets):
            for part, e in parts.items():
                about = {"dump": dump, "target": target.name, "memory": memory, "part": part}
                yield about | {"value": _known(e.value[i]), "low": _known(e.low[i]), "high": _known(e.high[i])}


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
