"""What a reader must know beside the numbers of a comparison, in sentences."""

from collections.abc import Sequence

import numpy as np

from analysis.evaluation.results import Mode
from analysis.training_runs.groups import Group, settings_that_are_missing, settings_that_differ
from analysis.training_runs.held_out import Evaluated
from analysis.training_runs.last_stretch import Level
from analysis.training_runs.run import AGENT, BUDGET

_REWARDS = (AGENT, "reward.")
_SETTINGS_SHOWN = 4


def notes_on(groups: Sequence[Group], metrics: Sequence[str], stretch: tuple[float, float]) -> list[str]:
    """Return notes on runs, seeds and settings."""
    notes = [
        f"{run.name} is unfinished: {run.end:,.0f} of {run.settings[BUDGET]:,} agent-steps."
        for group in groups
        for run in group.runs
        if not run.finished
    ]
    notes += [f"{group.name} has one seed: no interval and no test." for group in groups if len(group.runs) == 1]
    differing = settings_that_differ(group.runs[0] for group in groups)
    for name, values in differing.items():
        text = ", ".join(f"{group.name}: {value}" for group, value in zip(groups, values, strict=True))
        notes.append(f"The groups differ in {name} ({text}).")
    if missing := settings_that_are_missing(run for group in groups for run in group.runs):
        shown = ", ".join(missing[:_SETTINGS_SHOWN]) + (" and others" if len(missing) > _SETTINGS_SHOWN else "")
        notes.append(f"Some runs are from before there were the settings {shown}: these are not compared.")
    if len(groups) > 1 and not differing:
        notes.append("The groups have the same settings: what differs between them is chance, or the code.")
    if any(name.startswith(_REWARDS) for name in differing) and any("reward" in name for name in metrics):
        notes.append("Their rewards are defined differently, so returns cannot be compared between these groups.")
    if len(groups) > 1:
        notes.append(
            f"The last stretch is agent-steps {stretch[0]:,.0f} to {stretch[1]:,.0f}; the run that trained least ends "
            "there."
        )
    return notes


def notes_on_evaluations(evaluated: Sequence[Evaluated], scores: Sequence[Level], mode: Mode) -> list[str]:
    """Return notes on how the checkpoints were evaluated; `scores` are those that are compared in numbers."""
    if not evaluated:
        return []
    rules = sorted({name for evaluation in evaluated for name in evaluation.other_rules})
    notes = ["Evaluations are on the 63 held-out tasks; training draws its own tasks."]
    if mode == "pvp":
        notes.append("Evaluated checkpoints share worlds, so how one does depends on which others are there.")
    if rules:
        notes.append(f"Besides maps and tasks, evaluations and training differ in: {', '.join(rules)}.")
    if without := [evaluation for evaluation in evaluated if not np.isfinite(evaluation.scores).all()]:
        notes.append(
            f"{len(without)} of {len(evaluated)} evaluated checkpoints have no score, since no life had some of the "
            f"tasks (the first: {without[0].run.name} after {without[0].steps:,} agent-steps): play more episodes with "
            "evaluate.py -n."
        )
    if not scores:
        notes.append("No checkpoint has scores for every run, so the table has none: evaluate the last of each run.")
    kinds = {evaluation.maps for evaluation in evaluated}
    if "held-out" not in kinds:
        notes.append("All evaluations are on the maps of the training: play others with --env.map-seed.")
    if "training" not in kinds:
        notes.append(
            "No evaluation is on the maps of the training, so the gap between seen and unseen maps is not measured: "
            "play some with evaluate.py, --env.map-seed and --env.num-maps of the training, and another --seed."
        )
    return notes
