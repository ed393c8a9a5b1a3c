"""The table of all effects, as tab-separated text."""

from collections.abc import Iterator

from analysis.evaluation.tables import Cell, Table
from analysis.interventions.controls import CONTROLS, Against
from analysis.interventions.study import Study
from analysis.statistics.resampling import Estimate

_HEADS = (
    "measure", "arm", "dose", "outcome", "value", "low", "high", "twin", "spread", "episodes", "lives", "left_out",
    "test", "p", "q", "verdict",
)  # fmt: skip
_OF_CONTROL = ("value", "difference", "low", "high", "p")


def effects_table(study: Study) -> Table:
    """Return one row for each arm and outcome.

    The measure says what `value` is: `effect` on edited agents, `at once` in the edited state, `follows`, the share of
    ticks in which an option follows the donor's variable minus 0.5, `bend`, the tiles that agents get further along a
    planned displacement within its horizon, `spillover` on unedited agents, or `slope` over doses, per unit of dose.
    Columns of a control hold its own value, and the difference of the edit to it with its interval and p-value.
    """
    heads = tuple(f"{control.replace(' ', '_')}_{column}" for control in CONTROLS for column in _OF_CONTROL)
    return Table("effects", (*_HEADS, *heads), tuple(_rows(study)))


def _rows(study: Study) -> Iterator[tuple[Cell, ...]]:
    nothing = _controls(())
    for effect in study.effects:
        lives = effect.episodes, effect.pairs, effect.left_out
        row = effect.arm, effect.dose, effect.outcome, *_cells(effect.effect), effect.twin, effect.spread, *lives
        yield "effect", *row, effect.test, effect.p, effect.q, effect.verdict, *_controls(effect.against)
    for level in study.at_once:
        lives = level.episodes, level.lives, level.left_out
        row_at_once = level.arm, level.dose, level.outcome, *_cells(level.level), None, None, *lives
        yield "at once", *row_at_once, None, None, None, None, *_controls(level.against)
    for each in study.follows:
        name = f"follows/{each.feature}/{each.option}"
        row_follows = each.arm, each.dose, name, *_cells(each.effect), None, None, each.episodes, each.lives, None
        yield (
            "follows",
            *row_follows,
            "sign flips over episodes",
            each.p,
            each.q,
            each.verdict,
            *_controls(each.against),
        )
    for bend in study.bends:
        name = f"bend/{bend.plan}/{bend.ticks}"
        row_bend = bend.arm, bend.dose, name, *_cells(bend.along), None, None, bend.episodes, bend.lives, None
        against = _controls(bend.against)
        yield "bend", *row_bend, "sign flips over episodes", bend.p, bend.q, bend.verdict, *against
    for spilled in study.spillovers:
        lives = spilled.episodes, spilled.pairs, spilled.left_out
        row_spilled = spilled.arm, spilled.dose, spilled.outcome, *_cells(spilled.effect), None, None, *lives
        verdict = "effect" if spilled.found else "not found"
        yield "spillover", *row_spilled, "sign flips over episodes", spilled.p, spilled.q, verdict, *nothing
    for slope in study.dose_responses:
        row_slope = None, None, slope.outcome, *_cells(slope.slope), None, None, None, None, None
        random = slope.random_slope.value, *_cells(slope.slope_difference), None
        others = nothing[len(random) :]
        yield "slope", *row_slope, slope.test, slope.p, slope.q, slope.shape, *random, *others


def _controls(against: tuple[Against, ...]) -> tuple[Cell, ...]:
    by_kind = {each.control: each for each in against}
    cells: list[Cell] = []
    for control in CONTROLS:
        each = by_kind.get(control)
        cells += (each.effect.value, *_cells(each.difference), each.p) if each else [None] * len(_OF_CONTROL)
    return tuple(cells)


def _cells(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high
