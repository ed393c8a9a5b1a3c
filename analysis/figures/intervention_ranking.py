"""Directions that were edited one by one, ranked by what that changes at once: a panel for each outcome."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from analysis.figures.intervention_forest import (
    SPREADS,
    Panel,
    Row,
    about_counting,
    effect_row,
    ends_of,
    forest,
    intervals,
    level_row,
)
from analysis.figures.intervention_looks import EDIT
from analysis.interventions.controls import RANDOM
from analysis.interventions.outcomes import KL, KL_IN_PLAY, VALUE_CHANGE, title
from analysis.interventions.ranking import Ranked, ranking
from analysis.statistics.inference import LEVEL

if TYPE_CHECKING:
    from analysis.interventions.study import Study

_COLUMNS = 5
_SERIES = (EDIT, RANDOM)


def ranking_figure(study: "Study") -> Figure | None:
    """Draw what each direction did at once and in behaviour; None if they were not edited one by one."""
    ranked = ranking(study)
    if not ranked:
        return None
    top = "the one that moves the distribution over actions furthest at once, in total, is on top"
    about = (
        f"Each direction was edited by itself; {top if KL in ranked[0].at_once else 'they are not ranked'}. In total: "
        "compared with the same agents if nobody had ever edited them; in play: without the edit of the same tick "
        "alone. On behaviour: mean difference of edited agents from themselves in the unedited twin, in standard "
        f"deviations over lives of the twin, with {intervals(study)}; filled if q is at most {LEVEL:g}, and the effect "
        "lies beyond every kind of control. Right of each panel: the effect in the outcome's own unit."
    )
    panels = [*_at_once(ranked), *_on_behaviour(ranked)]
    return forest(panels, ("Directions, one by one", about), about_counting(), _COLUMNS)


def _at_once(ranked: Sequence[Ranked]) -> list[Panel]:
    panels = []
    for name, unit in ((KL, "nats"), (KL_IN_PLAY, "nats"), (VALUE_CHANGE, "change")):
        if all(name in each.at_once for each in ranked):
            signed = name == VALUE_CHANGE
            rows = [_row(level_row(each.at_once[name], signed), each.direction) for each in ranked]
            panels.append(Panel(f"at once: {title(name)}", unit, rows, ends_of(rows, not_negative=not signed)))
    return panels


def _on_behaviour(ranked: Sequence[Ranked]) -> list[Panel]:
    names = [name for name, effect in ranked[0].effects.items() if np.isfinite(effect.spread)]
    rows = {name: [_row(effect_row(each.effects[name]), each.direction) for each in ranked] for name in names}
    ends = ends_of([row for each in rows.values() for row in each])
    return [Panel(title(name), SPREADS, each, ends) for name, each in rows.items()]


def _row(row: Row, direction: str) -> Row:
    """Return a row under its direction's name, with the series that are drawn."""
    series = {name: each for name, each in row.series.items() if name in _SERIES}
    return replace(row, label=direction, group="", series=series)
