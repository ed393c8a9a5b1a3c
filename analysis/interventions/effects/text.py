"""What an intervention run shows, in a few lines for the terminal."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from activation_store.interventions import Arm
from analysis.interventions.effects.controls import RANDOM, Against, Judged
from analysis.interventions.effects.courses import TITLES, Persistence
from analysis.interventions.effects.effects import AtOnce, Effect, changes_of
from analysis.interventions.effects.outcomes import (
    EDITED_TICKS,
    KL,
    KL_IN_PLAY,
    OFF_MANIFOLD,
    VALUE_CHANGE,
    WITHIN_DATA,
    largest_change,
    title,
    title_with_unit,
)
from analysis.interventions.effects.predicted import Bend, Follows
from analysis.interventions.effects.study import EffectsStudy, ranking
from analysis.statistics.inference import LEVEL
from analysis.statistics.resampling import Estimate
from common.number_text import format_p, plural, share_text

_OPTIONS_SHOWN = 3
_HEADS_SHOWN = 5
_SMALLEST_GAIN = 0.005
_FEWEST_DIGITS = 3


def summary_lines(study: EffectsStudy) -> list[str]:
    """Return the summary: effects that count, those that do not, what happens at once, neighbours, doses, notes."""
    lines, ranked = list(_about(study)), ranking(study)
    if ranked:
        order = "the one whose edit moves the distribution over actions furthest at once, in total, first"
        lines += ["", f"Directions, {order if KL in study.at_once_of(ranked[0].name) else 'not ranked'}:"]
        lines += _ranking(ranked, study)
    for arm in [] if ranked else dict.fromkeys(effect.arm for effect in study.effects):
        lines += ["", f"{arm}", *_at_once(study.at_once_of(arm))]
        lines += _follows([follow for follow in study.follows if follow.arm == arm])
        lines += _bends([bend for bend in study.bends if bend.arm == arm])
        lines += _effects(study.effects_of(arm).values())
        lines += _spillovers(study, arm)
    if study.dose_responses:
        lines += ["", "Slopes over doses:", *_slopes(study)]
    if study.persistences:
        lines += ["", "Edited in a single tick, time until half of the edit is left:", *_lasting(study.persistences)]
    if study.notes:
        lines += ["", "Notes:", *(f"- {note}" for note in study.notes)]
    return lines


def number(value: float, sign: bool = True) -> str:
    """Write a number with about three digits, by default with its sign; NaN as "n/a"."""
    if not math.isfinite(value):
        return "n/a"
    digits = _FEWEST_DIGITS - 1 - math.floor(math.log10(abs(value))) if value else 0
    value = round(value, max(0, digits)) + 0.0
    return f"{value:{'+' if sign and value else ''}.{min(max(0, digits), 6)}f}"


def with_interval(name: str, estimate: Estimate, *more: str, sign: bool = True) -> str:
    """Write an estimate, its interval and more about it, for example "ticks lived -14.2 (-22.1 to -6.3; q 0.003)"."""
    known = math.isfinite(estimate.low)
    interval = f"{number(estimate.low, sign)} to {number(estimate.high, sign)}" if known else "no interval"
    return f"{name} {number(estimate.value, sign)} ({'; '.join([interval, *more])})"


def _about(study: EffectsStudy) -> Iterator[str]:
    """Yield what was played, how it is compared, and whether pairing works."""
    arms = sum(not arm.is_at_once for arm in study.arms)
    yield (
        f"{plural(study.episodes, 'episode')} in each arm, {arms} arms, {study.lives:,} lives; "
        f"{share_text(study.edited)} of agents edited."
    )
    yield (
        "Effects compare edited agents with the same agents in an unedited replay of the same episodes, their twin, "
        f"with {100 * study.settings.confidence:g}% intervals over episodes. An effect counts if it exceeds both "
        f"chance and every kind of control, corrected for all tests (q at most {LEVEL:g}). Random directions differ "
        "from one another, so an edit must exceed what one more of them could do. For undecided results, brackets give "
        "the effect that 80% of such runs would detect."
    )
    yield (
        "At once, in total: compared with what the same agents would do, after the same observations, if nobody had "
        "ever edited them. In play: compared with what they would do without this one tick's edit."
    )
    if study.broken:
        arm, outcome = next(iter(study.broken.items()))
        yield (
            f"PAIRING IS BROKEN: the arm {arm!r} edits nothing, yet differs from its twin in {title(outcome)}. "
            "No result below can be trusted."
        )
    elif any(arm.kind == "no edit" for arm in study.arms):
        yield "Check passed: an arm that edits nothing is identical to its twin."


def _ranking(ranked: list[Arm], study: EffectsStudy) -> Iterator[str]:
    """Yield what each direction does at once, and below it what it does to behaviour."""
    for place, arm in enumerate(ranked, start=1):
        yield f"  {place}. {arm.direction}"
        for lines in (
            _levels(study.at_once_of(arm.name), (KL, KL_IN_PLAY, VALUE_CHANGE)),
            _follows([option for option in study.follows if option.arm == arm.name]),
            _effects(study.effects_of(arm.name).values()),
        ):
            yield from (f"  {line}" for line in lines)


def _effects(effects: Iterable[Effect]) -> Iterator[str]:
    by_verdict: dict[str, list[Effect]] = {}
    for effect in effects:
        by_verdict.setdefault(effect.verdict, []).append(effect)
    for effect in by_verdict.pop("effect", []):
        yield f"  {_effect_line(effect)}"
    for verdict in ("no more than controls", "no controls"):
        for effect in by_verdict.pop(verdict, []):
            yield f"  {verdict}: {_effect_line(effect)}"
    for others in by_verdict.values():
        yield f"  {others[0].verdict}: {'; '.join(map(_not_found, others))}"


def _effect_line(effect: Effect) -> str:
    found = effect.verdict != "no more than controls"
    size = [] if found else [_size_of(effect.outcome, effect.detectable, effect.effect)]
    more = [f"q {format_p(effect.q)}", *_controls(effect.against, True), *_against_controls(effect), *size]
    return with_interval(title_with_unit(effect.outcome), effect.effect, *more)


def _not_found(effect: Effect) -> str:
    """Name an outcome, with the effect that would have been found, or the margin within which there is none."""
    if effect.verdict == "equivalent to none":
        return with_interval(
            title_with_unit(effect.outcome),
            effect.effect,
            f"within {effect.margin:.3g}, q {format_p(effect.equivalence_q)}",
        )
    size = f" ({_size_of(effect.outcome, effect.detectable, effect.effect)})" if effect.verdict == "undecided" else ""
    return title(effect.outcome) + size


def _size_of(outcome: str | None, detectable: float, measured: Estimate) -> str:
    """Say how large an effect on an outcome would probably have been found; unknown if the spread over episodes is."""
    if math.isinf(detectable) or (outcome and detectable > largest_change(outcome)):
        return "no effect is detectable"
    if math.isfinite(detectable):
        return f"detectable: {number(detectable, sign=False)}"
    return "no difference" if measured.value == 0 else "detectable effect unknown"


def _controls(against: Iterable[Against], sign: bool) -> Iterator[str]:
    """Yield the effect of each control, and how many random directions do as much, unless there is only one."""
    for control in against:
        many = len(control.arms)
        rank = f" ({control.as_large} of {many} as large)" if control.as_large is not None and many > 1 else ""
        yield f"{control.control} {number(control.effect.value, sign)}{rank}"


def _against_controls(judged: Judged) -> list[str]:
    return [f"q against controls {format_p(judged.beyond_q)}"] if judged.can_be_compared else []


def _at_once(levels: Mapping[str, AtOnce]) -> Iterator[str]:
    yield from _levels(levels, (KL, KL_IN_PLAY, VALUE_CHANGE, OFF_MANIFOLD, WITHIN_DATA, EDITED_TICKS))
    if heads := _largest("kl", levels)[:_HEADS_SHOWN]:
        parts = (f"{head} {number(change.level.value, False)}" for head, change in heads)
        yield f"  at once: largest KL by head, in total, nats: {', '.join(parts)}"
    options = _largest("gain", levels)
    for verb, direction in (("more", 1), ("less", -1)):
        chosen = [option for option in options if direction * option[1].level.value >= _SMALLEST_GAIN][:_OPTIONS_SHOWN]
        if chosen:
            parts = (f"{option.replace('/', ' ')} {number(change.level.value)}" for option, change in chosen)
            yield f"  at once: {verb} probable, in total: {', '.join(parts)}"
    if moved := _largest("moved", levels)[:_OPTIONS_SHOWN]:
        parts = (f"{name} {number(change.level.value)}" for name, change in moved)
        yield f"  at once: largest changes along other directions, in total, in standard deviations: {', '.join(parts)}"


def _levels(levels: Mapping[str, AtOnce], outcomes: Sequence[str]) -> Iterator[str]:
    for outcome in outcomes:
        if change := levels.get(outcome):
            sign = outcome == VALUE_CHANGE
            line = with_interval(title_with_unit(outcome), change.level, *_controls(change.against, sign), sign=sign)
            yield f"  at once: {line}"


def _follows(options: list[Follows]) -> Iterator[str]:
    """Yield the options that follow each variable most, and those that move against it most."""
    for feature in dict.fromkeys(follow.feature for follow in options):
        ranked = sorted(
            (follow for follow in options if follow.feature == feature), key=lambda follow: -follow.effect.value
        )
        for most, follow in (("most", ranked[0]), *((("least", ranked[-1]),) if len(ranked) > 1 else ())):
            option = f"follows {feature} {most}: {follow.option.replace('/', ' ')}"
            name = f"at once, in play: {option}, share of ticks above one half"
            yield f"  {_concluded(name, follow)}"


def _bends(bends: list[Bend]) -> Iterator[str]:
    for bend in bends:
        name = f"path, tiles in {bend.ticks} ticks along {number(bend.predicted, False)} predicted by {bend.plan}"
        yield f"  {_concluded(name, bend)}"
        yield f"  {with_interval('path, degrees from the predicted side', bend.angle)}"


def _concluded(name: str, judged: Judged) -> str:
    """Write a result with its controls, the verdict, and what could have been found where that is negative."""
    negative = judged.verdict in ("undecided", "no more than controls")
    size = [_size_of(None, judged.detectable, judged.measured)] if negative else []
    more = [
        f"q {format_p(judged.q)}",
        *_controls(judged.against, True),
        *_against_controls(judged),
        judged.words,
        *size,
    ]
    return with_interval(name, judged.measured, *more)


def _largest(measure: str, levels: Mapping[str, AtOnce]) -> list[tuple[str, AtOnce]]:
    """Return the changes of a measure in total, the largest first, those without a number last."""

    def size(change: tuple[str, AtOnce]) -> float:
        value = change[1].level.value
        return abs(value) if math.isfinite(value) else -math.inf

    return sorted(changes_of(measure, levels.values()), key=size, reverse=True)


def _spillovers(study: EffectsStudy, arm: str) -> Iterator[str]:
    own = [spillover for spillover in study.spillovers if spillover.arm == arm]
    if not own:
        return
    if study.broken:
        yield f"  unedited neighbours, pairing is broken: {'; '.join(title(spillover.outcome) for spillover in own)}"
        return
    effects = [spillover for spillover in own if spillover.is_found]
    for effect in effects:
        line = with_interval(title_with_unit(effect.outcome), effect.effect, f"q {format_p(effect.q)}")
        yield f"  unedited neighbours: {line}"
    if not effects:
        sizes = "; ".join(
            f"{title(spillover.outcome)} ({_size_of(spillover.outcome, spillover.detectable, spillover.effect)})"
            for spillover in own
        )
        yield f"  unedited neighbours, undecided: {sizes}"


def _slopes(study: EffectsStudy) -> Iterator[str]:
    """Yield slopes in behaviour, and of outcomes at once that sum an edit up."""
    shown = [
        response
        for response in study.dose_responses
        if not response.at_once or response.outcome in (KL, VALUE_CHANGE, OFF_MANIFOLD)
    ]
    if study.broken:
        yield f"  pairing is broken: {'; '.join(title(response.outcome) for response in shown)}"
        return
    for response in shown:
        if response.is_found:
            random = _controls([response.against], True) if response.against else []
            known = math.isfinite(response.beyond_q)
            beyond = [f"q against controls {format_p(response.beyond_q)}"] if known else []
            name = f"{title_with_unit(response.outcome)}, per unit of dose"
            line = with_interval(name, response.slope, f"q {format_p(response.q)}", *random, *beyond)
            before = "" if response.beyond_random else f"no more than {RANDOM}: " if known else "no controls: "
            yield f"  {before}{line}; {response.shape}"
    if rest := [
        f"{title(response.outcome)} ({_size_of(None, response.detectable, response.slope)})"
        for response in shown
        if not response.is_found
    ]:
        yield f"  undecided: {'; '.join(rest)}"


def _lasting(persistences: Iterable[Persistence]) -> Iterator[str]:
    for persistence in persistences:
        most = f"more than {len(persistence.left) - 1}"
        half = persistence.half_life
        ticks, low, high = (f"{end:.1f}" if math.isfinite(end) else most for end in (half.value, half.low, half.high))
        of = "" if persistence.policy == "trained" else " (untrained policy)"
        between = "no interval" if math.isnan(half.low) else f"{low} to {high}"
        yield f"  {TITLES[persistence.what]}{of}: {ticks} ticks ({between})"
