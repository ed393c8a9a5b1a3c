"""The tables of a run: all effects, the same by episode, and how well erased variables could be read."""

from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np

from activation_store.interventions import Arm, LivesTable, Readability
from analysis.interventions.effects.controls import (
    CONTROLS,
    Against,
    Judged,
    PerEpisode,
    controls_of,
    edits,
    on_episodes_of,
)
from analysis.interventions.effects.effects import effect_per_episode, level_per_episode
from analysis.interventions.effects.outcomes import split_outcomes
from analysis.interventions.effects.pairs import FLIPS, Pairs, paired
from analysis.interventions.effects.study import EffectsStudy
from analysis.statistics.resampling import Estimate
from analysis.tables import Cell, Table, tab_separated_lines

_HEADS = (
    "measure", "arm", "dose", "outcome", "value", "low", "high", "twin", "spread", "episodes", "lives", "left_out",
    "test", "p", "q", "beyond_q", "detectable", "equivalence_q", "verdict",
)  # fmt: skip
_OF_CONTROL = ("value", "difference", "low", "high", "p", "arms", "as_large")


def effects_table(study: EffectsStudy) -> Table:
    """Return one row for each arm and outcome.

    The measure says what `value` is: `effect` on edited agents, `at once` in the edited state, `follows`, the share of
    ticks in which an option follows the donor's variable minus 0.5, `bend`, the tiles that agents get further along a
    planned displacement within its horizon, `spillover` on unedited agents, or `slope` over doses, per unit of dose.
    `q` is of no effect, `beyond_q` of no more than some kind of control, `equivalence_q` of one at least as large as
    the margin; `detectable` is the size that would be found in 80% of such runs, "inf" if none could be. Columns of a
    control hold its own value, the difference of the edit to it with its interval and p-value, how many arms it has,
    and of directions how many of them have at least as large a value.
    """
    heads = tuple(f"{control.replace(' ', '_')}_{column}" for control in CONTROLS for column in _OF_CONTROL)
    return Table("effects", (*_HEADS, *heads), tuple(_rows(study)))


def _rows(study: EffectsStudy) -> Iterator[tuple[Cell, ...]]:
    nothing = _controls(())
    broken = "pairing is broken" if study.broken else None
    for effect in study.effects:
        lives = effect.episodes, effect.pairs, effect.left_out
        row = effect.arm, effect.dose, effect.outcome, *_cells(effect.effect), effect.twin, effect.spread, *lives
        yield "effect", *row, effect.test, *_judged(effect)
    for level in study.at_once:
        lives = level.episodes, level.lives, level.left_out
        row_at_once = level.arm, level.dose, level.outcome, *_cells(level.level), None, None, *lives
        yield "at once", *row_at_once, *[None] * 7, *_controls(level.against)
    for follow in study.follows:
        name = f"follows/{follow.feature}/{follow.option}"
        row_follows = (
            follow.arm, follow.dose, name, *_cells(follow.effect), None, None, follow.episodes, follow.lives, None,
        )  # fmt: skip
        yield "follows", *row_follows, FLIPS, *_judged(follow)
    for bend in study.bends:
        name = f"bend/{bend.plan}/{bend.ticks}"
        row_bend = bend.arm, bend.dose, name, *_cells(bend.along), None, None, bend.episodes, bend.lives, None
        yield "bend", *row_bend, FLIPS, *_judged(bend)
    for spilled in study.spillovers:
        lives = spilled.episodes, spilled.pairs, spilled.left_out
        row_spilled = spilled.arm, spilled.dose, spilled.outcome, *_cells(spilled.effect), None, None, *lives
        tested = spilled.p, spilled.q, None, _size(spilled.detectable), None
        verdict = broken or ("effect" if spilled.is_found else "undecided")
        yield "spillover", *row_spilled, FLIPS, *tested, verdict, *nothing
    for slope in study.dose_responses:
        row_slope = None, None, slope.outcome, *_cells(slope.slope), None, None, None, None, None
        sizes = slope.beyond_q, _size(slope.detectable), None
        random = (slope.against,) if slope.against else ()
        yield "slope", *row_slope, slope.test, slope.p, slope.q, *sizes, broken or slope.shape, *_controls(random)


def _judged(judged: Judged) -> tuple[Cell, ...]:
    tested = judged.p, judged.q, judged.beyond_q, _size(judged.detectable), judged.equivalence_q, judged.words
    return *tested, *_controls(judged.against)


def _size(detectable: float) -> Cell:
    return "inf" if np.isinf(detectable) else detectable


def _controls(against: tuple[Against, ...]) -> tuple[Cell, ...]:
    by_kind = {comparison.control: comparison for comparison in against}
    cells: list[Cell] = []
    for control in CONTROLS:
        comparison = by_kind.get(control)
        if comparison:
            cells += (
                comparison.effect.value, *_cells(comparison.difference), comparison.p, len(comparison.arms),
                comparison.as_large,
            )  # fmt: skip
        else:
            cells += [None] * len(_OF_CONTROL)
    return tuple(cells)


def _cells(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


_EPISODE_HEADS = ("measure", "arm", "dose", "outcome", "world", "value", "twin")
_OF_CONTROL_BY_EPISODE = ("value", "difference")


def by_episode_table(table: LivesTable, arms: Sequence[Arm], seed: int) -> Table:
    """Return one row for each edit, outcome and episode; columns as in effects.tsv, whose numbers are means over them.

    Means over several trainings are made from it.

    Args:
        seed: of the episodes. With an episode's number it is the name of the world, `SEED/NUMBER`: maps, places and
            tasks are the same in all runs that played it.
    """
    everything = paired(table, arms)
    in_behaviour, at_once = split_outcomes(table, arms)
    heads = tuple(f"{control.replace(' ', '_')}_{column}" for control in CONTROLS for column in _OF_CONTROL_BY_EPISODE)
    rows = [
        row
        for edit in edits(everything)
        for measure, outcomes, per in (
            ("effect", in_behaviour, effect_per_episode),
            ("at once", at_once, level_per_episode),
        )
        for outcome in outcomes
        for row in _episode_rows(edit, everything, per(outcome), (measure, outcome, seed))
    ]
    return Table("effects_by_episode", (*_EPISODE_HEADS, *heads), tuple(rows))


def _episode_rows(
    edit: Pairs, everything: Sequence[Pairs], per_episode: PerEpisode, named: tuple[str, str, int]
) -> Iterator[tuple[Cell, ...]]:
    measure, outcome, seed = named
    values, nothing = per_episode(edit), np.full(len(edit.episodes), np.nan)
    twin = edit.episode_means(edit.twin[outcome], edit.edited) if measure == "effect" else nothing
    columns = [values, twin]
    controls = controls_of(edit, everything, at_once=outcome if measure == "at once" else None)
    for control in CONTROLS:
        played = [on_episodes_of(edit, arm, per_episode(arm)) for arm in controls.get(control, [])]
        theirs = np.mean(played, axis=0) if played else nothing
        columns += [theirs, values - theirs]
    for episode, *cells in zip(edit.episodes.tolist(), *columns, strict=True):
        yield measure, edit.arm.name, edit.arm.dose, outcome, f"{seed}/{episode}", *map(float, cells)


def readability_lines(erased: Sequence[Readability]) -> list[str]:
    """Return a line for each erased variable of each arm, with a heading; empty if nothing was erased."""
    if not erased:
        return []
    return [
        "",
        "Erased variables, by R2 of linear read-outs (1: exact; 0 or less: no better than a constant):",
        *map(_line, erased),
    ]


def erased_table(erased: Sequence[Readability]) -> str:
    """Return a row for each erased variable of each arm, tab-separated; what was not measured stays empty."""
    names = [field.name for field in fields(Readability)]
    rows = [["" if (value := getattr(reading, name)) is None else str(value) for name in names] for reading in erased]
    return tab_separated_lines(names, rows)


def _line(reading: Readability) -> str:
    if reading.unedited is None and reading.in_play is None:
        play = "not measured in play: it needs more than four episodes"
    else:
        play = f"in other episodes {_number(reading.unedited)} unedited, {_number(reading.in_play)} edited in play"
    return (
        f"  {reading.arm}: {reading.variable} in {reading.layer}: {_number(reading.before)} in {reading.states:,} "
        f"unedited states, {_number(reading.after)} once they are erased; {play}"
    )


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value + 0.0:.3f}".replace("-0.000", "0.000")
