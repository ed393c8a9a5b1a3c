"""Effects of edits against controls, and how far they move each action head's distribution: forest plots."""

from collections.abc import Mapping, Sequence
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
from analysis.interventions.outcomes import KL, KL_OF_HEAD, title_with_unit
from analysis.statistics.inference import LEVEL

if TYPE_CHECKING:
    from analysis.interventions.at_once import AtOnce
    from analysis.interventions.study import Study


def effects_figure(study: "Study") -> Figure:
    """Draw the effects on behaviour of each edit and its controls, in standard deviations of the unedited twin."""
    panels = {
        arm: [effect_row(effect) for effect in study.effects if effect.arm == arm and np.isfinite(effect.spread)]
        for arm in dict.fromkeys(effect.arm for effect in study.effects)
    }
    hidden = sorted({title_with_unit(each.outcome) for each in study.effects if not np.isfinite(each.spread)})
    same = f" Not drawn, since the same in all lives of the twin: {', '.join(hidden)}." if hidden else ""
    about = (
        "Mean difference of edited agents from themselves in the unedited twin, in standard deviations over lives of "
        f"the twin, with {intervals(study)}. Filled: q is at most {LEVEL:g}, and the effect lies beyond every kind of "
        f"control. Right of each panel: the edit's effect in the outcome's own unit.{same}"
    )
    return forest(_panels(panels, SPREADS), ("Effects on behaviour", about), about_counting())


def kl_by_head(study: "Study") -> Figure | None:
    """Draw how far each edit moves each action head's distribution; None if no KL of heads was recorded."""
    heads = [each for each in study.at_once if each.outcome.startswith(KL_OF_HEAD)]
    total = [each for each in study.at_once if each.outcome == KL]
    if not heads:
        return None
    size = {name: max(each.level.value for each in heads if each.outcome == name) for name in _names(heads)}
    ordered = sorted(heads, key=lambda each: -size[each.outcome])
    panels = {arm: [level_row(each) for each in [*total, *ordered] if each.arm == arm] for arm in _arms(heads)}
    about = (
        "KL divergence of the edited distribution from that of the same agents if nobody had ever edited them, after "
        f"the same observations, in nats; mean over edited ticks, with {intervals(study)}. Right of each panel: the "
        "edit's own."
    )
    return forest(_panels(panels, "KL, nats", not_negative=True), ("What an edit changes at once, in total", about))


def _panels(rows_by_arm: Mapping[str, Sequence[Row]], unit: str, not_negative: bool = False) -> list[Panel]:
    """Return a panel for each arm, all on the same axis."""
    ends = ends_of([row for rows in rows_by_arm.values() for row in rows], not_negative)
    return [Panel(arm, unit, rows, ends) for arm, rows in rows_by_arm.items()]


def _names(levels: Sequence["AtOnce"]) -> list[str]:
    return list(dict.fromkeys(each.outcome for each in levels))


def _arms(levels: Sequence["AtOnce"]) -> list[str]:
    return list(dict.fromkeys(each.arm for each in levels))
