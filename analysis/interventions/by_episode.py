"""The table of what edits changed in each episode: what means over several trainings are made from."""

from collections.abc import Iterator, Sequence

import numpy as np

from activation_store.interventions import Arm, LivesTable
from analysis.evaluation.tables import Cell, Table
from analysis.interventions.at_once import level_per_episode
from analysis.interventions.controls import CONTROLS, PerEpisode, controls_of, edits, on_episodes_of
from analysis.interventions.effects import effect_per_episode
from analysis.interventions.outcomes import split_outcomes
from analysis.interventions.pairs import Pairs, paired

_HEADS = ("measure", "arm", "dose", "outcome", "world", "value", "twin")
_OF_CONTROL = ("value", "difference")


def by_episode_table(table: LivesTable, arms: Sequence[Arm], seed: int) -> Table:
    """Return one row for each edit, outcome and episode; columns as in effects.tsv, whose numbers are means over them.

    Args:
        table: of lives.
        arms: of the run.
        seed: of the episodes. With an episode's number it is the name of the world, `SEED/NUMBER`: maps, places and
            tasks are the same in all runs that played it.
    """
    everything = paired(table, arms)
    in_behaviour, at_once = split_outcomes(table, arms)
    heads = tuple(f"{control.replace(' ', '_')}_{column}" for control in CONTROLS for column in _OF_CONTROL)
    rows = [
        row
        for edit in edits(everything)
        for measure, outcomes, per in (
            ("effect", in_behaviour, effect_per_episode),
            ("at once", at_once, level_per_episode),
        )
        for outcome in outcomes
        for row in _rows(edit, everything, per(outcome), (measure, outcome, seed))
    ]
    return Table("effects_by_episode", (*_HEADS, *heads), tuple(rows))


def _rows(
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
